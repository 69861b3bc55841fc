"""A topic's compaction as the topic holds it: next to nothing until it is used, for most never are.

``Compaction`` does the work; it is made when the topic has the cursor ``__compaction``, or when it
is first asked to compact.
"""

from __future__ import annotations

from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.compaction.compaction import Compaction
from geminga_broker.compaction.report import CompactionReport
from geminga_broker.errors import NotAllowed
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.logs import Logs
from geminga_broker.log.managed_ledger import ManagedLedger
from geminga_broker.policies.compaction import CompactionConfig
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.compacted_ledger import COMPACTION_CURSOR
from geminga_runtime.clock import Clock


class Compacting:
    """The compaction of the topic ``name``; ``config`` may be set at any time."""

    __slots__ = ("_clock", "_log", "_logs", "_name", "compaction", "config", "view")

    def __init__(
        self,
        name: TopicName,
        logs: Logs,
        managed_ledger: ManagedLedger,
        clock: Clock,
        config: CompactionConfig,
    ) -> None:
        self.config = config
        self.view = CompactedView(str(name))
        self.compaction: Compaction | None = None
        self._name = name
        self._logs = logs
        self._log = managed_ledger
        self._clock = clock

    @property
    def report(self) -> CompactionReport:
        """How the last compaction went."""
        return CompactionReport() if self.compaction is None else self.compaction.report

    def cursors(self) -> list[Cursor]:
        """The cursor that keeps the log for the next compaction, where there is one."""
        compaction = self.compaction
        return [] if compaction is None or compaction.cursor is None else [compaction.cursor]

    async def _used(self) -> Compaction:
        if self.compaction is None:
            self.compaction = Compaction(
                self._name, self._logs, self._log, self._clock, self.view, lambda: self.config
            )
            await self.compaction.__aenter__()
        return self.compaction

    async def adopt(self, cursor: Cursor) -> None:
        """The topic is being loaded, and has been compacted before."""
        await (await self._used()).adopt(cursor)

    async def trigger(self) -> None:
        """Compact in the background. Raises ``CompactionRunning``, ``TopicFenced``."""
        (await self._used()).trigger()

    @property
    def is_running(self) -> bool:
        """Whether the topic is being compacted now."""
        return self.compaction is not None and self.compaction.is_running

    async def check(self, *, may_begin: bool) -> None:
        """Once in a while: compact where more than the threshold is not compacted yet, unless
        enough others are being compacted."""
        if self.config.threshold_bytes:
            await (await self._used()).check(may_begin=may_begin)

    async def forget(self) -> None:
        """The topic is truncated."""
        if self.compaction is not None:
            await self.compaction.forget()

    async def delete(self) -> None:
        """The topic is being deleted."""
        if self.compaction is not None:
            await self.compaction.delete()

    async def close(self) -> None:
        """The topic is being closed: a compaction that runs ends."""
        if self.compaction is not None:
            await self.compaction.__aexit__(None, None, None)


def check_subscription(name: str) -> None:
    """Raise ``NotAllowed`` for the name of compaction's own cursor: nobody consumes there."""
    if name == COMPACTION_CURSOR:
        raise NotAllowed(f"the subscription {COMPACTION_CURSOR} is the broker's own")


def check_read_compacted(kind: SubscriptionType) -> None:
    """Raise ``NotAllowed`` where several consumers share the messages."""
    if kind.tracks_entries:
        raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
