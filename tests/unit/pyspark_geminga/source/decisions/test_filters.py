"""Filters leave out only what cannot match."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_geminga.source.decisions.filters import CLOCK_SKEW_MS, Pruning

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
TIME = ("__publishTime",)
TOPIC = ("__topic",)
KEY = ("__key",)


@pytest.mark.parametrize(
    ("filters", "pruning"),
    [
        ([], Pruning()),
        ([EqualTo(TOPIC, "a")], Pruning(frozenset("a"))),
        ([In(TOPIC, ("a", "b")), In(TOPIC, ("b", "c"))], Pruning(frozenset("b"))),
        ([GreaterThan(TIME, NOON)], Pruning(from_ms=NOON_MS - CLOCK_SKEW_MS)),
        (
            [GreaterThanOrEqual(TIME, NOON.replace(tzinfo=None))],
            Pruning(None, NOON_MS - CLOCK_SKEW_MS),
        ),
        ([LessThan(TIME, NOON)], Pruning(until_ms=NOON_MS + 1 + CLOCK_SKEW_MS)),
        ([LessThanOrEqual(TIME, NOON)], Pruning(until_ms=NOON_MS + 1 + CLOCK_SKEW_MS)),
        (
            [EqualTo(TIME, NOON)],
            Pruning(None, NOON_MS - CLOCK_SKEW_MS, NOON_MS + 1 + CLOCK_SKEW_MS),
        ),
        (
            [GreaterThan(TIME, NOON), GreaterThan(TIME, NOON.replace(hour=13))],
            Pruning(from_ms=NOON_MS + 3_600_000 - CLOCK_SKEW_MS),
        ),
        ([EqualTo(KEY, b"a")], Pruning(keys=frozenset((b"a",)))),
        (
            [In(KEY, (b"a", b"b")), EqualNullSafe(KEY, b"b")],
            Pruning(keys=frozenset((b"b",))),
        ),
        ([EqualNullSafe(KEY, None)], Pruning(keys=frozenset((None,)))),
        ([EqualTo(KEY, None)], Pruning(keys=frozenset())),
        ([In(KEY, (b"a", None))], Pruning(keys=frozenset((b"a",)))),
        ([IsNull(KEY)], Pruning(keys=frozenset((None,)))),
        ([EqualTo(("value",), b"x"), IsNotNull(TIME), Not(EqualTo(TOPIC, "a"))], Pruning()),
        ([EqualTo(("s", "__topic"), "a"), EqualTo(TIME, None)], Pruning()),
    ],
)
def test_what_is_left_out(filters: list[Filter], pruning: Pruning) -> None:
    assert Pruning.of(filters) == pruning


def test_topics_that_are_wanted() -> None:
    assert Pruning().wants("a")
    assert Pruning(frozenset("a")).wants("a")
    assert not Pruning(frozenset("a")).wants("b")
