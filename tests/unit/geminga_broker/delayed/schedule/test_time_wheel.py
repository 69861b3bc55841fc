"""Proves that every message comes out once, never early, and a tick late at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.delayed.schedule.time_wheel import TimeWheel

TIMES = st.one_of(st.integers(0, 5000), st.integers(0, 10**7), st.integers(0, 10**13))


def test_a_message_comes_out_with_the_tick_that_begins_at_or_after_its_time() -> None:
    wheel = TimeWheel(0, 100)
    wheel.add(100, 1, 1)
    wheel.add(101, 1, 2)
    assert wheel.take_due(99, 10) == []
    assert wheel.take_due(100, 10) == [(100, 1, 1)]
    assert wheel.take_due(199, 10) == []
    assert wheel.take_due(200, 10) == [(101, 1, 2)]


def test_no_more_are_taken_than_wanted() -> None:
    wheel = TimeWheel(0, 100)
    for entry in range(5):
        wheel.add(100, 1, entry)
    assert wheel.has_due(100, 5)
    assert not wheel.has_due(100, 6)
    assert [len(wheel.take_due(100, 2)) for _ in range(4)] == [2, 2, 1, 0]


def test_an_empty_wheel_needs_no_check() -> None:
    wheel = TimeWheel(0, 100)
    assert (len(wheel), wheel.next_ms()) == (0, None)
    wheel.add(10**12, 1, 1)
    assert len(wheel) == 1
    assert wheel.next_ms() is not None


def test_a_message_of_the_past_is_due_at_once() -> None:
    wheel = TimeWheel(10_000, 100)
    wheel.add(10, 1, 1)
    assert wheel.next_ms() == 10_000
    assert wheel.take_due(10_000, 1) == [(10, 1, 1)]


@given(
    st.integers(0, 10**12),
    st.integers(1, 1000),
    st.lists(st.tuples(TIMES, st.integers(0, 5000))),
)
def test_a_wheel_does_what_a_sorted_list_does(
    start: int, tick: int, steps: list[tuple[int, int]]
) -> None:
    wheel, model, now = TimeWheel(start, tick), dict[int, int](), start
    for number, (delay, pause) in enumerate(steps):
        wheel.add(now + delay, 1, number)
        model[number] = now + delay
        now += pause
        taken = {entry: at for at, _, entry in wheel.take_due(now, 3)}
        for entry, at in taken.items():
            assert model.pop(entry) == at <= now
        overdue = [each for each in model.values() if each + tick <= now]
        assert len(taken) == 3 or not overdue
        assert len(wheel) == len(model)
    found = wheel.next_ms()
    assert (found is None) == (not model)
    assert found is None or all(found < at + tick or found <= now for at in model.values())
    assert [each for piece in wheel.in_order() for each in piece] == sorted(
        (at, 1, entry) for entry, at in model.items()
    )
    rest = wheel.take_due(start + 10**14, len(model) + 1)
    assert sorted(rest) == sorted((at, 1, entry) for entry, at in model.items())


def test_messages_far_apart_need_few_slots() -> None:
    wheel = TimeWheel(0, 250)
    for entry in range(10_000):
        wheel.add(entry * 3_600_000, 1, entry)  # over more than a year
    assert sum(map(len, wheel._levels)) < 6 * 64
