"""Proves which ledgers of a log go: by the slowest cursor, by age, by what would be left."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.ledger_chain.retention import (
    FOR_EVER,
    KEEP_NOTHING,
    Retention,
    trimmable_ledgers,
)
from geminga_broker.managed_ledger.positions import Position

# Closed at 10, 20, 30 ms with 100 bytes each, then the one that is written.
CHAIN = [
    LedgerSpan(3, 10, 100, 10),
    LedgerSpan(5, 10, 100, 20),
    LedgerSpan(6, 10, 100, 30),
    LedgerSpan(9, 10, 100, 0),
]


def ids(spans: list[LedgerSpan]) -> list[int]:
    return [span.ledger_id for span in spans]


def trimmed(
    retention: Retention, *, slowest: Position | None = None, now_ms: int = 100
) -> list[int]:
    return ids(trimmable_ledgers(CHAIN, slowest, retention, now_ms))


def passed(spans: list[LedgerSpan], slowest: Position | None = None) -> list[int]:
    """Without retention all goes that the slowest cursor has passed."""
    return ids(trimmable_ledgers(spans, slowest, KEEP_NOTHING, 100))


@pytest.mark.parametrize(
    ("slowest", "expected"),
    [
        (Position(-1, -1), []),
        (Position(3, -1), []),
        (Position(3, 8), []),
        (Position(3, 9), [3]),
        (Position(4, 5), [3]),
        (Position(5, 0), [3]),
        (Position(6, 9), [3, 5, 6]),
        (Position(9, -1), [3, 5, 6]),
        (Position(9, 9), [3, 5, 6]),
        (Position(99, 0), [3, 5, 6]),
        (None, [3, 5, 6]),
    ],
)
def test_a_ledger_is_passed_when_the_slowest_cursor_has_its_last_entry(
    slowest: Position | None, expected: list[int]
) -> None:
    assert passed(CHAIN, slowest) == expected


def test_the_last_ledger_stays_though_it_is_closed_and_passed() -> None:
    assert passed(CHAIN[:3]) == [3, 5]
    assert passed(CHAIN[:1]) == []
    assert passed([]) == []


def test_nothing_goes_beyond_a_ledger_that_is_still_being_closed() -> None:
    chain = [CHAIN[0], replace(CHAIN[1], closed_at_ms=0), *CHAIN[2:]]
    assert passed(chain) == [3]


def test_nothing_goes_beyond_a_ledger_in_other_storage() -> None:
    chain = [CHAIN[0], replace(CHAIN[1], is_offloaded=True), *CHAIN[2:]]
    assert passed(chain) == [3]


def test_an_empty_ledger_is_passed_with_the_gap_before_it() -> None:
    chain = [LedgerSpan(2, 0, 0, 5), *CHAIN]
    assert passed(chain, Position(2, -1)) == [2]


def test_without_retention_all_that_is_passed_goes() -> None:
    assert trimmed(KEEP_NOTHING) == [3, 5, 6]
    assert trimmed(KEEP_NOTHING, now_ms=30) == [3, 5, 6], "even what was closed just now"
    assert trimmed(KEEP_NOTHING, slowest=Position(5, 9)) == [3, 5]


@pytest.mark.parametrize(
    ("time_ms", "now_ms", "expected"),
    [(50, 60, []), (50, 61, [3]), (50, 80, [3, 5]), (50, 81, [3, 5, 6]), (FOR_EVER, 10**15, [])],
)
def test_by_time_alone_a_ledger_goes_when_it_is_older(
    time_ms: int, now_ms: int, expected: list[int]
) -> None:
    assert trimmed(Retention(time_ms, FOR_EVER), now_ms=now_ms) == expected


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, [3, 5, 6]),
        (100, [3, 5, 6]),
        (101, [3, 5]),
        (200, [3, 5]),
        (300, [3]),
        (301, []),
        (-1, []),
    ],
)
def test_by_size_alone_a_ledger_goes_while_enough_is_left(
    size_bytes: int, expected: list[int]
) -> None:
    assert trimmed(Retention(FOR_EVER, size_bytes)) == expected


def test_either_limit_lets_a_ledger_go() -> None:
    assert trimmed(Retention(1000, 200)) == [3, 5], "young, but too much"
    assert trimmed(Retention(75, 1000)) == [3, 5], "little, but old"


def test_keeping_for_ever_keeps_everything() -> None:
    assert trimmed(Retention(FOR_EVER, FOR_EVER), now_ms=10**15) == []


@pytest.mark.parametrize(("time_ms", "size_bytes"), list(product((0, 20, FOR_EVER), repeat=2)))
def test_retention_keeps_what_is_within_both_limits(time_ms: int, size_bytes: int) -> None:
    retention = Retention(time_ms, size_bytes)
    for age_ms, left_bytes in product((0, 19, 20, 21), repeat=2):
        within_time = time_ms == FOR_EVER or age_ms <= time_ms
        within_size = size_bytes == FOR_EVER or left_bytes < size_bytes
        assert retention.keeps(age_ms=age_ms, left_bytes=left_bytes) == (
            within_time and within_size
        )


SPANS = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=6)


@given(SPANS, st.none() | st.tuples(st.integers(-1, 7), st.integers(-1, 3)))
def test_what_goes_is_always_a_closed_front_without_an_unread_entry(
    shapes: list[tuple[int, bool, bool]], mark: tuple[int, int] | None
) -> None:
    spans = [
        LedgerSpan(number, entries, 10 * entries, int(is_closed), is_offloaded=is_offloaded)
        for number, (entries, is_closed, is_offloaded) in enumerate(shapes)
    ]
    slowest = None if mark is None else Position(*mark)
    gone = trimmable_ledgers(spans, slowest, KEEP_NOTHING, 100)
    assert gone == spans[: len(gone)]
    assert len(gone) < max(len(spans), 1)
    for span in gone:
        assert span.closed_at_ms
        assert not span.is_offloaded
        assert slowest is None or span.last <= slowest
