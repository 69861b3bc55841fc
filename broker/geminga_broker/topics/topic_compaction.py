"""A topic's compaction as the topic holds it: next to nothing until it is used, for most never are.

``TopicCompactor`` does the work; it is made when the topic has the cursor ``__compaction``, or when
it is first asked to compact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.compaction.report import CompactionReport
from geminga_broker.compaction.topic_compactor import TopicCompactor
from geminga_broker.errors import NotAllowed
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_cluster.system_topics import is_change_events
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.records.compacted_ledger import COMPACTION_CURSOR

# So many topics are compacted at once by themselves: each holds its keys in memory meanwhile.
COMPACTIONS_AT_ONCE_MAX = 4


class TopicCompaction(TopicPart):
    """Compacts the topic on request, and when too much of its log is not compacted yet."""

    __slots__ = ("_services", "compaction", "view")

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        self.view = CompactedView(str(topic.name))
        self.compaction: TopicCompactor | None = None
        self._services = services

    @property
    def report(self) -> CompactionReport:
        """How the last compaction went."""
        return CompactionReport() if self.compaction is None else self.compaction.report

    def claims(self, cursor_name: str) -> bool:
        """The cursor that upstream names so."""
        return cursor_name == COMPACTION_CURSOR

    async def adopt(self, cursor: Cursor) -> None:
        """The topic has been compacted before."""
        await (await self._used()).adopt(cursor)

    async def opened(self) -> None:
        """The topic of topics' policies has the cursor from its beginning on: it has no other, and
        what nobody has read would be trimmed."""
        if is_change_events(self._topic.name):
            await self.check_threshold(may_begin=False)

    def cursors(self) -> list[Cursor]:
        """The cursor that keeps the log for the next compaction, where there is one."""
        compaction = self.compaction
        return [] if compaction is None or compaction.cursor is None else [compaction.cursor]

    async def _used(self) -> TopicCompactor:
        if self.compaction is None:
            topic, services = self._topic, self._services
            self.compaction = TopicCompactor(
                topic.name,
                services.factory,
                topic.managed_ledger,
                services.clock,
                self.view,
                lambda: topic.policies.compaction,
            )
            await self.compaction.__aenter__()
        return self.compaction

    async def trigger(self) -> None:
        """Compact in the background. Raises ``CompactionRunning``, ``TopicFenced``."""
        (await self._used()).trigger()

    @property
    def is_running(self) -> bool:
        """Whether the topic is being compacted now."""
        return self.compaction is not None and self.compaction.is_running

    def tick(self, now_s: float, period_s: float) -> None:
        """Compute the rates in the report."""
        del now_s, period_s
        if self.compaction is not None:
            self.compaction.report.renew()

    # Compaction by threshold

    @classmethod
    def maintenance_period_s(cls, services: TopicServices) -> float:
        """How often the uncompacted part of a log is compared with its threshold."""
        return services.config.compaction.check_s

    @property
    def needs_maintenance(self) -> bool:
        """Whether there is a threshold, or a compaction that counts as running."""
        return self.is_running or self._topic.policies.compaction.threshold_bytes > 0

    @classmethod
    async def maintain_all(cls, parts: Sequence[TopicPart]) -> None:
        """Compact the topics that are over their threshold, few of them at once."""
        compactions = [part for part in parts if isinstance(part, cls)]
        running = sum(each.is_running for each in compactions)
        for each in compactions:
            if not each.is_running:
                may_begin = running < COMPACTIONS_AT_ONCE_MAX
                await each.attempt(partial(each.check_threshold, may_begin=may_begin))
                running += each.is_running

    async def check_threshold(self, *, may_begin: bool) -> None:
        """Compact if the topic is over its threshold and ``may_begin``."""
        if self._topic.policies.compaction.threshold_bytes:
            await (await self._used()).check(may_begin=may_begin)

    # Ending

    async def truncate(self) -> None:
        """Delete the compacted ledger."""
        if self.compaction is not None:
            await self.compaction.forget()

    async def delete(self) -> None:
        """Delete the compacted ledger and the cursor."""
        if self.compaction is not None:
            await self.compaction.delete()

    async def close(self) -> None:
        """Cancel a running compaction, and close the cursor."""
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
