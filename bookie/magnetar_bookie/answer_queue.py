"""Requests of one connection that are answered later and off the hot path, one after the other.

For what needs the disk and is not a plain V2 read (``reads`` has those): V3 reads, batches of
entries, lists of entries. One task for a connection that has such requests, none otherwise; it
stops while the client does not take its answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from magnetar_bookie.reads import WRITE_BYTES, Spawn

# Makes the pieces of an answer; raises nothing.
MakeAnswer = Callable[[], Awaitable[Sequence[bytes]]]


class AnswerQueue:
    """Makes answers in the order of ``push``, in a task that lives while there are some to make.

    ``write`` takes the pieces of answers; ``on_drained`` is called when the queue is half empty.
    """

    def __init__(
        self,
        spawn: Spawn,
        *,
        queued_max: int,
        write: Callable[[list[bytes]], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._spawn = spawn
        self._queued_max = queued_max
        self._write = write
        self._on_drained = on_drained
        self._pending: deque[MakeAnswer] = deque()
        self._task: asyncio.Task[object] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more should be taken."""
        return len(self._pending) >= self._queued_max

    def push(self, make_answer: MakeAnswer) -> None:
        """Make this answer later; nothing is made once the connection is gone."""
        if self._is_closed:
            return
        self._pending.append(make_answer)
        if self._task is None:
            self._task = self._spawn(self._drain(), name="answers")

    def hold(self) -> None:
        """The client does not take its answers: make no more."""
        self._can_write.clear()

    def release(self) -> None:
        """The client takes answers again."""
        self._can_write.set()

    def close(self) -> None:
        """The connection is gone: make nothing more."""
        self._is_closed = True
        self._pending.clear()
        if self._task is not None:
            self._task.cancel()

    async def _drain(self) -> None:
        try:
            while self._pending:
                await self._can_write.wait()
                self._write(await self._answers())
                if len(self._pending) <= self._queued_max // 2:
                    self._on_drained()
        finally:
            self._task = None

    async def _answers(self) -> list[bytes]:
        """The oldest answers, about as much as fits in one write."""
        pieces: list[bytes] = []
        size = 0
        while self._pending and size < WRITE_BYTES:
            answer = await self._pending.popleft()()
            pieces += answer
            size += sum(map(len, answer))
        return pieces
