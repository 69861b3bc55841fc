"""The general checker finds an order where there is one, and says what is in its way where not."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.linearizability import Model, Operation, check_linearizable


def register(state: int, what: Hashable) -> int | None:
    """Writes ("write", n) and reads ("read", n) of a number that is 0 at first."""
    assert isinstance(what, tuple)
    kind, number = what
    assert isinstance(number, int)
    if kind == "write":
        return number
    return state if state == number else None


REGISTER = Model(0, register)


def operation(client: str, called_s: float, returned_s: float, *what: Hashable) -> Operation:
    return Operation(client, called_s, returned_s, what)


def test_operations_that_overlap_may_take_effect_in_either_order() -> None:
    write = operation("a", 0, 10, "write", 1)
    check_linearizable([write, operation("b", 1, 2, "read", 0)], REGISTER)
    check_linearizable([write, operation("b", 1, 2, "read", 1)], REGISTER)
    early, late = operation("b", 1, 2, "read", 0), operation("b", 3, 4, "read", 1)
    check_linearizable([write, early, late], REGISTER)


def test_what_was_read_once_is_not_unread() -> None:
    write = operation("a", 0, 10, "write", 1)
    new, old = operation("b", 1, 2, "read", 1), operation("c", 3, 4, "read", 0)
    with pytest.raises(InvariantViolated, match=r"no order explains 3 operations") as raised:
        check_linearizable([write, new, old], REGISTER)
    assert "c [3.000000, 4.000000] ('read', 0)" in str(raised.value)


def test_a_confirmed_write_is_seen_by_reads_that_begin_later() -> None:
    history = [operation("a", 0, 1, "write", 1), operation("b", 2, 3, "read", 0)]
    with pytest.raises(InvariantViolated, match="1 can be put in order"):
        check_linearizable(history, REGISTER)


def test_a_write_in_doubt_takes_effect_late_or_never() -> None:
    write = operation("a", 0, inf, "write", 1)
    assert write.is_in_doubt
    assert str(write) == "a [0.000000, no answer] ('write', 1)"
    check_linearizable([write, operation("b", 5, 6, "read", 0)], REGISTER)
    check_linearizable([write, operation("b", 5, 6, "read", 1)], REGISTER)
    with pytest.raises(InvariantViolated):
        check_linearizable(
            [operation("b", 0, 1, "read", 1), operation("a", 2, inf, "write", 1)], REGISTER
        )


def is_explained(history: list[Operation]) -> bool:
    """By trying every order: each operation in doubt may be left out."""
    needed = sum(not each.is_in_doubt for each in history)
    return not needed or any(_is_right(order, needed) for order in permutations(history))


def _is_right(order: Sequence[Operation], needed: int) -> bool:
    """Whether those with an answer, and what stands before the last of them, happened so."""
    now_s, state, done = -inf, REGISTER.initial, 0
    for each in order:
        now_s = max(now_s, each.called_s)
        after = register(state, each.what)
        if after is None or now_s > each.returned_s:
            return False
        state = after
        done += not each.is_in_doubt
        if done == needed:
            return True
    return False


times = st.tuples(st.integers(0, 6), st.integers(0, 4), st.booleans())


@given(
    st.lists(st.tuples(times, st.sampled_from(["write", "read"]), st.integers(0, 2)), max_size=5)
)
def test_it_finds_what_trying_every_order_finds(
    drawn: list[tuple[tuple[int, int, bool], str, int]],
) -> None:
    history = [
        operation(f"c{number}", called, inf if in_doubt else called + took, kind, value)
        for number, ((called, took, in_doubt), kind, value) in enumerate(drawn)
    ]
    if is_explained(history):
        check_linearizable(history, REGISTER)
    else:
        with pytest.raises(InvariantViolated):
            check_linearizable(history, REGISTER)


def test_a_long_history_without_much_overlap_is_soon_checked() -> None:
    history = [
        operation(f"c{number % 3}", number, number + 1.5, kind, number // 2)
        for number, kind in enumerate(["write", "read"] * 1000)
    ]
    history = [each for each in history if each.what != ("read", 0)]
    check_linearizable(history, Model(0, lambda *_: 0))  # every order is right


def test_reads_that_all_overlap_are_not_tried_in_every_order() -> None:
    reads = [operation(f"c{number}", 0, 9, "read", 1) for number in range(100)]
    with pytest.raises(InvariantViolated, match="101 can be put in order"):
        check_linearizable(
            [operation("a", 0, 1, "write", 1), *reads, operation("b", 10, 11, "read", 0)],
            REGISTER,
        )
