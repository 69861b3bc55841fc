"""Asynchronous code of the user's, which the loop calls; plain functions have a thread.

It processes several messages at the same time; their outcomes are settled in the order in which the
messages were received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from geminga_functions.instance.settlement import Outcome

# Messages of one input that are being processed, or are done and wait behind one that is not: their
# outcomes are in memory. As many as a consumer receives ahead.
BEGUN_MAX = 1000


class OrderedTasks:
    """Calls of asynchronous code for one input, whose outcomes are settled in order.

    ``running_max`` calls run at a time; the caller of ``begin`` sees to that.
    """

    def __init__(self, running_max: int) -> None:
        # Not smaller than what may run, or running calls would wait for room here instead.
        begun_max = max(BEGUN_MAX, running_max)
        # In the order of their messages; None at the end. The queue is what holds the tasks alive,
        # too: asyncio itself keeps only weak references.
        self._begun: asyncio.Queue[asyncio.Task[Outcome] | None] = asyncio.Queue(begun_max)

    async def begin(self, work: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        """Begin to process a message; waits where too many wait behind one that takes long."""
        # Not a task of a service: if the instance ends by an error, the ``asyncio.Runner`` of its
        # loop cancels the calls that are left.
        task = asyncio.get_running_loop().create_task(work)
        await self._begun.put(task)
        return task

    async def end(self) -> None:
        """Let ``run`` return once everything that was begun is settled."""
        await self._begun.put(None)

    async def run(self, settle: Callable[[Outcome], Awaitable[None]]) -> None:
        """Call ``settle`` with each outcome, one after the other, until ``end``.

        Raises what ``settle`` raises, and settles nothing more then.
        """
        # A call that takes long holds up the outcomes behind it, not the calls: so acknowledgements
        # and results keep the order of the messages.
        while (task := await self._begun.get()) is not None:
            await settle(await task)
