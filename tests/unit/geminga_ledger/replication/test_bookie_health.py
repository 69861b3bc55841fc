"""A bookie that failed is in doubt for a while; one that fails often goes into quarantine."""

from __future__ import annotations

import math

import pytest

from geminga_ledger.replication.bookie_health import BookieHealth


@pytest.fixture
def health() -> BookieHealth:
    return BookieHealth(doubt_s=30, errors_max=3, interval_s=60, quarantine_s=1800)


def test_nothing_is_held_against_an_unknown_bookie(health: BookieHealth) -> None:
    assert not health.is_doubtful("b", 0.0)
    assert not health.is_quarantined("b", 0.0)


def test_a_failure_is_remembered_for_a_while(health: BookieHealth) -> None:
    health.failed("b", 100.0)
    assert health.is_doubtful("b", 129.9)
    assert not health.is_doubtful("b", 130.0)
    assert not health.is_doubtful("other", 101.0)
    assert health.doubted_at_s("b", 129.9) == 100.0
    assert health.doubted_at_s("b", 130.0) == health.doubted_at_s("other", 101.0) == -math.inf


def test_slowness_never_leads_to_quarantine(health: BookieHealth) -> None:
    for _ in range(10):
        health.doubt("b", 100.0)
    assert health.is_doubtful("b", 100.0)
    assert not health.is_quarantined("b", 100.0)


def test_enough_failures_in_the_interval_are_quarantine(health: BookieHealth) -> None:
    assert [health.failed("b", now_s) for now_s in (0.0, 30.0, 60.0)] == [False, False, True]
    assert health.is_quarantined("b", 60.0)
    assert health.is_quarantined("b", 1859.9)
    assert not health.is_quarantined("b", 1860.0)


def test_failures_far_apart_are_not(health: BookieHealth) -> None:
    assert not any(health.failed("b", 31.0 * number) for number in range(10))


def test_quarantine_is_said_once(health: BookieHealth) -> None:
    assert [health.failed("b", 1.0) for _ in range(6)] == [False, False, True] + [False] * 3
