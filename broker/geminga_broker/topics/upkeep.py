"""What is done for all topics of a broker again and again: rates, the parts' work, deletion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.inactivity import is_over
from geminga_broker.topics.part import PartT
from geminga_broker.topics.parts import STORED, VOLATILE
from geminga_broker.topics.topic import Topic
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

# Topics that are looked at before others get a turn of the event loop: each takes a few
# microseconds, and there may be very many.
LOOKED_AT_TOPICS_MAX = 500


class PeriodicWork(NamedTuple):
    """``work`` is done again and again, with ``period_s`` seconds before each time."""

    name: str
    period_s: float
    work: Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class TopicTotals:
    """What all topics of a broker have together, for the load it reports. Rates are per second."""

    producers: int = 0
    consumers: int = 0
    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0

    def add(self, topic: Topic) -> None:
        """Count one topic."""
        rate_in, throughput_in, rate_out, throughput_out = topic.meter.rates
        self.producers += topic.publishing.connected_count
        self.consumers += topic.subscribing.connected_count
        self.rate_in += rate_in
        self.throughput_in += throughput_in
        self.rate_out += rate_out
        self.throughput_out += throughput_out


class TopicUpkeep:
    """Looks after the topics of ``directory``."""

    def __init__(self, directory: TopicDirectory, clock: Clock) -> None:
        self.totals = TopicTotals()
        self._directory = directory
        self._clock = clock

    def work_of_parts(self) -> list[PeriodicWork]:
        """What the parts of topics want to have done again and again."""
        periods_s = {
            kind: kind.period_s(self._directory.services)
            for kind in dict.fromkeys((*STORED, *VOLATILE))
        }
        return [
            PeriodicWork(f"look after {kind.__name__}", period_s, partial(self.look_after, kind))
            for kind, period_s in periods_s.items()
            if period_s
        ]

    async def look_after(self, kind: type[PartT]) -> None:
        """Look after all topics' parts of that kind that need it."""
        found: list[tuple[Topic, PartT]] = []  # which keeps the topics, as their parts do not
        for number, topic in enumerate(self._directory.loaded, 1):
            part = topic.find(kind)
            if part is not None and part.needs_care:
                found.append((topic, part))
            if number % LOOKED_AT_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        await kind.look_after_all([part for _, part in found])

    async def renew_rates(self) -> None:
        """Once a stats period: every topic's rates, and their ``totals``."""
        totals = TopicTotals()
        for number, topic in enumerate(self._directory.loaded, 1):
            topic.tick(self._clock.monotonic())
            totals.add(topic)
            if number % LOOKED_AT_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        self.totals = totals
        self._directory.services.publish_durations.renew()
        self._directory.load_durations.renew()

    async def delete_unused(self) -> None:
        """Delete the topics that nobody has used for too long."""
        now_s = self._clock.monotonic()
        for number, topic in enumerate(self._directory.loaded, 1):
            rule = topic.policies.inactivity
            if topic.is_used(rule):
                topic.last_used_s = now_s
            elif rule.is_deleting and is_over(
                rule, idle_s=now_s - topic.last_used_s, retention_ms=topic.retention_ms
            ):
                await self._delete_unused(topic)
            if number % LOOKED_AT_TOPICS_MAX == 0:
                await asyncio.sleep(0)

    async def _delete_unused(self, topic: Topic) -> None:
        name = str(topic.name)
        try:
            await self._directory.delete_topic(topic)  # as it was judged: nothing was awaited since
        except GemingaError as error:
            log.warning("unused topic not deleted", extra={"topic": name, "error": str(error)})
        else:
            log.info("unused topic deleted", extra={"topic": name})
