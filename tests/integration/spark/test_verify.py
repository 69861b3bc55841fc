"""Proves that ``verify`` finds what is missing, surplus, repeated and out of order, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.rows import Row, frame

from pyspark_geminga.jobs.verify import (
    Findings,
    SequenceFindings,
    check_sequence,
    compare,
    described,
)

SAME = ["value", "__key"]


def rows_of(numbers: Sequence[int], topic: str = "t", keys: int = 2) -> list[Row]:
    return [
        Row(b"%d" % number, b"k%d" % (number % keys), topic, (1, entry, -1))
        for entry, number in enumerate(numbers)
    ]


def judge(spark: SparkSession, found: list[Row], expected: list[Row] | None) -> Findings:
    wanted = None if expected is None else frame(spark, expected)
    return compare(frame(spark, found), wanted, same_by=SAME)


def test_the_same_messages_elsewhere_are_right(spark: SparkSession) -> None:
    # Keys may overtake each other; publish times, topics and ids are others.
    expected, found = rows_of(range(20)), rows_of([*range(0, 20, 2), *range(1, 20, 2)], "other")
    findings = judge(spark, [replace(row, published_s=9) for row in found], expected)
    assert findings == Findings(
        rows=20, repeated=0, expected_rows=20, missing=0, surplus=0, out_of_order=0
    )
    assert findings.is_right


def test_what_is_missing_and_what_is_too_much_is_named(spark: SparkSession) -> None:
    findings = judge(spark, rows_of([0, 1, 1, 2, 4]), rows_of(range(4)))
    assert (findings.rows, findings.repeated, findings.expected_rows) == (5, 1, 4)
    assert (findings.missing, findings.surplus, findings.out_of_order) == (1, 2, 0)
    assert not findings.is_right
    assert findings.examples == [
        {"problem": "missing", "topic": "t", "message": "1:3:-1", "key": "k1"},
        {"problem": "surplus", "topic": "t", "message": "1:2:-1", "key": "k1"},
        {"problem": "surplus", "topic": "t", "message": "1:4:-1", "key": "k0"},
    ]


@pytest.mark.full
def test_equal_messages_have_to_be_there_as_often(spark: SparkSession) -> None:
    assert judge(spark, rows_of([5, 5, 5]), rows_of([5, 5, 5])).is_right
    assert judge(spark, rows_of([5, 5]), rows_of([5, 5, 5])).missing == 1


@pytest.mark.full
def test_messages_of_a_key_that_changed_places_are_found(spark: SparkSession) -> None:
    findings = judge(spark, rows_of([0, 4, 2, 1, 3]), rows_of(range(5)))
    assert (findings.missing, findings.surplus, findings.out_of_order) == (0, 0, 1)
    assert [each["message"] for each in findings.examples] == ["1:1:-1"]
    # Of other partitions it is not known which came first.
    apart = [replace(row, topic=f"t{number}") for number, row in enumerate(rows_of([2, 0, 4]))]
    assert judge(spark, apart, rows_of([0, 2, 4])).is_right


@pytest.mark.full
def test_a_message_is_the_same_if_all_that_its_producer_said_is(spark: SparkSession) -> None:
    table = frame(spark, rows_of(range(3)))
    assert compare(table, table).is_right
    for column, value in (
        ("value", "cast('x' as binary)"),
        ("__key", "cast(null as binary)"),
        ("__eventTime", "timestamp '2026-01-01'"),
        ("__messageProperties", "map('a', 'b')"),
    ):
        changed = table.selectExpr(
            *(f"{value} as {name}" if name == column else name for name in table.columns)
        )
        findings = compare(changed, table)
        assert (findings.missing, findings.surplus) == (3, 3), column


def test_alone_a_topic_is_right_without_repeats(spark: SparkSession) -> None:
    assert judge(spark, rows_of(range(4)), None).is_right
    findings = judge(spark, rows_of([0, 1, 1]), None)
    assert not findings.is_right
    assert described({"rows": 3, "missing": None, "examples": findings.examples}) == (
        "rows: 3\nproblem repeated; topic t; message 1:2:-1; key k1"
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        (range(10), SequenceFindings(0, 0, 0)),
        ([0, 1, 2, 3, 6, 7], SequenceFindings(1 + 1, 0, 0)),
        ([0, 1, 2, 2, 3], SequenceFindings(0, 1, 0)),
        ([2, 1, 0, 3], SequenceFindings(0, 0, 1)),
        ([], SequenceFindings(0, 0, 0)),
    ],
)
def test_numbers_show_gaps_repeats_and_disorder(
    spark: SparkSession, numbers: Sequence[int], wrong: SequenceFindings
) -> None:
    # Each key has every other number.
    number = "cast(cast(value as string) as bigint) div 2"
    assert check_sequence(frame(spark, rows_of(numbers)), number) == wrong
