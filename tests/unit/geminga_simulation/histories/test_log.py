"""The checker of logs says what the general one says, and finds what a log must not do."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.linearizability import Model, Operation, check_linearizable
from geminga_simulation.histories.log import LogHistory

Entries = tuple[tuple[int, Hashable], ...]


def appended(
    history: LogHistory[int], value: str, called_s: float, returned_s: float, position: int
) -> None:
    asked = history.append("writer", value, called_s)
    asked.position, asked.returned_s = position, returned_s


def test_appends_that_overlap_may_be_stored_in_either_order() -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 5, 2)
    appended(history, "b", 1, 4, 1)
    history.last("reader", 2, called_s=6, returned_s=7)
    history.read("reader", 1, "b", called_s=6, returned_s=7)
    history.check()


def test_what_was_confirmed_before_comes_before() -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 1, 2)
    appended(history, "b", 2, 3, 1)
    with pytest.raises(InvariantViolated, match=r"'a' at 2, which comes behind: .*'b' at 1"):
        history.check()


def test_the_last_position_counts_what_was_confirmed_before_it_was_asked_for() -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 1, 1)
    appended(history, "b", 2, 3, 2)
    history.last("reader", 1, called_s=4, returned_s=5)
    with pytest.raises(InvariantViolated, match="'b' at 2, which comes behind: reader"):
        history.check()


def test_the_last_position_does_not_go_back() -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 1, 1)
    appended(history, "b", 2, 9, 2)
    history.last("reader", 2, called_s=3, returned_s=4)
    history.last("other", 1, called_s=5, returned_s=6)
    with pytest.raises(
        InvariantViolated, match="was told that 2 is last, which comes behind: other"
    ):
        history.check()


def test_an_empty_log_was_empty_before_anything_was_confirmed() -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 1, 1)
    history.last("reader", None, called_s=0, returned_s=2)
    history.check()
    history.last("reader", None, called_s=3, returned_s=4)
    with pytest.raises(InvariantViolated, match="comes behind: reader"):
        history.check()


def test_an_append_without_an_answer_may_be_stored_or_not() -> None:
    history = LogHistory[int]()
    history.append("writer", "lost", 0)
    history.append("writer", "kept", 1)
    appended(history, "a", 2, 3, 7)
    history.read("reader", 8, "kept", called_s=9, returned_s=10)
    history.last("reader", 8, called_s=9, returned_s=10)
    history.check()


@pytest.mark.parametrize(
    ("position", "value", "returned_s", "why"),
    [
        (1, "unknown", 5, "which was never sent"),
        (2, "a", 5, "there is writer .* 'b' at 2"),
        (9, "a", 5, "read it at 9"),
        (3, "c", 1, "cannot have been there yet"),
        (1, "c", 5, "there is writer"),
    ],
)
def test_what_is_read_was_sent_is_there_and_is_there_alone(
    position: int, value: str, returned_s: float, why: str
) -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 1, 1)
    appended(history, "b", 0, 1, 2)
    history.append("writer", "c", 2)
    history.read("reader", position, value, called_s=0, returned_s=returned_s)
    with pytest.raises(InvariantViolated, match=why):
        history.check()


def test_who_hears_nothing_may_append_again() -> None:
    history = LogHistory[int](may_repeat=True)
    appended(history, "a", 0, 1, 1)
    appended(history, "b", 2, 3, 2)
    history.read("reader", 3, "a", called_s=4, returned_s=5)
    history.last("reader", 3, called_s=4, returned_s=5)
    history.check()
    history.read("reader", 2, "a", called_s=4, returned_s=5)
    with pytest.raises(InvariantViolated, match="there is writer"):
        history.check()


def test_no_two_are_at_one_position() -> None:
    history = LogHistory[int]()
    appended(history, "a", 0, 1, 1)
    appended(history, "b", 0, 1, 1)
    with pytest.raises(InvariantViolated, match="two are at one position"):
        history.check()


def test_a_last_position_that_is_not_stored_is_a_violation() -> None:
    history = LogHistory[int]()
    history.last("reader", 4, called_s=0, returned_s=1)
    with pytest.raises(InvariantViolated, match="was told of 4"):
        history.check()


def test_where_not_all_is_read_the_last_position_may_hold_an_unknown_value() -> None:
    history = LogHistory[int](is_read_in_part=True)
    history.append("writer", "lost", 0)
    appended(history, "a", 0, 1, 3)
    history.last("reader", 4, called_s=2, returned_s=3)
    history.check()
    history.last("other", 3, called_s=4, returned_s=5)
    with pytest.raises(InvariantViolated, match="told that 4 is last, which comes behind: other"):
        history.check()


def log(entries: Entries, what: Hashable) -> Entries | None:
    assert isinstance(what, tuple)
    kind, position, value = what
    end = entries[-1][0] if entries else 0
    if kind == "append":
        return (*entries, (position, value)) if position > end else None
    if kind == "last":
        return entries if position == end else None
    return entries if (position, value) in entries else None


spans = st.tuples(st.integers(0, 8), st.integers(0, 5))


@given(
    st.lists(st.tuples(spans, st.booleans()), min_size=1, max_size=4),
    st.lists(st.tuples(spans, st.sampled_from(["last", "read"]), st.integers(0, 4)), max_size=3),
)
def test_it_says_what_the_general_checker_says(
    appends: list[tuple[tuple[int, int], bool]],
    looks: list[tuple[tuple[int, int], str, int]],
) -> None:
    history = LogHistory[int]()
    operations: list[Operation] = []
    for number, ((called, took), is_in_doubt) in enumerate(appends, 1):
        asked = history.append("writer", number, called)
        asked.position = number  # known, so that both checkers are told the same
        asked.returned_s = inf if is_in_doubt else called + took
        operations.append(Operation("writer", called, asked.returned_s, ("append", number, number)))
    for (called, took), kind, drawn in looks:
        position = min(drawn, len(appends))
        ends = called + took
        if kind == "last":
            history.last("reader", position or None, called_s=called, returned_s=ends)
        elif position:
            history.read("reader", position, position, called_s=called, returned_s=ends)
        else:
            continue
        operations.append(Operation("reader", called, ends, (kind, position, position)))
    # Each that is in doubt has a position here, so it did take effect.
    must = [
        Operation(each.client, each.called_s, min(each.returned_s, 1_000), each.what)
        for each in operations
    ]
    try:
        check_linearizable(must, Model[Entries]((), log))
    except InvariantViolated:
        with pytest.raises(InvariantViolated):
            history.check()
    else:
        history.check()
