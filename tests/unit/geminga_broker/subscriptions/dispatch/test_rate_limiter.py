"""Proves that dispatchers of one rate take turns, that none is called in vain, and that
there is no timer while none waits.
"""

from __future__ import annotations

import asyncio

import pytest

from geminga_broker.policies.dispatch import DispatchLimit
from geminga_broker.subscriptions.dispatch.rate_limiter import PAUSE_S, PAUSE_S_MAX, RateLimiter
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop


def gate_of(limit: DispatchLimit, rates: list[tuple[float, float]] | None = None) -> RateLimiter:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    published = None if rates is None else lambda: rates[-1]
    return RateLimiter(limit, SimulatedClock(loop), published)


class Greedy:
    """Takes everything, whenever it is called, and comes again."""

    def __init__(self, gate: RateLimiter) -> None:
        self.gate = gate
        self.calls = 0
        self.taken = 0.0

    def wake(self) -> None:
        self.calls += 1
        there = self.gate.available()[0]
        assert there > 0, "called in vain"
        self.taken += there
        self.gate.take(int(there) + 1, 0)
        self.gate.wait(self.wake)


async def test_waiting_dispatchers_take_turns() -> None:
    gate = gate_of(DispatchLimit(messages=100))
    gate.take(100, 0)
    waiting = [Greedy(gate) for _ in range(3)]
    for each in waiting:
        gate.wait(each.wake)
    await asyncio.sleep(30)
    shares = [each.taken for each in waiting]
    assert min(shares) > 0.9 * max(shares)
    assert sum(shares) == pytest.approx(3000, rel=0.2)
    assert sum(each.calls for each in waiting) <= 30 / PAUSE_S + 1


async def test_a_dispatcher_that_waits_twice_is_called_once() -> None:
    gate = gate_of(DispatchLimit(messages=10))
    gate.take(10, 0)
    called: list[int] = []

    def wake() -> None:
        called.append(1)

    gate.wait(wake)
    gate.wait(wake)
    assert gate.waiting
    await asyncio.sleep(10)
    assert called == [1]
    assert not gate.waiting


async def test_who_left_is_not_called() -> None:
    gate = gate_of(DispatchLimit(messages=10))

    def wake() -> None:
        raise AssertionError("it had left")

    gate.wait(wake)
    del gate.waiting[wake]
    await asyncio.sleep(10)


async def test_a_dispatcher_that_fails_does_not_keep_the_others_waiting() -> None:
    gate = gate_of(DispatchLimit(messages=10))
    called: list[int] = []

    def fails() -> None:
        raise KeyError("a mistake")

    gate.wait(fails)
    gate.wait(lambda: called.append(1))
    await asyncio.sleep(10)
    assert called == [1]


async def test_all_are_let_go_when_it_closes() -> None:
    gate = gate_of(DispatchLimit(messages=1, period_s=1000))
    gate.take(100, 0)
    called: list[int] = []
    gate.wait(lambda: called.append(1))
    gate.close()
    await asyncio.sleep(0)
    assert called == [1]


async def test_a_long_wait_is_looked_at_again() -> None:
    rates = [(0.0, 0.0)]
    gate = gate_of(DispatchLimit(messages=1, period_s=1000, is_relative=True), rates)
    assert gate.available()[0] == 1
    gate.take(100, 0)
    called: list[int] = []
    gate.wait(lambda: called.append(1))
    rates.append((1000.0, 0.0))
    await asyncio.sleep(2 * PAUSE_S_MAX + 1)
    assert called == [1], "what is published has made it faster"


async def test_there_is_no_timer_while_no_dispatcher_waits() -> None:
    gate = gate_of(DispatchLimit(messages=10))
    gate.take(100, 0)
    assert gate._timer is None
    gate.wait(lambda: None)
    await asyncio.sleep(60)
    assert gate._timer is None
