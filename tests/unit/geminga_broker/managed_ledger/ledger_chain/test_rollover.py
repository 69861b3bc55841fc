"""Proves when a ledger is followed by another: every combination of full, young and old."""

from __future__ import annotations

from itertools import product

import pytest

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.ledger_chain.rollover import is_due

LIMITS = ManagedLedgerConfig(
    ledger_entries_max=10, ledger_bytes_max=1000, ledger_age_min_s=60, ledger_age_max_s=3600
)


def due(entries: int, size_bytes: int, age_s: float) -> bool:
    return is_due(LIMITS, LedgerSpan(7, entries, size_bytes), age_s, 3600)


@pytest.mark.parametrize(
    ("entries", "size_bytes", "age_s"),
    list(
        product((0, 1, 9, 10, 11), (0, 999, 1000, 1001), (0.0, 59.9, 60.0, 3599.9, 3600.0, 7200.0))
    ),
)
def test_a_ledger_with_entries_is_due_when_full_and_old_enough_or_very_old(
    entries: int, size_bytes: int, age_s: float
) -> None:
    is_full = entries >= 10 or size_bytes >= 1000
    expected = entries > 0 and ((is_full and age_s >= 60) or age_s >= 3600)
    assert due(entries, size_bytes, age_s) == expected


def test_without_a_least_age_a_full_ledger_is_due_at_once() -> None:
    limits = ManagedLedgerConfig(ledger_entries_max=1, ledger_age_min_s=0)
    assert is_due(limits, LedgerSpan(7, 1, 1), 0, 3600)


def test_the_defaults_are_upstreams() -> None:
    limits = ManagedLedgerConfig()
    assert limits.ledger_entries_max == 50_000
    assert limits.ledger_bytes_max == 2048 * 1024 * 1024
    assert (limits.ledger_age_min_s, limits.ledger_age_max_s) == (10 * 60, 240 * 60)
