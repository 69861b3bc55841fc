"""Answers of one connection that are made later, in order, by a task that lives while some wait.

What is answered is its heirs' business: ``reads`` has plain V2 reads, ``answer_queue`` the rest.
One task for a connection that has such requests, none otherwise; it makes many answers for one
write, and stops while the client does not take them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

# Answers are collected up to this size, then written in one go.
WRITE_BYTES = 256 * 1024

PendingT = TypeVar("PendingT")


class Spawn(Protocol):
    """Runs work as a task that somebody owns (``Service.spawn``)."""

    def __call__(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Start ``work``."""
        ...


class LaterAnswers(ABC, Generic[PendingT]):
    """What waits is in ``_pending``; ``_answers`` takes from there and makes the pieces of a write.

    ``write`` takes the pieces of answers; ``on_drained`` is called when the queue is half empty.
    """

    def __init__(
        self,
        spawn: Spawn,
        *,
        name: str,
        queued_max: int,
        write: Callable[[list[bytes]], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._spawn = spawn
        self._name = name
        self._queued_max = queued_max
        self._write = write
        self._on_drained = on_drained
        self._pending: deque[PendingT] = deque()
        self._task: asyncio.Task[object] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more should be taken."""
        return len(self._pending) >= self._queued_max

    def hold(self) -> None:
        """The client does not take its answers: make no more."""
        self._can_write.clear()

    def release(self) -> None:
        """The client takes answers again."""
        self._can_write.set()

    def close(self) -> None:
        """The connection is gone: make nothing more."""
        self._pending.clear()
        if self._task is not None:
            self._task.cancel()

    def _add(self, pending: PendingT) -> None:
        self._pending.append(pending)
        if self._task is None:
            self._task = self._spawn(self._drain(), name=self._name)

    async def _drain(self) -> None:
        try:
            while self._pending:
                await self._can_write.wait()
                self._write(await self._answers())
                if len(self._pending) <= self._queued_max // 2:
                    self._on_drained()
        finally:
            self._task = None

    @abstractmethod
    async def _answers(self) -> list[bytes]:
        """The oldest answers, about as much as fits in one write."""
