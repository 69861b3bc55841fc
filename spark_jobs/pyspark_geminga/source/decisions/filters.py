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

# Producers set publish times by their own clocks, and brokers look a time up as if times only grew
# along the log: so much more is read at both ends than the filters ask for.
CLOCK_SKEW_MS = 60_000


# What a filter spares, and where: the planner leaves topics and times out, so that they are not
# read at all; tasks leave out rows by their keys, after decoding and before they go to Spark.
@dataclass(frozen=True, slots=True)
class Pruning:
    """Which messages may match; ``None`` in a field means that it excludes none."""

    topics: frozenset[str] | None = None
    # Publish times in milliseconds since 1970, half-open.
    from_ms: int | None = None
    until_ms: int | None = None
    # Keys of messages; ``None`` in the set is for messages without a key. Brokers do not know keys:
    # tasks drop the rows with other ones.
    keys: frozenset[bytes | None] | None = None

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> Pruning:
        """What rows that pass all of ``filters`` have in common."""
        # Everything may match until a filter says otherwise: the order of filters does not matter.
        pruning = cls()
        for each in filters:
            pruning = pruning.narrowed(each)
        return pruning

    def narrowed(self, each: Filter) -> Pruning:
        """The pruning for one more filter; unchanged if the filter is not about topics, publish
        times or keys."""
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
            # A topic that does not exist is no error here: nothing matches.
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
                # Rounded down, the end below up: a message on the edge is read, and Spark decides
                # about it.
                time_ms = _milliseconds(time) - CLOCK_SKEW_MS
                return replace(self, from_ms=max(time_ms, self.from_ms or 0))
            case LessThan((column,), datetime() as time) | LessThanOrEqual(
                (column,), datetime() as time
            ) if column == PUBLISH_TIME:
                # Spark compares microseconds: the millisecond of ``time`` itself may match.
                time_ms = _milliseconds(time) + 1 + CLOCK_SKEW_MS
                return replace(
                    self, until_ms=time_ms if self.until_ms is None else min(time_ms, self.until_ms)
                )
            # Also a comparison of two columns, or of a part of one: reading too much is never
            # wrong.
            case _:
                return self

    def wants(self, topic: str) -> bool:
        """May rows of the topic match?"""
        return self.topics is None or topic in self.topics

    def _within(self, topics: frozenset[str]) -> Pruning:
        # All filters hold together, so that each one only narrows.
        return replace(self, topics=topics if self.topics is None else self.topics & topics)

    def _of_keys(self, keys: frozenset[bytes | None]) -> Pruning:
        return replace(self, keys=keys if self.keys is None else self.keys & keys)


def _milliseconds(time: datetime) -> int:
    """Milliseconds since 1970. Spark's literals are in UTC, with a time zone or without."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
