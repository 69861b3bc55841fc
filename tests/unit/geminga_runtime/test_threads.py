"""Threads make every call once, in order, and tell the caller that waits, and it alone."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from geminga_runtime.threads import Threads

pytestmark = pytest.mark.real_loop  # real threads


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(1, "tested")
    yield threads
    threads.close()


async def test_what_a_call_returns_is_returned(threads: Threads) -> None:
    ran_in = await threads.run(threading.current_thread)
    assert ran_in is not threading.current_thread()
    assert ran_in.name == "tested-0"
    assert await threads.run(lambda: [1]) == [1]


async def test_what_a_call_raises_is_raised_and_the_thread_goes_on(threads: Threads) -> None:
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        await threads.run(_interrupt)
    assert await threads.run(lambda: 1) == 1


def _interrupt() -> None:
    raise KeyboardInterrupt


async def test_one_thread_makes_calls_in_the_order_they_came(threads: Threads) -> None:
    made: list[int] = []
    calls = (threads.run(partial(made.append, number)) for number in range(50))
    await asyncio.gather(*calls)
    assert made == list(range(50))


async def test_so_many_calls_are_made_at_once_as_there_are_threads() -> None:
    threads = Threads(3, "three")
    together = threading.Barrier(3, timeout=60)
    await asyncio.gather(*(threads.run(together.wait) for _ in range(3)))
    threads.close()


async def test_a_cancelled_call_that_began_goes_on_and_one_that_did_not_is_not_made(
    threads: Threads,
) -> None:
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()
    goes_on = threading.Event()
    made: list[str] = []

    def slow() -> None:
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait(10)
        made.append("begun")

    tasks = [
        asyncio.ensure_future(threads.run(slow)),
        asyncio.ensure_future(threads.run(lambda: made.append("not begun"))),
    ]
    await begun.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    goes_on.set()
    await threads.run(lambda: made.append("next"))
    assert made == ["begun", "next"]


async def test_an_idle_thread_keeps_nothing_of_its_last_call(threads: Threads) -> None:
    class Buffer:
        """Something that can be watched going."""

    buffer = Buffer()
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    weakref.finalize(buffer, loop.call_soon_threadsafe, gone.set)

    def use(used: Buffer = buffer) -> None:
        assert used is not None

    del buffer
    await threads.run(use)
    del use
    gc.collect()
    async with asyncio.timeout(60):
        await gone.wait()


async def test_closing_makes_what_was_asked_for_and_takes_no_more() -> None:
    threads = Threads(2, "closed")
    made: list[int] = []
    tasks = [
        asyncio.ensure_future(threads.run(partial(made.append, number))) for number in range(20)
    ]
    await asyncio.sleep(0)
    threads.close()
    threads.close()
    assert sorted(made) == list(range(20))
    await asyncio.gather(*tasks)
    with pytest.raises(RuntimeError, match="closed"):
        await threads.run(lambda: None)


def test_a_call_may_outlive_the_loop_that_asked_for_it(threads: Threads) -> None:
    goes_on = threading.Event()
    made: list[str] = []

    async def ask_and_leave() -> None:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def slow() -> None:
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait(10)
            made.append("slow")

        task = asyncio.ensure_future(threads.run(slow))
        await begun.wait()
        task.cancel()

    asyncio.run(ask_and_leave())
    goes_on.set()
    asyncio.run(threads.run(partial(made.append, "next")))
    assert made == ["slow", "next"]
