"""One piece of work on very many things: a few at a time, without keeping those that are done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

ThingT = TypeVar("ThingT")


class WorkPool:
    """Works on at most ``width`` things at a time, however often it is asked."""

    def __init__(self, width: int) -> None:
        self._width = width
        # Shared by all calls of ``run``, so that two at once do not work on twice as many things.
        self._room = asyncio.Semaphore(width)

    async def run(self, work: Callable[[ThingT], Awaitable[None]], things: deque[ThingT]) -> None:
        """Do ``work`` on each of ``things``, which are removed from there. An error ends no other
        work; when all is done, the first error is raised."""
        errors: list[Exception] = []

        async def go_on() -> None:
            while things:
                async with self._room:
                    # Another task may have taken the last one while this one waited.
                    if not things:
                        return
                    try:
                        # No ``await`` from the look at ``things`` to here: it has an element.
                        await work(things.popleft())
                    except Exception as error:  # noqa: BLE001 -- raised when all are done
                        # Only kept: the task goes on with the next thing.
                        errors.append(error)

        async with asyncio.TaskGroup() as group:
            # A few tasks that take one thing after the other, instead of a task for each thing, of
            # which there may be millions. Things that are added while this runs are worked on as
            # well, by the tasks that there are.
            for _ in range(min(self._width, len(things))):
                group.create_task(go_on(), name="work in a pool")
        if errors:
            raise errors[0]
