"""Claims of ownership are held against what ZooKeeper says, at some moment of their time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.ownership import Change, OwnershipHistory

ACQUIRED, RELEASED, EXPIRED = Change


def at(history: OwnershipHistory, moment: float, what: Change, owner: str, node: str = "n") -> None:
    history.change(what, node, owner, called_s=moment, returned_s=moment)


def taken_over() -> OwnershipHistory:
    """One owns it from 1 to 3, another from 5 on."""
    history = OwnershipHistory()
    at(history, 1, ACQUIRED, "one")
    at(history, 3, EXPIRED, "one")
    at(history, 5, ACQUIRED, "other")
    return history


@pytest.mark.parametrize(
    ("owner", "called_s", "returned_s"),
    [("one", 0, 2), ("one", 2, 9), ("one", 1.5, 2.5), ("other", 4, 6), ("other", 8, 9)],
)
def test_an_owner_may_be_named_that_was_it_for_a_moment(
    owner: str, called_s: float, returned_s: float
) -> None:
    history = taken_over()
    history.claim("client", owner, called_s=called_s, returned_s=returned_s)
    history.check()


@pytest.mark.parametrize(
    ("owner", "called_s", "returned_s"),
    [("one", 0, 0.5), ("one", 4, 9), ("other", 0, 4), ("nobody", 0, 9)],
)
def test_an_owner_must_not_be_named_that_was_it_at_no_moment(
    owner: str, called_s: float, returned_s: float
) -> None:
    history = taken_over()
    history.claim("client", owner, called_s=called_s, returned_s=returned_s)
    with pytest.raises(InvariantViolated, match=f"client .* told that {owner} owns"):
        history.check()


def test_one_node_has_one_owner() -> None:
    history = taken_over()
    at(history, 6, ACQUIRED, "third")
    with pytest.raises(InvariantViolated, match="third"):
        history.check()


def test_a_bundle_and_its_pieces_are_owned_side_by_side() -> None:
    history = taken_over()
    at(history, 6, ACQUIRED, "other", node="piece")
    at(history, 7, RELEASED, "other")
    history.claim("client", "other", called_s=8, returned_s=9)
    history.check()


def test_who_looked_now_and_then_knows_the_time_of_a_change_by_halves() -> None:
    """Two claims each have a moment, and none has both."""
    history = OwnershipHistory(frozenset({("n", "one")}))
    history.change(RELEASED, "n", "one", called_s=0, returned_s=9)
    history.change(ACQUIRED, "n", "other", called_s=0, returned_s=9)
    history.claim("client", "one", called_s=2, returned_s=3)
    history.claim("client", "other", called_s=4, returned_s=5)
    history.check()
    history.claim("client", "one", called_s=6, returned_s=7)
    with pytest.raises(InvariantViolated, match="told that one owns it"):
        history.check()


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc"), st.integers(1, 3)), max_size=4),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 3)), max_size=4),
)
def test_it_says_what_a_look_at_each_moment_says(
    reigns: list[tuple[int, str, int]], claims: list[tuple[str, int, int]]
) -> None:
    history = OwnershipHistory()
    now_s, spans = 0, list[tuple[str, int, int]]()
    for pause_s, owner, reign_s in reigns:
        begin_s, now_s = now_s + pause_s, now_s + pause_s + reign_s
        at(history, begin_s, ACQUIRED, owner)
        at(history, now_s, RELEASED, owner)
        spans.append((owner, begin_s, now_s))
    for owner, called_s, took_s in claims:
        history.claim("client", owner, called_s=called_s, returned_s=called_s + took_s)
    is_possible = all(
        any(
            owner == other and called_s <= end_s and called_s + took_s >= begin_s
            for other, begin_s, end_s in spans
        )
        for owner, called_s, took_s in claims
    )
    if is_possible:
        history.check()
    else:
        with pytest.raises(InvariantViolated):
            history.check()
