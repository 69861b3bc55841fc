"""What Spark calls of a stream, in the words of Spark."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

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

from geminga import LogPosition, RawEntry
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from pyspark_geminga._pool import PlannerLoop
from pyspark_geminga.errors import ConnectorError
from pyspark_geminga.source.decisions.admission import CountedEntry
from pyspark_geminga.source.decisions.offsets import Place, SourceOffset
from pyspark_geminga.source.decisions.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema
from pyspark_geminga.source.stream_planner import Limit
from pyspark_geminga.source.stream_reader import Cluster, StreamReader

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


class FakeReader(AbstractAsyncContextManager["FakeReader", None]):
    """Entries of one topic from ``start`` on, of three messages each."""

    def __init__(self, client: FakeClient, start: LogPosition, end: LogPosition) -> None:
        self._client = client
        self._left = list(range(start.entry_id, end.entry_id))

    async def read(self, max_messages: int) -> list[RawEntry]:
        assert max_messages <= self._client.messages_max
        metadata = MessageMetadata(num_messages_in_batch=3)
        entries = [RawEntry(1, entry, b"", 0, metadata) for entry in self._left[:2]]
        del self._left[:2]
        return entries

    async def __aexit__(self, *_: object) -> None:
        self._client.open_readers -= 1


class FakeClient:
    """Opens readers, and notes where they began."""

    messages_max = 10

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.open_readers = 0

    async def entries(
        self, _: str, start: LogPosition, end: LogPosition, **options: float
    ) -> FakeReader:
        assert options["read_ahead_messages"] <= self.messages_max
        self.begun.append(start.entry_id)
        self.open_readers += 1
        return FakeReader(self, start, end)


class FakeLoop:
    """Does all work at once."""

    def __init__(self) -> None:
        self.client = FakeClient()

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(asyncio.run(work))
        return done


@pytest.mark.real_loop
def test_entries_are_counted_one_piece_ahead_and_no_reader_stays_behind_it() -> None:
    loop = FakeLoop()
    cluster = Cluster(cast("PlannerLoop", loop), reader_of().options)
    entries = cluster.entries(A, LogPosition(1, 0), LogPosition(1, 7), rows_ahead=10)
    assert next(entries) == CountedEntry(3, LogPosition(1, 1))
    assert (loop.client.begun, loop.client.open_readers) == ([0, 4], 0)
    assert [entry.behind.entry_id for entry in entries] == [2, 3, 4, 5, 6, 7]
    assert (loop.client.begun, loop.client.open_readers) == ([0, 4], 0)
