"""What Spark calls of a stream, in the words of Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from geminga import LogPosition
from pyspark_geminga.errors import ConnectorError
from pyspark_geminga.source.offsets import Place, SourceOffset
from pyspark_geminga.source.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema
from pyspark_geminga.source.stream_planner import Limit
from pyspark_geminga.source.stream_reader import StreamReader

A = "persistent://public/default/a"
NEXT = SourceOffset({A: Place(LogPosition(1, 5))})


def reader_of(**options: str) -> StreamReader:
    given = {"service.url": "pulsar://x", "admin.url": "http://x", "topic": "a", **options}
    return StreamReader(SourceOptions.of(given, is_streaming=True), RowSchema(None, StructType()))


class FakePlanner:
    """Plans ``planned``, and notes the limit that it was given."""

    def __init__(self, planned: SourceOffset | None) -> None:
        self.planned = planned
        self.limit: Limit | None = None

    def latest_offset(self, start: SourceOffset, limit: Limit) -> SourceOffset | None:
        del start
        self.limit = limit
        return self.planned


def planning(planned: SourceOffset | None) -> tuple[StreamReader, FakePlanner]:
    reader, planner = reader_of(), FakePlanner(planned)
    vars(reader)["_planner"] = planner
    return reader, planner


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxRowsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": str(2**40)}, ReadMaxBytes(2**40)),
    ],
)
def test_the_limit_is_that_of_the_options(options: dict[str, str], limit: ReadLimit) -> None:
    assert reader_of(**options).getDefaultReadLimit() == limit


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        (ReadAllAvailable(), Limit()),  # the trigger may want everything, whatever the options say
        (ReadMaxRows(7), Limit(rows=7)),
        (ReadMaxBytes(2**40), Limit(bytes=2**40)),
    ],
)
def test_the_planner_gets_the_limit_that_spark_gives(given: ReadLimit, limit: Limit) -> None:
    reader, planner = planning(NEXT)
    assert reader.latestOffset({"v": 1, "p": {}}, given) == NEXT.to_json()
    assert planner.limit == limit


def test_a_limit_of_files_is_refused() -> None:
    with pytest.raises(ConnectorError, match="knows no limit"):
        planning(NEXT)[0].latestOffset({"v": 1, "p": {}}, ReadMaxFiles(1))


def test_without_news_the_offset_is_the_start_itself() -> None:
    # Of whatever version it is: another text would be a batch without rows.
    start: dict[str, Any] = {A: [8, 7, 16, 5]}
    assert planning(None)[0].latestOffset(start, ReadAllAvailable()) is start


def test_an_empty_range_has_no_partitions() -> None:
    assert list(planning(None)[0].partitions(NEXT.to_json(), NEXT.to_json())) == []


def test_spark_may_use_trigger_available_now_and_pickle_the_reader() -> None:
    reader = reader_of()
    assert isinstance(reader, SupportsTriggerAvailableNow)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.getDefaultReadLimit() == reader.getDefaultReadLimit()
