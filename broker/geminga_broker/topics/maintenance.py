"""The periodic work on all topics of a broker.

It computes rates, maintains the topics' parts, and deletes unused topics. With many topics, each
round pauses regularly, so that clients are served meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.policies.inactivity import is_over
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.part import TopicPart
from geminga_broker.topics.parts import maintenance_periods_s
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

# Topics visited in one turn of the event loop: each takes a few microseconds, and a broker may have
# 100,000. The rounds iterate over copies of ``loaded``: topics come and go whenever a round pauses.
VISITED_TOPICS_MAX = 500


class PeriodicWork(NamedTuple):
    """``work`` to be repeated, with a pause of ``period_s`` seconds before each round."""

    name: str
    period_s: float
    work: Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class TopicTotals:
    """Sums over topics, for the broker's load report. Rates are per second."""

    # Counts.
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    # Messages, and bytes.
    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0

    def add(self, topic: Topic) -> None:
        """Add one topic."""
        rate_in, throughput_in, rate_out, throughput_out = topic.meter.rates
        self.topics += 1
        self.producers += len(topic.publishing.producers.by_name)
        self.consumers += topic.subscribing.connected_count
        self.rate_in += rate_in
        self.throughput_in += throughput_in
        self.rate_out += rate_out
        self.throughput_out += throughput_out


@dataclass(slots=True, eq=False)
class TopicMaintenance:
    """Does the periodic work on the topics of a directory."""

    _directory: TopicDirectory
    _clock: Clock
    # The bundle that a topic lies in; None for a topic that is just being lost. A function, because
    # bundles are split and handed over while the broker runs.
    bundle_of: Callable[[TopicName], Bundle | None] = field(default=lambda _: None, kw_only=True)
    # Of the last stats period, for the load report; replaced as a whole. ``totals`` is the sum of
    # ``totals_by_bundle`` and of topics whose bundle is just being lost.
    totals: TopicTotals = field(default_factory=TopicTotals, init=False)
    totals_by_bundle: Mapping[Bundle, TopicTotals] = field(
        default_factory=dict[Bundle, TopicTotals], init=False
    )

    def work_of_parts(self) -> list[PeriodicWork]:
        """The maintenance of each kind of part that has any."""
        return [
            PeriodicWork(f"maintain {kind.__name__}", period_s, partial(self.maintain, kind))
            # Each becomes a task of its own, which the broker repeats. A slow round, say of
            # replication, does not delay the quotas.
            for kind, period_s in maintenance_periods_s(self._directory.services).items()
        ]

    async def maintain(self, kind: type[TopicPart]) -> None:
        """Maintain the parts of that kind that need it, of all topics."""
        # With the topics, because a part does not keep its topic alive. Parts have only a weak
        # reference to their topic: without this one, a topic that is unloaded during the round
        # would be freed, and the part's next access to it would raise ``ReferenceError``.
        found: list[tuple[Topic, TopicPart]] = []
        for number, topic in enumerate(list(self._directory.loaded.values()), 1):
            part = topic.find(kind)
            if part is not None and part.needs_maintenance:
                found.append((topic, part))
            # The turn that other tasks get. What was found before it may be stale after it: a part
            # that is maintained later is asked again whether its topic is open
            # (``TopicPart.attempt``).
            if number % VISITED_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        # Chosen first, so that a kind may weigh its topics against each other.
        await kind.maintain_all([part for _, part in found])

    async def renew_rates(self) -> None:
        """End a stats period: compute every topic's rates, and their totals."""
        totals = TopicTotals()
        by_bundle: dict[Bundle, TopicTotals] = {}
        for number, topic in enumerate(list(self._directory.loaded.values()), 1):
            # The time is read for each topic: the pauses below can make a round last, and a rate is
            # computed over the time that its own topic has really had.
            topic.tick(self._clock.monotonic())
            totals.add(topic)
            bundle = self.bundle_of(topic.name)
            if bundle is not None:
                by_bundle.setdefault(bundle, TopicTotals()).add(topic)
            if number % VISITED_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        # Only now: a load report in between would show a part of the topics.
        self.totals, self.totals_by_bundle = totals, by_bundle
        self._directory.services.publish_durations.renew()
        self._directory.load_durations.renew()

    async def delete_unused(self) -> None:
        """Delete the topics that were unused for as long as their policies say."""
        now_s = self._clock.monotonic()
        for number, topic in enumerate(list(self._directory.loaded.values()), 1):
            policies = topic.policies
            # ``last_used_s`` is when the topic was loaded, or when its last client left. A round
            # only compares: a long pause between rounds deletes later, never too early.
            rule = policies.inactivity
            # A topic without a log retains nothing.
            retention_ms = policies.retention.time_ms if topic.name.is_persistent else 0
            if topic.connected_count or any(part.is_used(rule) for part in topic.parts):
                # Between two rounds a topic may be used and left: whichever part the client leaves
                # sets this as well.
                topic.last_used_s = now_s
            elif rule.is_deleting and is_over(
                rule, idle_s=now_s - topic.last_used_s, retention_ms=retention_ms
            ):
                # No await since it was judged: it is still unused. ``delete_topic`` takes it out of
                # ``loaded`` before it waits for anything, so that no client can begin to use it. A
                # topic of the list that has left meanwhile, or was loaded again, is refused there
                # with ``TopicFenced``.
                try:
                    await self._directory.delete_topic(topic)
                except GemingaError as error:
                    log.warning(
                        "unused topic not deleted",
                        extra={"topic": str(topic.name), "error": str(error)},
                    )
                else:
                    log.info("unused topic deleted", extra={"topic": str(topic.name)})
            if number % VISITED_TOPICS_MAX == 0:
                await asyncio.sleep(0)
