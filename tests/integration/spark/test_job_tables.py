"""Proves what jobs make of rows: windows, snapshots of keys, hours of an archive."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from tests.integration.spark.rows import NOON, Row, frame

from pyspark_geminga.jobs.archive import merge, with_hours
from pyspark_geminga.jobs.compact import last_of_keys
from pyspark_geminga.jobs.windowed_stats import as_messages, in_windows


@pytest.mark.full
def test_the_last_message_of_a_key_is_that_of_the_log_not_of_the_clock(spark: SparkSession) -> None:
    rows = [Row(b"old", b"k", place=(9, 1, -1), published_s=9)]
    # Ids do not sort as their bytes do: 300 takes two of them.
    rows += [Row(b"%d" % n, b"k", place=(300, 0, n), published_s=5) for n in (0, 2, 11, 1)]
    kept = last_of_keys(frame(spark, rows)).collect()
    assert [(bytes(row.value), row["__messageProperties"]) for row in kept] == [
        (b"11", {"row": "3"})
    ]


def test_a_message_without_payload_deletes_its_key(spark: SparkSession) -> None:
    rows = [
        Row(b"1", b"deleted", place=(1, 1, -1)),
        Row(b"", b"deleted", place=(1, 2, -1)),
        Row(b"", b"back", place=(1, 3, -1)),
        Row(b"2", b"back", place=(1, 4, -1)),
        Row(b"without a key", None, place=(1, 5, -1)),
    ]
    kept = last_of_keys(frame(spark, rows))
    assert kept.columns == frame(spark, rows).columns
    assert [bytes(row.value) for row in kept.collect()] == [b"2"]


def test_with_columns_a_key_is_deleted_where_all_are_null(spark: SparkSession) -> None:
    rows = [Row(b"", b"a", place=(1, n, -1)) for n in range(2)] + [Row(b"", b"b", place=(1, 9, -1))]
    columns = "if(__key = cast('b' as binary), 0, null) as number", "cast(null as string) as text"
    table = frame(spark, rows).selectExpr(*columns, *frame(spark, rows).columns[1:])
    assert [bytes(row["__key"]) for row in last_of_keys(table).collect()] == [b"b"]


@pytest.mark.parametrize(
    "columns", [["value as `the.text`"], ["value as `the.text`", "1 as `a.b`"]]
)
def test_a_column_of_the_payload_may_have_a_dot_in_its_name(
    spark: SparkSession, columns: list[str]
) -> None:
    table = frame(spark, [Row(b"old", b"k"), Row(b"new", b"k", place=(1, 2, -1))])
    kept = last_of_keys(table.selectExpr(*columns, *table.columns[1:]))
    assert [bytes(row["the.text"]) for row in kept.collect()] == [b"new"]


def test_where_a_key_is_in_several_topics_the_last_published_counts(spark: SparkSession) -> None:
    rows = [
        Row(b"first", b"k", "t-partition-0", (9, 9, -1), published_s=1),
        Row(b"second", b"k", "t-partition-1", (1, 1, -1), published_s=2),
    ]
    assert [bytes(row.value) for row in last_of_keys(frame(spark, rows)).collect()] == [b"second"]


def test_windows_are_those_of_event_times(spark: SparkSession) -> None:
    rows = [
        Row(b"12", b"k", published_s=70, event_s=59),
        Row(b"3456", b"l", published_s=61, event_s=0),
        Row(b"7", b"k", published_s=60),
    ]
    table = frame(spark, rows)
    first, second = in_windows(table, "1 minute", None, "topic").sort("start").collect()
    assert first.asDict() == {
        "start": NOON.replace(tzinfo=None),
        "topic": "t",
        "messages": 2,
        "bytes": 6,
        "end": (NOON + timedelta(minutes=1)).replace(tzinfo=None),
        "bytes_max": 4,
        "delay_p50_ms": 11_000,
        "delay_p95_ms": 61_000,
        "delay_p99_ms": 61_000,
        "delay_max_ms": 61_000,
    }
    assert (second.messages, second.bytes, second.delay_p50_ms) == (1, 1, None)
    by_key = in_windows(table, "1 minute", None, "key").sort("start", "key").collect()
    assert [(row.key, row.messages) for row in by_key] == [("k", 1), ("l", 1), ("k", 1)]


def test_windows_become_messages_of_json(spark: SparkSession) -> None:
    counted = in_windows(frame(spark, [Row(b"x", b"k")]), "1 minute", None, "key")
    (message,) = as_messages(counted).collect()
    assert message.value == (
        '{"start":"2026-11-22T12:00:00.000Z","end":"2026-11-22T12:01:00.000Z","key":"k",'
        '"messages":1,"bytes":1,"bytes_max":1}'
    )
    assert message["__key"] == "k"


def by_hour(table: DataFrame) -> list[SparkRow]:
    return table.groupBy("dt", "hour").count().sort("dt", "hour").collect()


@pytest.mark.full
def test_hours_that_are_over_are_merged_once_and_again_when_they_grow(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive, target = str(tmp_path / "archive"), str(tmp_path / "merged")
    assert merge(spark, archive, target, 0) == 0
    in_ten_years = timedelta(days=3650).total_seconds()
    rows = [Row(b"%d" % n, published_s=n * 60) for n in range(90)]
    rows.append(Row(b"to come", published_s=in_ten_years))
    stored = with_hours(frame(spark, rows)).repartition(4)
    stored.write.partitionBy("dt", "hour").parquet(archive)
    assert merge(spark, archive, target, 0) == 2
    merged = spark.read.parquet(target)
    assert [(row.dt, row.hour, row["count"]) for row in by_hour(merged)] == [
        (date(2026, 11, 22), 12, 60),
        (date(2026, 11, 22), 13, 30),
    ]
    assert len(list((tmp_path / "merged").rglob("*.parquet"))) == 2
    assert merge(spark, archive, target, 0) == 0
    late = with_hours(frame(spark, [Row(b"late", published_s=3601)]))
    late.write.mode("append").partitionBy("dt", "hour").parquet(archive)
    assert merge(spark, archive, target, 0) == 1
    assert [row["count"] for row in by_hour(spark.read.parquet(target))] == [60, 31]
