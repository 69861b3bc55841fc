"""A topic's compaction as the topic holds it: almost nothing until it is used.

``TopicCompactor`` does the work. Most topics never have one: it is made if the topic has the cursor
``__compaction``, or when the topic is first asked to compact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.compaction.report import CompactionReport
from geminga_broker.compaction.topic_compactor import TopicCompactor
from geminga_broker.errors import NotAllowed
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_protocol.pulsar.system_topics import is_change_events
from geminga_protocol.records.topics.compacted_ledger import COMPACTION_CURSOR

# Topics that are compacted at once for their threshold: each holds its keys in memory meanwhile.
# Requests of operators are not held back by it, only counted.
COMPACTIONS_AT_ONCE_MAX = 4


class TopicCompaction(TopicPart):
    """Compacts the topic on request, and when too much of its log is not compacted yet."""

    __slots__ = ("_services", "compaction", "view")

    own_cursor: ClassVar[str | None] = COMPACTION_CURSOR

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        # What consumers with readCompacted read; empty until a compaction is done. One object for
        # the topic's life: subscriptions are given it when they are made, before there is anything
        # compacted, and see each new compacted ledger through it.
        self.view = CompactedView(str(topic.name))
        # None until it is used.
        self.compaction: TopicCompactor | None = None
        self._services = services

    @property
    def report(self) -> CompactionReport:
        """What is known of the last compaction."""
        return CompactionReport() if self.compaction is None else self.compaction.report

    async def adopt(self, cursor: Cursor) -> None:
        """Continue where the last compaction ended: its cursor says up to where."""
        # Without it, the log would be trimmed past what is not compacted yet.
        await (await self._used()).adopt(cursor)

    async def opened(self) -> None:
        """Create the cursor of the topic that stores topic policies. It has no subscription:
        without this cursor its log would be trimmed before it is compacted."""
        # The policies set the threshold of this topic (``policies.effective``). The check makes the
        # cursor; it begins no compaction while topics are loaded.
        if is_change_events(self._topic.name):
            await self.check_threshold(may_begin=False)

    def cursors(self) -> list[Cursor]:
        """The cursor that keeps the log for the next compaction, if there is one."""
        compaction = self.compaction
        return [] if compaction is None or compaction.cursor is None else [compaction.cursor]

    async def _used(self) -> TopicCompactor:
        """The compaction, made on first use."""
        # Set before it is entered, which does not wait: a second caller finds it ready.
        if self.compaction is None:
            topic, services = self._topic, self._services
            # The policies as a function: they may change as long as the topic is open.
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

    @property
    def needs_maintenance(self) -> bool:
        """Whether the topic has a threshold, or is being compacted and so counts for the limit."""
        return self.is_running or self._topic.policies.compaction.threshold_bytes > 0

    @classmethod
    async def maintain_all(cls, parts: Sequence[TopicPart]) -> None:
        """Compact the topics that are over their threshold, a limited number at once."""
        # Compactions that were triggered by an operator count as well. ``parts`` are those that
        # need maintenance, so all that run are among them.
        compactions = [part for part in parts if isinstance(part, cls)]
        running = sum(each.is_running for each in compactions)
        for each in compactions:
            if not each.is_running:
                # Even if it may not begin, the check creates the cursor that keeps the log.
                may_begin = running < COMPACTIONS_AT_ONCE_MAX
                await each.attempt(partial(each.check_threshold, may_begin=may_begin))
                # The check may have begun it. It runs as a task: this round does not wait for its
                # end.
                running += each.is_running

    async def check_threshold(self, *, may_begin: bool) -> None:
        """Compact if the topic is over its threshold and ``may_begin``."""
        # Topics without a threshold never make the compactor, which costs memory.
        if self._topic.policies.compaction.threshold_bytes:
            await (await self._used()).check(may_begin=may_begin)

    # Ending

    async def delete(self) -> None:
        """Delete the compacted ledger and the cursor."""
        if self.compaction is not None:
            # The ledger before the cursor that names it: a crash in between leaves a cursor from
            # which the next attempt goes on.
            await self.compaction.delete()

    async def close(self) -> None:
        """Cancel a running compaction, and close the cursor."""
        if self.compaction is not None:
            await self.compaction.__aexit__(None, None, None)


def check_subscription(name: str) -> None:
    """Raise ``NotAllowed`` for the name of compaction's own cursor, which has no consumers."""
    if name == COMPACTION_CURSOR:
        raise NotAllowed(f"the subscription {COMPACTION_CURSOR} is the broker's own")
