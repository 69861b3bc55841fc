"""Proves that what is not acknowledged is found, run by run, whatever holes there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.acknowledgement.unacknowledged import (
    nth_unacknowledged,
    unacknowledged_runs,
)
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import Position

SIZES = {1: 5, 2: 0, 4: 8, 7: 3}
EVERYTHING = [Position(ledger, entry) for ledger, size in SIZES.items() for entry in range(size)]


def chain_of_sizes() -> LedgerChain:
    return LedgerChain(LedgerSpan(ledger_id, size) for ledger_id, size in SIZES.items())


@given(st.sets(st.sampled_from(EVERYTHING)))
def test_runs_are_all_that_is_not_acknowledged(passed: set[Position]) -> None:
    chain = chain_of_sizes()
    acknowledged = Acknowledged(chain, chain.before_first)
    for position in passed:
        acknowledged.acknowledge(*position)
    left = [each for each in EVERYTHING if each not in passed]
    runs = list(unacknowledged_runs(acknowledged, chain))
    assert [
        Position(ledger_id, entry_id)
        for ledger_id, first, last in runs
        for entry_id in range(first, last + 1)
    ] == left
    for number in range(1, len(EVERYTHING) + 2):
        expected = left[number - 1] if number <= len(left) else None
        assert nth_unacknowledged(acknowledged, chain, number) == expected


def test_a_mark_in_a_ledger_that_was_trimmed_leaves_all_there_is() -> None:
    chain = chain_of_sizes()
    acknowledged = Acknowledged(chain, Position(3, 17))
    assert list(unacknowledged_runs(acknowledged, chain)) == [(4, 0, 7), (7, 0, 2)]
