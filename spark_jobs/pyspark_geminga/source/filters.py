"""Filters that Spark pushes down: what of a topic need not be read for them.

Nothing here decides about rows: Spark applies every filter again. Only batch reads get filters, and
only with ``filterPushdown=true``: a reader that takes filters fails unless Spark's own setting
``spark.sql.python.filterPushdown.enabled`` is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from geminga.arrow import METADATA_FIELDS

TOPIC, PUBLISH_TIME, KEY = "__topic", "__publishTime", "__key"
assert {TOPIC, PUBLISH_TIME, KEY} <= set(METADATA_FIELDS)

# Producers stamp messages by their own clocks, and brokers look a time up as if stamps only grew:
# so much more is read at both ends than the filters name.
CLOCK_SKEW_MS = 60_000


@dataclass(frozen=True, slots=True)
class Pruning:
    """What may match: these topics (``None`` for all), published from and until these times, in
    milliseconds since 1970; until is not included. ``keys`` are those of messages (``None`` for
    all; in the set it stands for messages without a key): brokers cannot be asked for them, and
    tasks leave out the rows that have others."""

    topics: frozenset[str] | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    keys: frozenset[bytes | None] | None = None

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> Pruning:
        """What rows that pass all of ``filters`` have in common."""
        pruning = cls()
        for each in filters:
            pruning = pruning.narrowed(each)
        return pruning

    def narrowed(self, each: Filter) -> Pruning:
        """The same where one more filter has to be passed; unchanged for one that says nothing of
        topics, times and keys."""
        match each:
            case EqualTo((column,), value) if column == KEY:
                return self._of_keys(frozenset((value,)) - {None})  # null equals nothing
            case In((column,), values) if column == KEY:
                return self._of_keys(frozenset(values) - {None})
            case EqualNullSafe((column,), value) if column == KEY:
                return self._of_keys(frozenset((value,)))
            case IsNull((column,)) if column == KEY:
                return self._of_keys(frozenset((None,)))
            case EqualTo((column,), value) | EqualNullSafe((column,), value) if column == TOPIC:
                return self._within(frozenset((value,)))
            case In((column,), values) if column == TOPIC:
                return self._within(frozenset(values))
            case EqualTo((column,), datetime() as time) | EqualNullSafe(
                (column,), datetime() as time
            ) if column == PUBLISH_TIME:
                return self.narrowed(GreaterThan((column,), time)).narrowed(
                    LessThan((column,), time)
                )
            case GreaterThan((column,), datetime() as time) | GreaterThanOrEqual(
                (column,), datetime() as time
            ) if column == PUBLISH_TIME:
                return self._from(time)
            case LessThan((column,), datetime() as time) | LessThanOrEqual(
                (column,), datetime() as time
            ) if column == PUBLISH_TIME:
                return self._until(time)
            case _:
                return self

    def wants(self, topic: str) -> bool:
        """May rows of the topic match?"""
        return self.topics is None or topic in self.topics

    def _within(self, topics: frozenset[str]) -> Pruning:
        return replace(self, topics=topics if self.topics is None else self.topics & topics)

    def _of_keys(self, keys: frozenset[bytes | None]) -> Pruning:
        return replace(self, keys=keys if self.keys is None else self.keys & keys)

    def _from(self, time: datetime) -> Pruning:
        time_ms = _milliseconds(time) - CLOCK_SKEW_MS
        return replace(self, from_ms=max(time_ms, self.from_ms or 0))

    def _until(self, time: datetime) -> Pruning:
        time_ms = _milliseconds(time) + 1 + CLOCK_SKEW_MS
        return replace(
            self, until_ms=time_ms if self.until_ms is None else min(time_ms, self.until_ms)
        )


def _milliseconds(time: datetime) -> int:
    """Spark's literals come in UTC, with or without saying so."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
