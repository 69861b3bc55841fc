"""Services open and close in order, and end every task they started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from geminga_runtime import service as module
from geminga_runtime.service import Service


class Traced(Service):
    """Opens two things, and notes the order of everything."""

    def __init__(self, events: list[str], *, fails: bool = False) -> None:
        super().__init__()
        self.events = events
        self.fails = fails

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._thing("first"))
        await stack.enter_async_context(self._thing("second"))
        if self.fails:
            raise RuntimeError("cannot open")

    @asynccontextmanager
    async def _thing(self, name: str) -> AsyncGenerator[None]:
        self.events.append(f"open {name}")
        try:
            yield
        finally:
            self.events.append(f"close {name}")

    async def wait_for_ever(self, name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.events.append(f"end {name}")


async def test_what_opened_last_closes_first_and_tasks_end_before() -> None:
    events: list[str] = []
    async with Traced(events) as service:
        for name in ("a", "b", "c"):
            service.spawn(service.wait_for_ever(name), name="same name")
        await asyncio.sleep(0)
    opened = ["open first", "open second"]
    ended = ["end c", "end b", "end a"]
    assert events == [*opened, *ended, "close second", "close first"]


async def test_what_was_opened_is_closed_when_opening_fails() -> None:
    events: list[str] = []
    with pytest.raises(RuntimeError, match="cannot open"):
        await Traced(events, fails=True).__aenter__()
    assert events == ["open first", "open second", "close second", "close first"]


async def test_an_error_inside_the_block_closes_and_passes_on() -> None:
    events: list[str] = []
    with pytest.raises(KeyError):
        async with Traced(events):
            raise KeyError
    assert events[-1] == "close first"


async def test_a_failed_task_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async with Service() as service:
        task = service.spawn(fail(), name="the task")
        await asyncio.wait([task])
    assert [(entry.levelno, entry.getMessage()) for entry in caplog.records] == [
        (logging.ERROR, "task failed")
    ]
    assert caplog.records[0].__dict__["task"] == "the task"


async def test_lasting_work_goes_on_after_an_error_that_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_S", 0.0)
    begun: list[str] = []
    has_begun_thrice = asyncio.Event()

    async def fail() -> None:
        begun.append("again")
        if len(begun) < 3:
            raise ValueError("broken")
        has_begun_thrice.set()
        await asyncio.get_running_loop().create_future()

    async with Service() as service:
        service.spawn_lasting(fail, name="the work")
        await has_begun_thrice.wait()
    assert service.faults == 2
    assert [(entry.levelno, entry.__dict__["task"]) for entry in caplog.records] == [
        (logging.ERROR, "the work")
    ] * 2


async def test_what_is_done_again_and_again_waits_before_each_time_and_outlives_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RESTART_S", 0.0)
    done: list[float] = []
    is_done_thrice = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def fail() -> None:
        done.append(loop.time())
        if len(done) == 3:
            is_done_thrice.set()
        raise ValueError("broken")

    began_s = loop.time()
    async with Service() as service:
        service.spawn_every(0.01, fail, name="the work")
        await is_done_thrice.wait()
    waits_s = [later - earlier for earlier, later in zip([began_s, *done], done, strict=False)]
    assert min(waits_s) >= 0.009, "the loop's clock may be early by its resolution"
    assert service.faults == 3


async def test_a_task_that_ended_well_or_was_cancelled_is_not_worth_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Service() as service:
        await service.spawn(asyncio.sleep(0), name="quick")
        service.spawn(asyncio.sleep(1000), name="slow")
    assert caplog.records == []


@pytest.mark.parametrize("is_lasting", [False, True])
async def test_work_whose_cleaning_up_fails_when_it_is_cancelled_ends_all_the_same(
    *, is_lasting: bool
) -> None:
    """Its error takes the place of the cancellation, and it goes on as after any other error."""
    waits = 0

    async def wait_again_and_again() -> None:
        nonlocal waits
        while True:
            waits += 1
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if waits > 1:
                    raise
                if is_lasting:
                    raise OSError("cleaning up failed") from None

    async with asyncio.timeout(60):
        async with Traced([]) as service:
            if is_lasting:
                service.spawn_lasting(wait_again_and_again, name="lasting")
            else:
                service.spawn(wait_again_and_again(), name="once")
            await asyncio.sleep(1)
    assert waits == (1 if is_lasting else 2)


async def test_a_task_spawned_while_closing_is_ended_too() -> None:
    events: list[str] = []

    class Stubborn(Traced):
        async def spawn_more(self) -> None:
            try:
                await self.wait_for_ever("first")
            finally:
                self.spawn(self.wait_for_ever("late"), name="late")

    async with Stubborn(events) as service:
        service.spawn(service.spawn_more(), name="first")
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert events[-1] == "close first"


async def test_a_task_that_ended_at_the_moment_of_closing_is_no_trouble() -> None:
    async with Service() as service:
        future = asyncio.get_running_loop().create_future()

        async def wait() -> None:
            await future

        service.spawn(wait(), name="wait")
        await asyncio.sleep(0)
        future.set_result(None)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_task_may_close_its_own_service() -> None:
    events: list[str] = []
    service = await Traced(events).__aenter__()

    async def close() -> None:
        await service.__aexit__(None, None, None)
        events.append("closed by its own task")

    await asyncio.wait_for(service.spawn(close(), name="closer"), 60)
    assert events[-2:] == ["close first", "closed by its own task"]


async def test_a_cancelled_close_still_closes_what_was_opened() -> None:
    events: list[str] = []
    service = await Traced(events).__aenter__()
    stuck = asyncio.Event()

    async def refuse_once() -> None:
        try:
            await service.wait_for_ever("refusing")
        except asyncio.CancelledError:
            stuck.set()
            await service.wait_for_ever("refusing again")

    service.spawn(refuse_once(), name="refusing")
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(service.__aexit__(None, None, None))
    await stuck.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert events[-2:] == ["close second", "close first"]


async def test_a_service_can_be_opened_again() -> None:
    events: list[str] = []
    service = Traced(events)
    for _ in range(2):
        async with service:
            await service.spawn(asyncio.sleep(0), name="work")
    assert events.count("open first") == events.count("close first") == 2
