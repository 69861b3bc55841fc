"""The clocks of simulated hosts."""

from __future__ import annotations

import asyncio

import pytest

from geminga_simulation.event_loop.clock import WALL_START_MS, SimulatedClock
from geminga_simulation.event_loop.loop import running_loop


async def test_durations_follow_virtual_time_and_the_wall_follows_jumps() -> None:
    loop = running_loop()
    right, askew = SimulatedClock(loop), SimulatedClock(loop, skew_ms=-500)
    await asyncio.sleep(1.5)
    assert right.monotonic() == askew.monotonic() == 1.5
    assert right.wall_ms() == WALL_START_MS + 1500
    assert askew.wall_ms() == WALL_START_MS + 1000
    askew.skew_ms -= 60_000
    assert askew.wall_ms() == WALL_START_MS - 59_000
    assert askew.monotonic() == 1.5


async def test_a_clock_without_a_loop_shows_that_of_the_loop_that_runs() -> None:
    clock = SimulatedClock()
    await asyncio.sleep(1.5)
    assert (clock.monotonic(), clock.wall_ms()) == (1.5, WALL_START_MS + 1500)


def test_where_no_loop_runs_a_clock_stands_still_until_it_is_set() -> None:
    clock = SimulatedClock()
    assert (clock.monotonic(), clock.wall_ms()) == (0.0, WALL_START_MS)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall_ms()) == (2.5, WALL_START_MS + 2500)
    clock.set_wall(7)
    assert (clock.monotonic(), clock.wall_ms()) == (2.5, 7)
    with pytest.raises(AssertionError):
        clock.advance(-1)


@pytest.mark.real_loop
async def test_a_real_loop_moves_no_clock() -> None:
    assert SimulatedClock().monotonic() == 0.0


def test_a_clock_with_steps_goes_on_each_time_it_is_read() -> None:
    clock = SimulatedClock(step_s=0.25)
    assert [clock.monotonic() for _ in range(3)] == [0.0, 0.25, 0.5]
