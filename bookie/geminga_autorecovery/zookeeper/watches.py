"""Watches on nodes of ZooKeeper: never more than one on the same thing, and one event for all.

A scan of a tree, again and again, would otherwise leave one more watch at each node each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from geminga_runtime.coordination import Coordination, NodeStat, OnChange

ResultT = TypeVar("ResultT")


class Watches:
    """Reads nodes like ``Coordination``, raising what it raises; what changes ends ``wait``."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        # One event is enough for all watches: the caller reads everything anew in any case.
        self._changed = asyncio.Event()
        # What is watched: the kind of request and the path. Bounded by the nodes there are.
        self._watched: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """Forget changes up to now: the caller is about to read everything again."""
        self._changed.clear()

    def wake(self) -> None:
        """End the wait for another reason than a watch."""
        self._changed.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Return at the next change since ``begin``, or after ``timeout_s`` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                # A change between ``begin`` and here has set the event: it is not missed, and ends
                # the wait at once.
                await self._changed.wait()
        except TimeoutError:
            return

    async def children(self, path: str) -> list[str]:
        """The names below ``path``; wakes when the list changes."""
        return await self._watch("children", path, self._coordination.children)

    async def get(self, path: str) -> tuple[bytes, NodeStat]:
        """Value and stat; wakes when the node changes or goes."""
        return await self._watch("get", path, self._coordination.get)

    async def exists(self, path: str) -> NodeStat | None:
        """Stat or None; wakes when the node comes, changes or goes."""
        return await self._watch("exists", path, self._coordination.exists)

    async def _watch(self, kind: str, path: str, ask: Callable[..., Awaitable[ResultT]]) -> ResultT:
        key = kind, path
        # The watch that is set fires at the next change in any case, and also when the connection
        # breaks.
        if key in self._watched:
            return await ask(path)
        # Before the answer: another reader of the same node must not set a second watch meanwhile.
        self._watched.add(key)

        def fired() -> None:
            # ZooKeeper's watches fire once: the next read sets another one.
            self._watched.discard(key)
            self._changed.set()

        on_change: OnChange = fired
        try:
            return await ask(path, on_change=on_change)
        except BaseException:
            self._watched.discard(key)  # no watch is left where the request failed
            raise
