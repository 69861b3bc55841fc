"""The simulated loop: time that jumps, order that is kept where promised, ends that are errors."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from geminga_simulation.errors import (
    CallbackLimitExceeded,
    NotSimulated,
    SimulationDeadlock,
    TimeLimitExceeded,
)
from geminga_simulation.event_loop.loop import SimulatedLoop, running_loop
from geminga_simulation.simulate import simulate


async def test_sleeping_takes_no_real_time_and_exactly_the_time_asked_for() -> None:
    loop = running_loop()
    await asyncio.sleep(86_000)
    assert loop.time() == 86_000


async def test_call_soon_keeps_its_order() -> None:
    seen: list[int] = []
    for number in range(100):
        running_loop().call_soon(seen.append, number)
    await asyncio.sleep(0)
    assert seen == list(range(100))


async def test_what_a_callback_schedules_runs_in_the_next_turn() -> None:
    seen: list[str] = []
    loop = running_loop()

    def first() -> None:
        seen.append("first")
        loop.call_soon(seen.append, "third")

    loop.call_soon(first)
    loop.call_soon(seen.append, "second")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == ["first", "second", "third"]


async def test_timers_fire_in_the_order_of_their_times() -> None:
    seen: list[float] = []
    loop = running_loop()
    for delay_s in (3.0, 1.0, 2.0):
        loop.call_later(delay_s, seen.append, delay_s)
    await asyncio.sleep(5)
    assert seen == [1.0, 2.0, 3.0]


def test_the_seed_chooses_the_order_of_timers_of_one_instant() -> None:
    async def main() -> tuple[int, ...]:
        seen: list[int] = []
        for number in range(5):
            asyncio.get_running_loop().call_later(1, seen.append, number)
        await asyncio.sleep(2)
        return tuple(seen)

    orders = {simulate(seed, main).result for seed in range(30)}
    assert len(orders) > 10
    assert all(sorted(order) == list(range(5)) for order in orders)


async def test_a_cancelled_timer_neither_fires_nor_moves_time() -> None:
    loop = running_loop()
    seen: list[str] = []
    handle = loop.call_later(1, seen.append, "never")
    assert handle.when() == 1
    handle.cancel()
    assert handle.cancelled()
    loop.call_later(0.5, seen.append, "half")
    await asyncio.sleep(0.7)
    assert (seen, loop.time()) == (["half"], 0.7)


async def test_cancelled_timers_are_swept_out() -> None:
    loop = running_loop()
    for _ in range(10_000):
        loop.call_later(1000, print).cancel()
    assert len(loop._heap) < 2_000


async def test_asyncio_itself_works() -> None:
    loop = running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
    taken: list[int] = []
    done = asyncio.Event()

    async def take() -> None:
        while len(taken) < 10:
            taken.append(await queue.get())
        done.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(take())
        for number in range(10):
            await queue.put(number)
            await asyncio.sleep(0.1)
        await done.wait()
    assert taken == list(range(10))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.create_future(), 1)
    async with asyncio.Lock(), asyncio.Semaphore(1):
        quick = loop.create_task(asyncio.sleep(1, "quick"))
        slow = loop.create_task(asyncio.sleep(9, "slow"))
        finished, waiting = await asyncio.wait([quick, slow], return_when="FIRST_COMPLETED")
    assert (finished, waiting) == ({quick}, {slow})
    assert list(await asyncio.gather(quick, slow)) == ["quick", "slow"]


async def test_context_variables_are_inherited_and_do_not_leak() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outer")
    seen: list[str] = []

    async def inner() -> None:
        seen.append(variable.get())
        variable.set("changed")
        await asyncio.sleep(0)
        seen.append(variable.get())

    variable.set("given")
    await asyncio.create_task(inner())
    assert seen == ["given", "changed"]
    assert variable.get() == "given"


def test_waiting_for_nothing_is_a_deadlock_that_names_the_tasks() -> None:
    async def main() -> None:
        forgotten = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
        await forgotten

    with pytest.raises(SimulationDeadlock, match=r"main: forgotten at locks\.py") as caught:
        simulate(1, main)
    assert len(caught.value.tasks) == 2


def test_turning_in_a_circle_is_an_error() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(turn)
        await asyncio.Event().wait()

    def turn() -> None:
        asyncio.get_running_loop().call_soon(turn)

    with pytest.raises(CallbackLimitExceeded):
        simulate(1, main, callbacks_max=1000)


def test_waiting_while_timers_tick_for_ever_is_an_error() -> None:
    def tick() -> None:
        asyncio.get_running_loop().call_later(1, tick)

    async def main() -> None:
        tick()
        await asyncio.Event().wait()

    with pytest.raises(TimeLimitExceeded, match="main: Task"):
        simulate(1, main, time_limit_s=100)


async def test_threads_and_sockets_are_refused() -> None:
    with pytest.raises(NotSimulated, match="run_in_executor"):
        await asyncio.to_thread(print)
    with pytest.raises(NotSimulated):
        await running_loop().create_connection(asyncio.Protocol, "example.org", 80)
    with pytest.raises(NotImplementedError):
        running_loop().add_reader(0, print)


async def test_an_error_in_a_callback_is_reported_and_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("as planned")

    running_loop().call_soon(fail)
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    (failure,) = running_loop().failures
    assert isinstance(failure["exception"], ValueError)
    assert failure["host"] == "main"
    assert "fail" in caplog.text


async def test_a_half_used_generator_is_closed() -> None:
    seen: list[str] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            seen.append("closed")

    async for _ in generate():
        break
    await asyncio.sleep(2)
    assert seen == ["closed"]


def test_a_killed_incarnation_never_runs_again() -> None:
    loop = SimulatedLoop(1)
    seen: list[str] = []
    incarnation = loop.incarnate("victim")
    future = loop.create_future()

    async def work() -> None:
        try:
            loop.call_later(5, seen.append, "timer")
            loop.call_soon(seen.append, "before")
            await future
            seen.append("resumed")
        finally:
            loop.call_soon(seen.append, "cleanup scheduled")
            loop.create_task(asyncio.sleep(0))
            await asyncio.sleep(1)
            seen.append("cleanup waited")

    async def main() -> None:
        task = loop.create_task(work(), context=incarnation.context.copy())
        await asyncio.sleep(1)
        loop.kill(incarnation)
        future.set_result(None)
        task.cancel()
        await asyncio.sleep(10)
        loop.bury()

    loop.run_until_complete(main())
    assert seen == ["before"]
    assert asyncio.all_tasks(loop) == set()
    loop.close()


def test_a_paused_incarnation_stands_still_and_then_goes_on() -> None:
    loop = SimulatedLoop(1)
    incarnation = loop.incarnate("sleeper")
    seen: list[float] = []

    async def work() -> None:
        while len(seen) < 5:
            seen.append(loop.time())
            await asyncio.sleep(1)

    async def main() -> None:
        task = loop.create_task(work(), context=incarnation.context.copy())
        await asyncio.sleep(1.5)
        loop.pause(incarnation, 10.0)
        await task

    loop.run_until_complete(main())
    assert seen == [0.0, 1.0, 10.0, 11.0, 12.0]
    loop.close()


def test_a_turn_keeps_its_incarnation_busy_but_no_other() -> None:
    loop = SimulatedLoop(1)
    busy = loop.incarnate("busy", turn_cost_s=1.0)
    times: list[float] = []

    async def work() -> None:
        for _ in range(5):
            times.append(loop.time())
            await asyncio.sleep(0)

    async def main() -> None:
        task = loop.create_task(work(), context=busy.context.copy())
        await asyncio.sleep(0)
        assert loop.time() == 0
        await task

    loop.run_until_complete(main())
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert all(0.5 <= pause <= 1.5 for pause in pauses)
    loop.close()


def test_the_order_between_incarnations_is_the_seeds() -> None:
    def order_of(seed: int) -> tuple[str, ...]:
        loop = SimulatedLoop(seed)
        seen: list[str] = []

        async def work(name: str) -> None:
            seen.append(name)

        async def main() -> None:
            tasks = [
                loop.create_task(work(name), context=loop.incarnate(name).context.copy())
                for name in "abcd"
            ]
            await asyncio.wait(tasks)

        loop.run_until_complete(main())
        loop.close()
        return tuple(seen)

    orders = {order_of(seed) for seed in range(40)}
    assert len(orders) > 8
    assert order_of(3) == order_of(3)


def test_a_future_resolved_by_another_wakes_its_waiter_in_the_waiters_process() -> None:
    loop = SimulatedLoop(1, record=True)
    waiter, setter = loop.incarnate("waiter"), loop.incarnate("setter")
    future = loop.create_future()

    async def wait() -> None:
        await future

    async def resolve() -> None:
        await asyncio.sleep(1)
        future.set_result(None)

    async def main() -> None:
        waiting = loop.create_task(wait(), name="wait", context=waiter.context.copy())
        await loop.create_task(resolve(), name="resolve", context=setter.context.copy())
        await waiting

    loop.run_until_complete(main())
    assert loop.trace.lines is not None
    assert "1.000000000 waiter task wait" in loop.trace.lines
    loop.close()


def test_sets_of_tasks_and_futures_have_one_order() -> None:
    def names() -> list[list[str]]:
        async def main() -> list[list[str]]:
            loop = asyncio.get_running_loop()
            tasks = {loop.create_task(asyncio.sleep(1)) for _ in range(50)}
            futures = {loop.create_future() for _ in range(50)}
            ordered = [[task.get_name() for task in tasks], [str(hash(one)) for one in futures]]
            await asyncio.wait(tasks)
            return ordered

        return simulate(1, main).result

    assert names() == names()


def test_a_closed_loop_runs_nothing() -> None:
    loop = SimulatedLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_forever()
    work = asyncio.sleep(1)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_until_complete(work)
    work.close()


@pytest.mark.parametrize("stop", [True, False])
def test_a_loop_stopped_early_says_so(stop: bool) -> None:  # noqa: FBT001 -- pytest's parameter
    loop = SimulatedLoop()

    async def main() -> str:
        if stop:
            loop.stop()
            await asyncio.sleep(1)
        return "done"

    action: Callable[[], str] = lambda: loop.run_until_complete(main())  # noqa: E731
    if stop:
        with pytest.raises(RuntimeError, match="stopped"):
            action()
    else:
        assert action() == "done"
    loop.close()
