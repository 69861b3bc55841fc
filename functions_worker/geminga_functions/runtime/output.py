"""What an instance writes to its standard output and error: a file, bounded in size and speed."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024


class OutputFile:
    """Copies a process's output into a file, and keeps the last of it in memory.

    A file that grows over ``file_bytes_max`` is put aside, in the place of the one before: an
    instance's output takes twice as much on disk at most. A process that writes more than
    ``bytes_per_s_max`` waits, as its pipe is full; the worker and other instances do not notice.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        file_bytes_max: int,
        bytes_per_s_max: int,
        tail_bytes: int,
    ) -> None:
        self._path = path
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._bytes_per_s_max = bytes_per_s_max
        self._tail_bytes = tail_bytes
        self._tail = bytearray()
        self._is_lost = False

    @property
    def tail(self) -> str:
        """The last that was written, from the beginning of a line on where that is known."""
        text = self._tail.decode(errors="backslashreplace")
        is_cut = len(self._tail) >= self._tail_bytes
        return (text.partition("\n")[2] or text if is_cut else text).strip()

    async def copy(self, output: asyncio.StreamReader) -> None:
        """Copy all of ``output``, to its end. A file that cannot be written to (a full disk) loses
        output, and never holds up the process."""
        began_s, written = self._clock.monotonic(), 0
        while chunk := await output.read(CHUNK_BYTES):
            self._tail += chunk
            del self._tail[: -self._tail_bytes or None]
            self._append(chunk)
            now_s = self._clock.monotonic()
            if now_s >= began_s + 1:
                began_s, written = now_s, 0
            written += len(chunk)
            if written >= self._bytes_per_s_max:
                await asyncio.sleep(began_s + written / self._bytes_per_s_max - now_s)

    def _append(self, chunk: bytes) -> None:
        # Into the page cache, 64 KiB at most: some 20 us, less than a thread would take.
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, chunk)
                is_long = os.fstat(file).st_size >= self._file_bytes_max
            finally:
                os.close(file)
            if is_long:
                self._path.replace(self._path.with_name(self._path.name + ".old"))
        except OSError as error:
            if not self._is_lost:
                self._is_lost = True
                reason = {"file": str(self._path), "reason": str(error)}
                log.warning("output of an instance is lost", extra=reason)
