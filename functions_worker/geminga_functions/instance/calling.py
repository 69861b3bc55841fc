"""Where the user's code is called: plain functions in a thread, asynchronous code on the loop, for
several messages at the same time, which are settled in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from geminga_functions.instance.settling import Outcome

ResultT = TypeVar("ResultT")

# Messages that are done but stand behind one that is not, and those that are processed: what came
# of them is in memory. As many as are received ahead.
BEGUN_MAX = 1000


class Caller(Protocol):
    """Where the user's code is called: a thread, but for tests without threads."""

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        """Make ``call``; returns what it returns, raises what it raises."""
        ...

    def close(self) -> None:
        """Call nothing any more."""
        ...


class InOrder:
    """What asynchronous code has begun of one input, of which ``running_max`` messages are
    processed at a time."""

    def __init__(self, running_max: int) -> None:
        begun_max = max(BEGUN_MAX, running_max)
        self._begun: asyncio.Queue[asyncio.Task[Outcome] | None] = asyncio.Queue(begun_max)

    async def begin(self, work: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        """Begin to process a message; waits where too many stand behind one that takes long."""
        task = asyncio.get_running_loop().create_task(work)
        await self._begun.put(task)
        return task

    async def end(self) -> None:
        """Nothing more will be begun: ``run`` returns once what is begun is settled."""
        await self._begun.put(None)

    async def run(self, settle: Callable[[Outcome], Awaitable[None]]) -> None:
        """Have ``settle`` take what came of each message, one after the other. Raises what it
        raises, and hands it nothing more then."""
        while (task := await self._begun.get()) is not None:
            await settle(await task)
