"""Proves that asynchronous code processes as many messages at a time as it may, whenever they come
and however long some of them take, and that what came of them is settled in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import geminga
from geminga_functions.instance.code_loader import Loader
from geminga_functions.instance.function_instance import Instance
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.state import MemoryState
from geminga_functions.tested_topics import OUTPUT, Input, MemoryTopics
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.threads import Threads
from geminga_simulation.event_loop.clock import SimulatedClock

ResultT = TypeVar("ResultT")
HOUR_S = 3600.0


class OneFunction(Loader):
    def __init__(self, function: Callable[[int], Awaitable[int]]) -> None:
        super().__init__((), is_alone=False)
        self._function = function

    def find(self, name: str) -> Any:  # noqa: ARG002 - as Loader.find
        return self._function


class Here(Threads):
    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        return call()


class ComeSlowly(MemoryTopics):
    """Messages of which one comes in each second."""

    async def receive(self) -> geminga.Message[bytes]:
        await asyncio.sleep(1.0)
        return await super().receive()

    async def receive_many(self, max_messages: int, _: float) -> list[geminga.Message[bytes]]:
        del max_messages
        return []


async def processed(
    function: Callable[[int], Awaitable[int]],
    values: Sequence[int],
    *,
    at_once: int,
    kind: type[MemoryTopics] = MemoryTopics,
) -> list[int]:
    """The results, in their order, once all messages are acknowledged."""
    details = FunctionDetails(tenant="t", namespace="n", name="f", className="f", autoAck=True)
    details.source.inputSpecs["in"].SetInParent()
    details.sink.topic = OUTPUT
    topics = kind([Input(each) for each in values], lambda value: str(value).encode())
    spec = InstanceSpec(
        *(details, 0, 1, "w", "c", "", "", None, (), Path()), async_messages_max=at_once
    )
    client, clock = cast(geminga.Client, topics), SimulatedClock()
    loader, state = OneFunction(function), MemoryState()
    async with Instance(spec, client, clock, loader, state, threads=Here(0, "none")) as instance:
        await topics.done.wait()
        await instance.stop()
    return [int(each.value) for each in topics.topics[OUTPUT]]


async def test_a_thousand_that_sleep_a_second_are_done_in_one() -> None:
    async def nap(value: int) -> int:
        await asyncio.sleep(1.0)
        return value

    began_s = asyncio.get_running_loop().time()
    assert await processed(nap, range(1000), at_once=1000) == list(range(1000))
    assert asyncio.get_running_loop().time() - began_s < 1.1


async def test_no_more_are_processed_at_a_time_than_may_be() -> None:
    running: list[int] = []
    most = 0

    async def count(value: int) -> int:
        nonlocal most
        running.append(value)
        most = max(most, len(running))
        await asyncio.sleep(1.0 + value % 3)
        running.remove(value)
        return value

    assert await processed(count, range(500), at_once=7) == list(range(500))
    assert most == 7


async def test_one_that_takes_an_hour_delays_the_beginning_of_no_other() -> None:
    began_s: list[float] = []

    async def slow_first(value: int) -> int:
        began_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0 if value else HOUR_S)
        return value

    assert await processed(slow_first, range(500), at_once=100) == list(range(500))
    assert max(began_s) - min(began_s) < 10.0


async def test_what_comes_while_others_are_processed_is_begun_at_once() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    ended: list[float] = []

    async def nap(value: int) -> int:
        await asyncio.sleep(60.0)
        ended.append(loop.time() - began_s)
        return value

    assert await processed(nap, range(30), at_once=100, kind=ComeSlowly) == list(range(30))
    assert ended == [1.0 + each + 60.0 for each in range(30)]
