"""Proves that counts are kept in properties that are found again, and that nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.records.topics.cursor import PositionRecord
from geminga_protocol.records.topics.redelivery_counts import (
    COUNT_MAX,
    CountedRun,
    properties_of_runs,
    runs_of_properties,
)

ids = st.integers(0, (1 << 63) - 1)


def run_of(ledger_id: int, first: int, more: int, count: int) -> CountedRun:
    return CountedRun(ledger_id, first, first + more, count)


runs = st.builds(
    run_of,
    ids,
    ids,
    st.integers(0, 1000),
    st.integers(1, COUNT_MAX),
)


def test_a_run_is_one_property() -> None:
    assert properties_of_runs([CountedRun(12, 3, 5, 2)]) == {"geminga.redelivered.12.3.5": 2}


@given(st.lists(runs, unique_by=lambda run: run[:3]))
def test_runs_are_found_again_in_the_record_of_a_position(kept: list[CountedRun]) -> None:
    record = PositionRecord(mark_delete=(1, 1), properties=properties_of_runs(kept))
    assert runs_of_properties(PositionRecord.decode(record.encode()).properties) == sorted(kept)


def test_a_count_beyond_what_clients_can_be_told_is_kept_as_the_highest() -> None:
    assert list(properties_of_runs([CountedRun(1, 0, 0, COUNT_MAX + 7)]).values()) == [COUNT_MAX]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("pulsar.replicated.subscription", 1),
        ("geminga.redelivered.", 1),
        ("geminga.redelivered.1.2", 1),
        ("geminga.redelivered.1.2.3.4", 1),
        ("geminga.redelivered.1.-2.3", 1),
        ("geminga.redelivered.1.4.3", 1),
        ("geminga.redelivered.1.x.3", 1),
        ("geminga.redelivered.1.².3", 1),
        ("geminga.redelivered.1.2.3", 0),
        ("geminga.redelivered.1.2.3", -1),
        ("geminga.redelivered.1.2.3", COUNT_MAX + 1),
    ],
)
def test_what_is_no_run_is_left_out(name: str, count: int) -> None:
    assert runs_of_properties({name: count}) == []


def test_a_property_with_more_digits_than_an_id_is_left_out() -> None:
    properties = {f"geminga.redelivered.{'1' * 5_000}.3.5": 2, "geminga.redelivered.12.3.5": 2}
    assert runs_of_properties(properties) == [CountedRun(12, 3, 5, 2)]
