"""Incarnations: what each owns, and how the tasks of dead ones are thrown away."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator

from geminga_simulation.event_loop.incarnation import (
    CURRENT,
    TASKS_BEFORE_PRUNING,
    SimulatedTask,
    is_dead_here,
)
from geminga_simulation.event_loop.loop import running_loop


async def test_what_a_task_starts_belongs_to_its_incarnation() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")
    owners: list[str] = []

    def note() -> None:
        owners.append(CURRENT.get(loop.main).name)

    async def work() -> None:
        note()
        loop.call_soon(note)
        loop.call_later(1, note)
        await asyncio.create_task(asyncio.sleep(2))

    await loop.create_task(work(), context=incarnation.context.copy())
    note()
    assert owners == ["host", "host", "host", "main"]


async def test_done_tasks_are_not_kept() -> None:
    loop = running_loop()
    for _ in range(10 * TASKS_BEFORE_PRUNING):
        await loop.create_task(asyncio.sleep(0))
    assert len(loop.main.tasks) <= 2 * TASKS_BEFORE_PRUNING + 2


async def test_code_of_a_dead_incarnation_knows_that_it_is_dead() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")
    assert not incarnation.context.copy().run(is_dead_here)
    loop.kill(incarnation)
    assert incarnation.context.copy().run(is_dead_here)
    assert not is_dead_here()


async def test_forgetting_a_task_runs_its_cleanup_as_a_dead_one_even_if_that_waits() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")
    seen: list[str] = []

    async def work() -> None:
        try:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(f"dead: {is_dead_here()}")
                await asyncio.sleep(1)
                seen.append("never")
        finally:
            seen.append("outer")
            raise ValueError("nothing hears this")

    task = loop.create_task(work(), context=incarnation.context.copy())
    await asyncio.sleep(1)
    loop.kill(incarnation)
    assert seen == []
    loop.bury()
    assert seen == ["dead: True", "outer"]
    assert isinstance(task.exception(), ValueError)


async def test_forgetting_is_quiet_however_deep_the_cleanup_waits() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")
    seen: list[str] = []
    main_task = asyncio.current_task()

    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(10)
            finally:
                seen.append(task.get_name() if asyncio.current_task() is task else "another")

    async def middle() -> AsyncIterator[int]:
        try:
            await inner()
            yield 1
        finally:
            await asyncio.sleep(1)

    async def outer() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
                async for _ in middle():
                    pass
        finally:
            await asyncio.sleep(1)
            seen.append("never")

    task = loop.create_task(outer(), name="outer", context=incarnation.context.copy())
    await asyncio.sleep(1)
    loop.kill(incarnation)
    loop.bury()
    assert asyncio.current_task() is main_task
    assert "outer" in seen
    assert "never" not in seen
    gc.collect()


async def test_a_generator_of_the_dead_goes_without_its_cleanup() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")
    seen: list[str] = []
    kept: list[AsyncGenerator[int]] = []

    async def generate() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            seen.append("cleanup")

    async def use() -> None:
        kept.append(generate())
        async for _ in kept[0]:
            break

    await loop.create_task(use(), context=incarnation.context.copy())
    loop.kill(incarnation)
    kept.clear()
    await asyncio.sleep(1)
    assert seen == []


async def test_a_task_that_will_not_end_is_left_in_the_end() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    loop.create_task(stubborn(), context=incarnation.context.copy())
    await asyncio.sleep(1)
    loop.kill(incarnation)
    loop.bury()


async def test_a_task_made_by_the_dead_never_begins() -> None:
    loop = running_loop()
    incarnation = loop.incarnate("host")
    loop.kill(incarnation)
    seen: list[str] = []

    async def work() -> None:
        seen.append("ran")

    context = incarnation.context.copy()
    task = loop.create_task(work(), context=context)
    handle = loop.call_soon(seen.append, "called", context=context)
    loop.call_later(1, seen.append, "later", context=context)
    await asyncio.sleep(5)
    loop.bury()
    assert (seen, task.cancelled()) == ([], True)
    handle.cancel()


async def test_a_task_describes_where_it_waits() -> None:
    async def wait_here() -> None:
        await asyncio.get_running_loop().create_future()

    task = running_loop().create_task(wait_here(), name="waiter")
    await asyncio.sleep(0)
    assert isinstance(task, SimulatedTask)
    description = task.describe()
    assert description.startswith("waiter at test_incarnation.py:")
    assert description.endswith(" in wait_here")
    task.cancel()
