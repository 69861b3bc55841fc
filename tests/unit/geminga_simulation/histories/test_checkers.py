"""The checkers find what they are for, and let pass what is right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import (
    NeverBackwards,
    NoLostAcknowledgement,
    OneTruth,
    check_acknowledgements,
    check_nothing_invented,
    check_nothing_lost,
    check_order,
    check_prefix,
)


def test_a_lost_item_is_found_and_named() -> None:
    check_nothing_lost([1, 2], [2, 1, 3])
    with pytest.raises(InvariantViolated, match="1 acknowledged and lost: 2"):
        check_nothing_lost([1, 2], [1, 3])


def test_many_lost_items_are_named_in_part() -> None:
    with pytest.raises(InvariantViolated, match=r"100 .*: 0, 1, .* 9, \.\.\.$"):
        check_nothing_lost(range(100), [])


def test_an_invented_item_is_found() -> None:
    check_nothing_invented([1, 2], [2])
    with pytest.raises(InvariantViolated, match="were never sent: 3"):
        check_nothing_invented([1, 2], [2, 3])


@given(sent=st.lists(st.integers()), length=st.integers(0, 100))
@settings(max_examples=50)
def test_a_prefix_passes(sent: list[int], length: int) -> None:
    check_prefix(sent, sent[:length])


@pytest.mark.parametrize("found", [[2], [1, 3], [1, 1], [1, 2, 3, 4]])
def test_gaps_repeats_and_extras_are_no_prefix(found: list[int]) -> None:
    with pytest.raises(InvariantViolated):
        check_prefix([1, 2, 3], found)


def test_order_allows_repeats_and_gaps_and_counts_the_repeats() -> None:
    assert check_order([1, 2, 3, 4], [1, 2, 1, 2, 4, 4]) == 3


@pytest.mark.parametrize("received", [[2, 1], [1, 3, 2], [1, 7]])
def test_order_refuses_first_receipts_out_of_order_and_inventions(received: list[int]) -> None:
    with pytest.raises(InvariantViolated):
        check_order([1, 2, 3], received)


def test_acknowledgements_must_be_exact_but_for_those_in_doubt() -> None:
    check_acknowledgements([1, 2, 3, 4], [1, 3], [2, 4])
    check_acknowledgements([1, 2, 3, 4], [1], [2, 4], in_doubt=[3])
    check_acknowledgements([1, 2, 3, 4], [1], [2, 3, 4], in_doubt=[3])
    with pytest.raises(InvariantViolated, match="delivered again: 1"):
        check_acknowledgements([1, 2], [1], [1, 2])
    with pytest.raises(InvariantViolated, match="not delivered: 2"):
        check_acknowledgements([1, 2], [1], [])


def test_what_was_confirmed_once_is_in_doubt_no_more() -> None:
    """A client that gets a message again acknowledges it again: that must not hide the loss."""
    with pytest.raises(InvariantViolated, match="delivered again: 1"):
        check_acknowledgements([1, 2], [1], [1, 2], in_doubt=[1])


def test_a_message_must_not_come_again_once_its_acknowledgement_was_confirmed() -> None:
    watch = NoLostAcknowledgement()
    for each in (1, 2, 1):  # on its way again when it was acknowledged
        watch.delivered(each)
    watch.confirmed([1])
    watch.delivered(2)
    watch.confirmed([1, 2])
    watch.delivered(3)
    with pytest.raises(InvariantViolated, match=r"2 came again.*confirmed"):
        watch.delivered(2)


def test_what_may_only_grow_may_stand_still_but_not_go_back() -> None:
    watch = NeverBackwards()
    for value in (-1, 3, 3, 8):
        watch.observe("ledger 1", value)
    watch.observe("ledger 2", 0)
    with pytest.raises(InvariantViolated, match="ledger 1 went back from 8 to 7"):
        watch.observe("ledger 1", 7)


def test_all_readers_of_a_place_must_read_the_same() -> None:
    truth = OneTruth()
    truth.observe((1, 0), b"a")
    truth.observe((1, 0), b"a")
    truth.observe((1, 1), b"b")
    with pytest.raises(InvariantViolated, match=r"\(1, 0\) held b'a' for one and b'c'"):
        truth.observe((1, 0), b"c")
