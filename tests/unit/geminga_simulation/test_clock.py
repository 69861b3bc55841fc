"""The clocks of simulated hosts."""

from __future__ import annotations

import asyncio

from geminga_simulation.clock import WALL_START_MS, SimulatedClock
from geminga_simulation.loop import SimulatedLoop


async def test_durations_follow_virtual_time_and_the_wall_follows_jumps() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    right, askew = SimulatedClock(loop), SimulatedClock(loop, skew_ms=-500)
    await asyncio.sleep(1.5)
    assert right.monotonic() == askew.monotonic() == 1.5
    assert right.wall_ms() == WALL_START_MS + 1500
    assert askew.wall_ms() == WALL_START_MS + 1000
    askew.jump(-60_000)
    assert askew.wall_ms() == WALL_START_MS - 59_000
    assert askew.monotonic() == 1.5
