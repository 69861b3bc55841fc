"""A new fragment begins at the first unconfirmed entry and leaves all before it where it was."""

from __future__ import annotations

import pytest

from geminga_ledger.replication.ensembles import ended_at, with_fragment
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata


def ledger(*fragments: Fragment) -> LedgerMetadata:
    return LedgerMetadata(ensemble_size=2, write_quorum=2, ack_quorum=2, fragments=fragments)


AB, AC, DC = ("a", "b"), ("a", "c"), ("d", "c")


def test_a_change_adds_a_fragment() -> None:
    changed = with_fragment(ledger(Fragment(0, AB)), 5, AC)
    assert changed.fragments == (Fragment(0, AB), Fragment(5, AC))


def test_a_fragment_that_holds_nothing_confirmed_is_replaced() -> None:
    assert with_fragment(ledger(Fragment(0, AB)), 0, AC).fragments == (Fragment(0, AC),)
    changed = with_fragment(ledger(Fragment(0, AB), Fragment(5, AC)), 5, DC)
    assert changed.fragments == (Fragment(0, AB), Fragment(5, DC))


def test_confirmed_entries_are_never_said_to_be_elsewhere() -> None:
    with pytest.raises(AssertionError):
        with_fragment(ledger(Fragment(0, AB), Fragment(5, AC)), 4, DC)


def test_fragments_beyond_the_end_go() -> None:
    both = ledger(Fragment(0, AB), Fragment(5, AC))
    assert ended_at(both, 5) == both
    assert ended_at(both, 4).fragments == (Fragment(0, AB),)
    assert ended_at(both, -1).fragments == (Fragment(0, AB),)
