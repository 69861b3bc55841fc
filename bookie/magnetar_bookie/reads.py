"""Reads of one connection that must wait: for the disk, or for the client to take answers.

One task for each connection that has such reads, not one for each read. It answers in the order in
which they came, many with one write, and stops while the client does not take what it asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from magnetar_bookie.counters import Counters
from magnetar_bookie.errors import CorruptFile
from magnetar_bookie.storage import Storage
from magnetar_protocol.bookkeeper.errors import BookieRefusal
from magnetar_protocol.bookkeeper.v2 import ReturnCode, encode_read_response_header

log = logging.getLogger(__name__)

# Answers are collected up to this size, then written in one go.
WRITE_BYTES = 256 * 1024

# A read that waits: ledger id, entry id, when it came (seconds of the monotonic clock).
PendingRead = tuple[int, int, float]


class Spawn(Protocol):
    """Runs work as a task that somebody owns (``Service.spawn``)."""

    def __call__(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Start ``work``."""
        ...


class ReadQueue:
    """Answers reads in a task that lives while there are some.

    ``write`` takes the pieces of answers; ``on_drained`` is called when the queue is half empty.
    """

    def __init__(
        self,
        storage: Storage,
        counters: Counters,
        spawn: Spawn,
        *,
        queued_max: int,
        write: Callable[[list[bytes]], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._counters = counters
        self._spawn = spawn
        self._queued_max = queued_max
        self._write = write
        self._on_drained = on_drained
        self._pending: deque[PendingRead] = deque()
        # Those pending, and those taken from there but not answered yet.
        self._in_progress = 0
        self._task: asyncio.Task[object] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()

    @property
    def is_busy(self) -> bool:
        """Whether reads wait, so that those that come now must wait too."""
        return self._task is not None

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more should be taken."""
        return len(self._pending) >= self._queued_max

    def push(self, ledger_id: int, entry_id: int, came_s: float) -> None:
        """Answer this read, which came at ``came_s``, later."""
        self._pending.append((ledger_id, entry_id, came_s))
        self._in_progress += 1
        self._counters.reads_in_progress += 1
        if self._task is None:
            self._task = self._spawn(self._drain(), name="reads")

    def hold(self) -> None:
        """The client does not take its answers: make no more."""
        self._can_write.clear()

    def release(self) -> None:
        """The client takes answers again."""
        self._can_write.set()

    def close(self) -> None:
        """The connection is gone: answer nothing more."""
        self._pending.clear()
        self._counters.reads_in_progress -= self._in_progress
        self._in_progress = 0
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
        """Answers to the oldest reads, about as much as fits in one write."""
        pending, find = self._pending, self._storage.find
        answers: list[bytes] = []
        size = 0
        codes: dict[int, int] = {}
        came_s = pending[0][2]
        while pending and size < WRITE_BYTES and pending[0][2] == came_s:
            ledger_id, entry_id, _ = pending.popleft()
            code = 0
            try:
                entry = find(ledger_id, entry_id)
                if entry is None:
                    entry = await self._storage.fetch(ledger_id, entry_id)
            except BookieRefusal as refusal:
                entry, code = b"", int(refusal.return_code)
            except (OSError, CorruptFile):
                log.exception(
                    "entry cannot be read", extra={"ledger": ledger_id, "entry": entry_id}
                )
                entry, code = b"", int(ReturnCode.EIO)
            codes[code] = codes.get(code, 0) + 1
            answers.append(encode_read_response_header(code, ledger_id, entry_id, len(entry)))
            answers.append(entry)
            size += len(entry)
        self._count(codes, size, came_s)
        return answers

    def _count(self, codes: dict[int, int], size: int, came_s: float) -> None:
        """Count a write's reads, of which so many had each return code."""
        counters = self._counters
        done = codes.pop(ReturnCode.EOK, 0)
        failed = sum(codes.values())
        self._in_progress -= done + failed
        counters.reads_in_progress -= done + failed
        counters.reads += done
        counters.reads_failed += failed
        counters.read_bytes += size
        if done:
            counters.read_latency.record(counters.clock.monotonic() - came_s, done)
