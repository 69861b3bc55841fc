"""The parts of a batch read are what lies between its ends, and nothing that filters leave out."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo
from pyspark.sql.types import StructType

from geminga import LOG_START, LogPosition
from pyspark_geminga.errors import DataLost, InvalidOption
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.source.batch_reader import BatchReader, FilteringBatchReader, plan_batch
from pyspark_geminga.source.broker_view import Begin, BrokerView, Snapshot
from pyspark_geminga.source.decisions.admission import CountedEntry
from pyspark_geminga.source.decisions.filters import Pruning
from pyspark_geminga.source.decisions.options import ByTopic, Edge, SourceOptions
from pyspark_geminga.source.reading import Part
from pyspark_geminga.source.row_schema import RowSchema

A, B, EMPTY = (f"persistent://public/default/{name}" for name in ("a", "b", "empty"))
LAYOUTS = {
    A: LogLayout((Ledger(3, 10, 1000), Ledger(5, 10, 1000)), LogPosition(5, 10)),
    B: LogLayout((Ledger(7, 4, 400),), LogPosition(7, 4)),
    EMPTY: LogLayout((Ledger(9, 0, 0),), LogPosition(9, 0)),
}
EVERYTHING = Pruning()


class FakeView:
    """Three topics; in each an entry was published every second from the first on."""

    def __init__(self, *, has_rest: bool) -> None:
        self._has_rest = has_rest

    async def snapshot(self) -> Snapshot:
        if self._has_rest:
            return Snapshot(LAYOUTS, 0.0)
        return Snapshot({topic: LogLayout((), each.end) for topic, each in LAYOUTS.items()}, 0.0)

    async def begin(self, topic: str, start: LogPosition, end: LogPosition) -> Begin:
        assert start < end
        first = LAYOUTS[topic].settled(max(start, LAYOUTS[topic].first))
        return Begin(first, is_lost=LAYOUTS[topic].is_lost(start))

    async def resolve(
        self, wanted: ByTopic, default: Edge, topic: str, layout: LogLayout
    ) -> LogPosition:
        place = wanted.get(topic, wanted.get("", default))
        if isinstance(place, LogPosition):
            return place
        return layout.end if place == "latest" else layout.first

    async def counted(
        self, topic: str, start: LogPosition, end: LogPosition, rows_max: int
    ) -> list[CountedEntry]:
        """Entries of two rows each, three at a time."""
        assert rows_max > 0
        left = [
            CountedEntry(2, LogPosition(segment.ledger_id, segment.first_entry + number + 1))
            for segment in LAYOUTS[topic].between(start, end)
            for number in range(segment.entries)
        ]
        return left[:3]

    async def position_at(self, topic: str, time_ms: int) -> LogPosition:
        return LogPosition(LAYOUTS[topic].first.ledger_id, time_ms // 1000)


async def plan(
    options: dict[str, str] | None = None,
    pruning: Pruning = EVERYTHING,
    *,
    has_rest: bool = True,
) -> list[Part]:
    given = {"service.url": "pulsar://x", "topics": "a,b,empty", **(options or {})}
    read = SourceOptions.of(given, is_streaming=False)
    parts = await plan_batch(cast(BrokerView, FakeView(has_rest=has_rest)), read, pruning)
    assert all(isinstance(part, Part) for part in parts)
    return cast(list[Part], parts)


def ranges(parts: list[Part]) -> list[tuple[str, LogPosition, LogPosition]]:
    return [(part.topic, part.start, part.end) for part in parts]


async def test_each_topic_that_holds_something_is_a_part() -> None:
    assert ranges(await plan()) == [
        (A, LogPosition(3, 0), LogPosition(5, 10)),
        (B, LogPosition(7, 0), LogPosition(7, 4)),
    ]


async def test_large_topics_are_several_parts() -> None:
    parts = await plan({"targetSplitBytes": "700"})
    assert ranges(parts) == [
        (A, LogPosition(3, 0), LogPosition(3, 6)),
        (A, LogPosition(3, 6), LogPosition(5, 3)),
        (A, LogPosition(5, 3), LogPosition(5, 10)),
        (B, LogPosition(7, 0), LogPosition(7, 4)),
    ]
    assert all(part.holds_start for part in parts)


@pytest.mark.parametrize("has_rest", [True, False])
async def test_tasks_have_no_more_records_than_the_option_says(has_rest: bool) -> None:  # noqa: FBT001
    options = {
        "topics": "a,b",
        "maxRecordsPerPartition": "9",
        "startingOffsets": '{"a": [3, 3], "b": [7, 0]}',
        "endingOffsets": '{"a": [5, 3], "b": [7, 4]}',
    }
    pruning = Pruning(frozenset((A, B)))
    assert ranges(await plan(options, pruning, has_rest=has_rest)) == [
        (A, LogPosition(3, 3), LogPosition(3, 7)),
        (A, LogPosition(3, 7), LogPosition(5, 1)),
        (A, LogPosition(5, 1), LogPosition(5, 3)),
        (B, LogPosition(7, 0), LogPosition(7, 4)),
    ]
    more = options | {"maxPartitions": "3"}
    with pytest.raises(InvalidOption, match="more than maxPartitions=3"):
        await plan(more, pruning, has_rest=has_rest)


async def test_the_ends_are_those_of_the_options() -> None:
    offsets = {"startingOffsets": '{"a": [5, 2]}', "endingOffsets": '{"a": [5, 4], "b": [7, 0]}'}
    assert ranges(await plan(offsets)) == [(A, LogPosition(5, 2), LogPosition(5, 4))]


async def test_filters_leave_topics_and_times_out() -> None:
    assert ranges(await plan(pruning=Pruning(frozenset((B,)), 1000, 3000))) == [
        (B, LogPosition(7, 1), LogPosition(7, 3))
    ]


async def test_a_start_that_was_deleted_fails_the_read_or_is_passed() -> None:
    offsets = {"startingOffsets": '{"a": [2, 5]}', "endingOffsets": '{"a": [3, 1], "b": [7, 0]}'}
    with pytest.raises(DataLost, match="the topic begins at"):
        await plan(offsets)
    assert ranges(await plan({**offsets, "failOnDataLoss": "false"})) == [
        (A, LogPosition(3, 0), LogPosition(3, 1))
    ]


async def test_without_a_rest_side_a_ledger_that_is_gone_counts_as_deleted() -> None:
    ends = {"topics": "a", "endingOffsets": '{"a": [5, 1]}'}
    pruning = Pruning(frozenset((A,)))
    offsets = {"startingOffsets": '{"a": [2, 5]}', **ends}
    with pytest.raises(DataLost, match="the topic begins at"):
        await plan(offsets, pruning, has_rest=False)
    parts = await plan({**offsets, "failOnDataLoss": "false"}, pruning, has_rest=False)
    assert ranges(parts) == [(A, LogPosition(3, 0), LogPosition(5, 1))]
    assert parts[0].holds_start
    parts = await plan({"startingOffsets": '{"a": [3, 10]}', **ends}, pruning, has_rest=False)
    assert ranges(parts) == [(A, LogPosition(5, 0), LogPosition(5, 1))]


async def test_the_beginning_of_a_log_is_never_lost() -> None:
    offsets = {"startingOffsets": '{"b": [-1, -1]}', "topics": "b"}
    assert (await plan(offsets, Pruning(frozenset((B,)))))[0].start == LOG_START


def test_only_a_reader_that_is_asked_to_takes_filters() -> None:
    # Spark looks at the method, and fails such reads unless its own setting allows them.
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
    options = SourceOptions.of({"service.url": "pulsar://x", "topic": "a"}, is_streaming=False)
    reader = FilteringBatchReader(options, RowSchema(None, StructType()))
    filters = [EqualTo(("__topic",), A), EqualTo(("x",), 1)]
    assert list(reader.pushFilters(list(filters))) == filters  # Spark applies them again
