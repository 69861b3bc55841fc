"""Every count has a metric, and those that BookKeeper's client has too have its names."""

from __future__ import annotations

from dataclasses import fields

from geminga_ledger.counters import LedgerCounters


def test_every_count_is_in_one_metric() -> None:
    names = [each.name for each in fields(LedgerCounters)]
    counters = LedgerCounters(*range(1, len(names) + 1))
    assert sorted(counters.by_metric().values()) == sorted(range(1, len(names) + 1))


def test_the_names_of_bookkeepers_client_are_kept() -> None:
    metrics = LedgerCounters(ensemble_changes=3, reads_speculative=5).by_metric()
    assert metrics["bookkeeper_client_NUM_ENSEMBLE_CHANGE"] == 3
    assert metrics["bookkeeper_client_SPECULATIVE_READ_COUNT"] == 5
