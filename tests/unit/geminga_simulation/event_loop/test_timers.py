"""Timers by virtual time and by the clocks of machines, whose pace may change."""

from __future__ import annotations

import asyncio

import pytest

from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.host import Host
from geminga_simulation.world import World

# Turns of a process take time, and a sleep ends in one.
TURNS = 0.001


async def time_by_loop(host: Host) -> tuple[float, float]:
    """What a process on ``host`` takes for the time."""
    return asyncio.get_running_loop().time(), host.clock.monotonic()


async def serve(_: Host) -> None:
    await asyncio.Event().wait()


async def test_a_process_counts_by_the_clock_of_its_machine() -> None:
    async with World() as world:
        fast, right = world.host("fast"), world.host("right")
        for host in (fast, right):
            host.start(serve)
        await asyncio.sleep(10)
        world.loop.change_pace(fast.pace, 1.25)
        assert await fast.run(time_by_loop(fast)) == pytest.approx((10, 10), abs=TURNS)
        await asyncio.sleep(10)
        assert await fast.run(time_by_loop(fast)) == pytest.approx((22.5, 22.5), abs=TURNS)
        assert await right.run(time_by_loop(right)) == pytest.approx((20, 20), abs=TURNS)
        assert running_loop().time() == running_loop().now_s == pytest.approx(20, abs=TURNS)
        assert fast.clock.monotonic() == pytest.approx(22.5, abs=TURNS), "wherever it is read"
        assert fast.clock.wall_ms() - right.clock.wall_ms() in (0, 1), "the wall is another clock"
        fast.kill()
        fast.restart()
        await asyncio.sleep(4)
        assert await fast.run(time_by_loop(fast)) == pytest.approx((27.5, 27.5), abs=TURNS)


async def test_what_a_process_waits_for_comes_by_its_clock_also_where_its_pace_changes() -> None:
    async with World() as world:
        slow = world.host("slow")
        slow.start(serve)
        world.loop.change_pace(slow.pace, 0.8)
        await slow.run(asyncio.sleep(8))
        assert world.loop.now_s == pytest.approx(10, abs=TURNS)
        sleeping = slow.run(asyncio.sleep(8))
        await asyncio.sleep(5)  # it has slept for 4
        world.loop.change_pace(slow.pace, 2.0)
        await sleeping
        assert world.loop.now_s == pytest.approx(17, abs=TURNS)


async def test_what_is_outside_of_all_processes_follows_no_machine() -> None:
    async with World() as world:
        slow = world.host("slow")
        slow.start(serve)
        world.loop.change_pace(slow.pace, 0.5)
        happened_s: list[float] = []

        async def ask() -> None:
            """As a disk does, which knows nothing of its machine's clock."""
            world.loop.after(3, lambda: happened_s.append(world.loop.now_s))
            world.loop.at(4, lambda: happened_s.append(world.loop.now_s))

        await slow.run(ask())
        world.loop.change_pace(slow.pace, 2.0)
        await asyncio.sleep(10)
        assert happened_s == pytest.approx([3, 4], abs=TURNS)


async def test_a_deadline_has_passed_when_it_is_told() -> None:
    """No task waits for the same deadline again because of a rounding error."""
    async with World() as world:
        host = world.host("host")
        host.start(serve)

        async def wait_often() -> int:
            loop = asyncio.get_running_loop()
            too_early = 0
            for number in range(1000):
                deadline_s = loop.time() + 0.1 * number
                await asyncio.sleep(deadline_s - loop.time())
                too_early += loop.time() < deadline_s
            return too_early

        await asyncio.sleep(0.123)
        world.loop.change_pace(host.pace, 1.0371)
        assert await host.run(wait_often()) == 0
