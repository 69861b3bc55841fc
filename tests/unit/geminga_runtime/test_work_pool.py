"""Proves that work on very many things is done on all, on few at a time, keeping none of them."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

import pytest

from geminga_runtime.work_pool import WorkPool


class Thing:
    """Something to work on."""


async def test_few_are_worked_on_at_a_time_however_often_it_is_asked() -> None:
    pool = WorkPool(3)
    running = most = 0

    async def work(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await asyncio.gather(*(pool.run(work, deque(range(10))) for _ in range(4)))
    assert most == 3


async def test_an_error_stops_none_of_the_others_and_the_first_is_raised() -> None:
    seen: list[int] = []

    async def work(number: int) -> None:
        seen.append(number)
        if number % 2:
            raise KeyError(number)

    with pytest.raises(KeyError, match="1"):
        await WorkPool(2).run(work, deque(range(6)))
    assert seen == list(range(6))


async def test_what_is_done_is_not_kept() -> None:
    things = deque(Thing() for _ in range(3))
    kept = [weakref.ref(each) for each in things]
    alive: list[int] = []

    async def work(_: Thing) -> None:
        await asyncio.sleep(0)
        alive.append(sum(each() is not None for each in kept))

    await WorkPool(1).run(work, things)
    assert alive == [3, 2, 1]


async def test_who_gives_up_waiting_ends_the_work() -> None:
    never = asyncio.Event()
    pool = WorkPool(2)

    async def work(_: int) -> None:
        await never.wait()

    working = asyncio.ensure_future(pool.run(work, deque(range(5))))
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    never.set()
    await pool.run(work, deque(range(5)))
