"""Answers of one connection that cannot be made at once: they are made in order by a task.

The hot path (``session``) answers what is in memory while it reads its frames. What needs the disk
waits here: ``reads`` keeps the entries that plain V2 reads ask for, ``AnswerQueue`` everything else
(V3 reads, batches of entries, lists of entries). The task lives only while answers are pending. It
joins many answers into one write, and pauses while the client does not take what was written.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

# Answers are collected up to this size, then written in one go.
WRITE_BYTES = 256 * 1024

# Makes the pieces of one answer; raises nothing.
MakeAnswer = Callable[[], Awaitable[Sequence[bytes]]]
PendingT = TypeVar("PendingT")


class Spawn(Protocol):
    """Runs work as a task that belongs to a service (``Service.spawn``)."""

    def __call__(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Start ``work``."""
        ...


class DeferredAnswers(ABC, Generic[PendingT]):
    """A queue of pending answers and the task that makes them.

    Subclasses define what is pending, and ``_answers``, which takes pending ones and makes them.
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
        # Takes the pieces of answers, in order.
        self._write = write
        # Called after each write while the queue is half empty or less: a session that stopped
        # reading frames because the queue was full goes on then.
        self._on_drained = on_drained
        self._pending: deque[PendingT] = deque()
        # Writes answers while any is pending; what comes then must wait, to keep the order.
        self.task: asyncio.Task[object] | None = None
        # Cleared by the session while the client does not take its answers.
        self.can_write = asyncio.Event()
        self.can_write.set()
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether the session must push no more before ``on_drained``."""
        return len(self._pending) >= self._queued_max

    def close(self) -> None:
        """Drop all that is pending, and all that is pushed from now on: the connection is gone."""
        self._is_closed = True
        self._pending.clear()
        # It may be waiting for the disk, or for a client that takes nothing.
        if self.task is not None:
            # Nothing begins another one: ``push`` refuses from now on.
            self.task.cancel()

    def push(self, pending: PendingT) -> None:
        """Make this answer after those that are pending."""
        # Fences and long polls that end after the connection did still push their answers.
        if self._is_closed:
            return
        self._pending.append(pending)
        # A task that runs finds this one too: between its last look at the queue and its end there
        # is no await.
        if self.task is None:
            self.task = self._spawn(self._drain(), name=self._name)

    async def _drain(self) -> None:
        try:
            while self._pending:
                # Waits while the transport's buffer is full: at most one write is made ahead.
                # Memory is bounded on both sides: of requests, about ``queued_max`` wait; of
                # answers, one write is made besides what the transport holds.
                await self.can_write.wait()
                self._write(await self._answers())
                if len(self._pending) <= self._queued_max // 2:
                    self._on_drained()
        finally:
            # The next ``push`` starts a new task.
            self.task = None

    @abstractmethod
    async def _answers(self) -> list[bytes]:
        """Make the oldest answers, about as many as fit in one write."""


class AnswerQueue(DeferredAnswers[MakeAnswer]):
    """Answers that are made one at a time, in the order of ``push``."""

    async def _answers(self) -> list[bytes]:
        pieces: list[bytes] = []
        size = 0
        while self._pending and size < WRITE_BYTES:
            # Taken off the queue before it is made: while it waits for the disk, ``close`` may
            # clear the queue.
            answer = await self._pending.popleft()()
            pieces += answer
            size += sum(map(len, answer))
        return pieces
