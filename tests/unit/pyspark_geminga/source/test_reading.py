"""A task fails for entries that were deleted, and for no others that are missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from geminga import LogPosition
from pyspark_geminga.errors import DataLost
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.source import reading
from pyspark_geminga.source.decisions.options import SourceOptions
from pyspark_geminga.source.reading import Part, read_part
from pyspark_geminga.source.row_schema import RowSchema

TOPIC = "persistent://public/default/orders"
PLANNED = LogLayout((Ledger(3, 10, 10), Ledger(5, 4, 4)), LogPosition(5, 4))
ROWS = RowSchema(None, StructType([StructField("value", BinaryType())]))
START, END = LogPosition(3, 8), LogPosition(5, 2)


class FakeBatches:
    """One record batch that began with ``first_position`` and ended before ``next_position``."""

    schema = pa.schema([("value", pa.binary())])

    def __init__(self, first: LogPosition | None, behind: LogPosition) -> None:
        self.first_position = first
        self.next_position = behind
        self.is_closed = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self.first_position is not None:
            yield pa.record_batch([[b"x"]], schema=self.schema)

    async def aclose(self) -> None:
        self.is_closed = True


class FakeLoop:
    """Runs what has no need of an event loop."""

    client = None

    def run(self, work: Any) -> Any:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("it waits")

    def iterate(self, batches: FakeBatches) -> Iterator[pa.RecordBatch]:
        return iter(batches)


class Reading:
    """Reads a part that was planned as ``PLANNED``, where the log looks different now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: LogLayout | None = PLANNED
        self.is_asked = self.is_closed = False
        self.has_rest = self.holds_start = True
        monkeypatch.setattr(reading, "task_client", lambda _: FakeLoop())
        monkeypatch.setattr(reading, "AdminClient", lambda _: self)
        monkeypatch.setattr(reading, "patiently", lambda ask, _: ask())
        self._monkeypatch = monkeypatch

    async def layouts(self, topic: str, partitions: int) -> dict[str, LogLayout | None]:
        assert (topic, partitions) == (TOPIC, 0)
        self.is_asked = True
        return {topic: self.now}

    def close(self) -> None:
        self.is_closed = True

    def read(
        self, first: LogPosition | None, behind: LogPosition = END, **options: str
    ) -> list[pa.RecordBatch]:
        batches = FakeBatches(first, behind)
        self._monkeypatch.setattr(reading, "read_batches", lambda *_, **__: batches)
        given = {"service.url": "pulsar://x", "topic": "orders", **options}
        if self.has_rest:
            given["admin.url"] = "http://x"
        part = Part(TOPIC, START, END, self.has_rest, self.holds_start)
        try:
            return list(read_part(part, SourceOptions.of(given, is_streaming=False), ROWS))
        finally:
            assert batches.is_closed
            assert self.is_closed == self.is_asked


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


def test_a_part_with_both_ends_asks_the_brokers_nothing(task: Reading) -> None:
    assert len(task.read(START)) == 1
    assert not task.is_asked


def test_entries_that_no_reader_gets_are_no_loss(task: Reading) -> None:
    assert len(task.read(LogPosition(5, 0))) == 1  # markers at the end of ledger 3
    assert task.is_asked
    assert task.read(None, START) == []


TRIMMED = LogLayout((Ledger(5, 4, 4),), LogPosition(5, 4))
MADE_AGAIN = LogLayout((Ledger(9, 1, 1),), LogPosition(9, 1))
CUT = LogLayout((Ledger(3, 10, 10), Ledger(5, 1, 1)), LogPosition(5, 1))


@pytest.mark.parametrize(
    ("now", "first", "behind"),
    [
        (TRIMMED, LogPosition(5, 0), END),
        (MADE_AGAIN, LogPosition(9, 0), LogPosition(9, 1)),
        (CUT, START, LogPosition(5, 1)),
        (None, None, START),
    ],
)
def test_entries_that_were_deleted_after_planning_fail_the_task(
    task: Reading, now: LogLayout | None, first: LogPosition | None, behind: LogPosition
) -> None:
    task.now = now
    with pytest.raises(DataLost, match="failOnDataLoss=false goes on"):
        task.read(first, behind)
    assert len(task.read(first, behind, failOnDataLoss="false")) == (first is not None)


def test_without_a_rest_side_an_entry_that_the_planner_saw_must_come(task: Reading) -> None:
    task.has_rest = False
    with pytest.raises(DataLost, match=r"the topic begins at \(5, 0, -1\)"):
        task.read(LogPosition(5, 0))
    with pytest.raises(DataLost):
        task.read(None, START)
    assert len(task.read(LogPosition(5, 0), failOnDataLoss="false")) == 1
    assert len(task.read(START, LogPosition(5, 1))) == 1  # of the end nothing is known
    task.holds_start = False
    assert len(task.read(LogPosition(5, 0))) == 1


def test_rows_without_a_key_that_is_wanted_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = pa.record_batch({"__key": pa.array([b"a", b"b", None, b"a"], pa.binary())})

    class Batches(FakeBatches):
        schema = stored.schema

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield stored

    monkeypatch.setattr(reading, "task_client", lambda _: FakeLoop())
    monkeypatch.setattr(reading, "read_batches", lambda *_, **__: Batches(START, END))
    options = SourceOptions.of({"service.url": "pulsar://x", "topic": "a"}, is_streaming=False)
    rows = RowSchema(None, StructType([StructField("__key", BinaryType())]))

    def read(*keys: bytes | None) -> list[list[bytes | None]]:
        found = read_part(Part(TOPIC, START, END), options, rows, frozenset(keys))
        return [batch.column(0).to_pylist() for batch in found]

    assert read(b"a", b"x") == [[b"a", b"a"]]
    assert read(None) == [[None]]
    assert read(b"x") == []


def test_the_files_of_private_keys_are_read_by_the_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[dict[str, Any]] = []

    def batches(*_: object, **named: Any) -> FakeBatches:
        given.append(named)
        return FakeBatches(START, END)

    monkeypatch.setattr(reading, "task_client", lambda _: FakeLoop())
    monkeypatch.setattr(reading, "read_batches", batches)
    (tmp_path / "key.pem").write_bytes(b"PEM")
    for keys in (json.dumps({"mine": str(tmp_path / "key.pem")}), "{}"):
        options = {"service.url": "pulsar://x", "topic": "a", "privateKeys": keys}
        read = SourceOptions.of(options, is_streaming=False)
        assert len(list(read_part(Part(TOPIC, START, END), read, ROWS))) == 1
    assert given[0]["decryption"].private_key("mine", {}) == b"PEM"
    assert given[1]["decryption"] is None


def test_the_part_that_spark_makes_where_there_are_none_has_no_rows() -> None:
    from pyspark.sql.datasource import InputPartition

    options = SourceOptions.of({"service.url": "pulsar://x", "topic": "a"}, is_streaming=False)
    assert list(read_part(InputPartition(None), options, ROWS)) == []
