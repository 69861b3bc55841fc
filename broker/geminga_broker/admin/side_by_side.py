"""One piece of work on many topics: not one after the other, and not all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

# Each topic may have to be loaded, waits for its cursors, or for its ledgers' deletions, one after
# the other.
WIDTH = 16

ItemT = TypeVar("ItemT")


async def side_by_side(work: Callable[[ItemT], Awaitable[None]], items: Iterable[ItemT]) -> None:
    """Do ``work`` on each of ``items``, whatever becomes of the others; when all are done, the
    first of the errors is raised."""
    width = asyncio.Semaphore(WIDTH)

    async def work_on(item: ItemT) -> None:
        async with width:
            await work(item)

    results = await asyncio.gather(*map(work_on, items), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
