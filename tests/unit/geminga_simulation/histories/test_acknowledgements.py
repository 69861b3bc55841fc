"""The checker of acknowledgements says what the general one says, and finds what comes again."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.acknowledgements import AcknowledgementHistory, Asked
from geminga_simulation.histories.linearizability import Model, Operation, check_linearizable

ITEMS = range(3)
Settled = frozenset[int]


def acknowledged(
    history: AcknowledgementHistory[int], item: int, called_s: float, returned_s: float
) -> None:
    history.confirm(history.acknowledge("worker", [item], called_s), returned_s)


def come(history: AcknowledgementHistory[int], item: int, sent_s: float, arrived_s: float) -> None:
    history.deliver("other", item, sent_after_s=sent_s, arrived_s=arrived_s)


def test_what_was_on_its_way_may_still_come() -> None:
    history = AcknowledgementHistory[int]()
    acknowledged(history, 1, 2, 4)
    come(history, 1, 4, 9)
    come(history, 2, 5, 9)
    history.check()


def test_a_message_must_not_come_again_once_its_acknowledgement_was_confirmed() -> None:
    history = AcknowledgementHistory[int]()
    acknowledged(history, 1, 2, 4)
    come(history, 1, 3600, 3601)
    why = r"other was sent 1 after 3600.* settled: worker \[2.000000, 4.000000\] acknowledged it"
    with pytest.raises(InvariantViolated, match=why):
        history.check()


def test_a_message_may_come_again_after_an_acknowledgement_without_an_answer() -> None:
    history = AcknowledgementHistory[int]()
    history.acknowledge("worker", [1], 2)
    history.acknowledge_up_to("worker", 1, 2)
    come(history, 1, 5, 6)
    history.check()


def test_what_was_acknowledged_twice_is_so_from_the_first_confirmation_on() -> None:
    history = AcknowledgementHistory[int]()
    acknowledged(history, 1, 2, 4)
    history.acknowledge("other", [1], 5)
    come(history, 1, 5, 6)
    with pytest.raises(InvariantViolated, match="worker"):
        history.check()


def test_all_up_to_a_message_is_acknowledged_with_it() -> None:
    history = AcknowledgementHistory[int]()
    history.confirm(history.acknowledge_up_to("worker", 1, 1), 2)
    come(history, 2, 3, 4)
    history.check()
    come(history, 1, 3, 4)
    come(history, 0, 3, 4)
    with pytest.raises(InvariantViolated, match="2 came again"):
        history.check()


def test_a_stream_brings_what_was_sent_before_first() -> None:
    """Its answer was sent before the message that follows it there, however late both came."""
    history = AcknowledgementHistory[int]()
    history.confirm(history.acknowledge("worker", [1], 2), 4, stream="first")
    history.deliver("other", 1, sent_after_s=1, arrived_s=9, stream="second")
    history.check()
    history.deliver("worker", 1, sent_after_s=1, arrived_s=4, stream="first")
    with pytest.raises(InvariantViolated, match="worker was sent 1"):
        history.check()


def test_a_subscription_that_is_moved_back_has_its_messages_delivered_again() -> None:
    history = AcknowledgementHistory[int]()
    for item in ITEMS:
        acknowledged(history, item, 1, 2)
    move = history.move("worker", 1, 3)
    come(history, 1, 4, 5)  # the move is on its way
    history.confirm(move, 6)
    come(history, 2, 7, 8)
    history.check()
    acknowledged(history, 2, 9, 10)
    come(history, 2, 11, 12)
    with pytest.raises(InvariantViolated, match="other was sent 2"):
        history.check()


def test_what_lies_before_the_place_a_subscription_was_moved_to_is_past() -> None:
    history = AcknowledgementHistory[int]()
    history.confirm(history.move("worker", 1, 3), 4)
    come(history, 1, 5, 6)
    history.check()
    come(history, 0, 5, 6)
    with pytest.raises(InvariantViolated, match=r"sent 0 .* moved it to 1"):
        history.check()


def test_a_move_that_is_in_doubt_excuses_what_comes_later() -> None:
    history = AcknowledgementHistory[int]()
    acknowledged(history, 1, 1, 2)
    history.move("worker", None, 3)
    come(history, 1, 100, 101)
    history.check()


def subscription(settled: Settled, what: Hashable) -> Settled | None:
    assert isinstance(what, tuple)
    kind, item = what
    if kind == "name":
        return settled | {item}
    if kind == "up to":
        return settled | set(range(item + 1))
    if kind == "move":
        return frozenset(range(item))
    return None if item in settled else settled


@dataclass(frozen=True)
class Step:
    kind: str
    item: int
    called: int
    took: int
    is_in_doubt: bool = False


def steps(*kinds: str) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.sampled_from(kinds),
        st.sampled_from(ITEMS),
        st.integers(0, 8),
        st.integers(0, 4),
    )


def doubtful(each: Step) -> Step:
    return Step(each.kind, each.item, each.called, each.took, is_in_doubt=True)


acknowledgements = steps("name", "up to") | steps("name", "up to").map(doubtful)


def ask(history: AcknowledgementHistory[int], kind: str, item: int, called_s: float) -> Asked[int]:
    if kind == "name":
        return history.acknowledge("client", [item], called_s)
    if kind == "up to":
        return history.acknowledge_up_to("client", item, called_s)
    return history.move("client", item, called_s)


def verdicts(told: list[Step]) -> tuple[bool, bool]:
    """Whether the general checker and ours take this for possible."""
    operations = [
        Operation(
            "client",
            each.called,
            inf if each.is_in_doubt else each.called + each.took,
            (each.kind, each.item),
        )
        for each in told
    ]
    history = AcknowledgementHistory[int]()
    # Ours hears of everything when it comes, and of nothing that comes later.
    events = [(each.called, 0, each) for each in told if each.kind != "deliver"]
    events += [(each.called + each.took, 1, each) for each in told if not each.is_in_doubt]
    asked: dict[int, Asked[int]] = {}
    for at, is_end, each in sorted(events, key=lambda event: event[:2]):
        if each.kind == "deliver":
            come(history, each.item, each.called, at)
        elif is_end:
            history.confirm(asked[id(each)], at)
        else:
            asked[id(each)] = ask(history, each.kind, each.item, at)
    return _is_possible(
        lambda: check_linearizable(operations, Model[Settled](frozenset(), subscription))
    ), _is_possible(history.check)


def _is_possible(check: object) -> bool:
    assert callable(check)
    try:
        check()
    except InvariantViolated:
        return False
    return True


@given(st.lists(acknowledgements, max_size=4), st.lists(steps("deliver"), min_size=1, max_size=4))
def test_it_says_what_the_general_checker_says(
    settling: list[Step], delivering: list[Step]
) -> None:
    general, ours = verdicts([*settling, *delivering])
    assert general == ours


@given(
    st.lists(acknowledgements, max_size=3),
    st.lists(steps("move") | steps("move").map(doubtful), min_size=1, max_size=2),
    st.lists(steps("deliver"), min_size=1, max_size=3),
)
def test_where_a_subscription_is_moved_it_objects_to_nothing_that_is_possible(
    settling: list[Step], moving: list[Step], delivering: list[Step]
) -> None:
    """It judges each delivery alone, so what no order of moves explains for all it may let pass."""
    general, ours = verdicts([*settling, *moving, *delivering])
    assert ours or not general


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["name", "up to", "move", "deliver"]),
            st.sampled_from(ITEMS),
            st.integers(0, 1),  # the stream
            st.integers(0, 3),  # how long the request takes to arrive
            st.integers(0, 3),  # and the answer, or the message
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_it_objects_to_nothing_that_a_right_broker_does(
    does: list[tuple[str, int, int, int, int, bool]],
) -> None:
    """One thing a second, and each stream brings answers and messages in their order."""
    settled: Settled = frozenset()
    arrives_s = [0.0, 0.0]
    # When what arrives, whether it is one, and what it is of.
    events: list[tuple[float, int, tuple[str, int, int]]] = []
    for now, (kind, item, stream, there_s, back_s, has_answer) in enumerate(does):
        after = subscription(settled, (kind, item))
        if after is None:
            continue
        settled = after
        if kind != "deliver":
            events.append((now - there_s, 0, (kind, item, now)))
        if kind == "deliver" or has_answer:
            arrives_s[stream] = max(arrives_s[stream], now + back_s)
            events.append((arrives_s[stream], stream + 1, (kind, item, now)))
    history = AcknowledgementHistory[int]()
    asked: dict[int, Asked[int]] = {}
    sent_after_s = [-inf, -inf]
    in_time = sorted(events, key=lambda event: (event[0], event[2][2]))
    for at, stream_or_call, (kind, item, now) in in_time:
        stream = stream_or_call - 1
        if stream < 0:
            asked[now] = ask(history, kind, item, at)
        elif kind == "deliver":
            history.deliver(
                "client", item, sent_after_s=sent_after_s[stream], arrived_s=at, stream=stream
            )
        else:
            history.confirm(asked[now], at, stream=stream)
            sent_after_s[stream] = max(sent_after_s[stream], asked[now].called_s)
    history.check()
