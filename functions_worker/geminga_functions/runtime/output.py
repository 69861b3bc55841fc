"""The file for an instance's standard output and error, bounded in size and speed."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024


@dataclass(slots=True, eq=False)
class OutputFile:
    """Copies the output of a process into a file, and keeps its last bytes in memory.

    A file that grows over ``file_bytes_max`` is renamed, in place of the one renamed before: the
    output of an instance takes at most twice as much on disk. A process that writes more than
    ``bytes_per_s_max`` blocks, since its pipe is full; the worker and other instances go on.
    """

    path: Path
    clock: Clock
    _: KW_ONLY
    file_bytes_max: int
    bytes_per_s_max: int
    # How many of the last bytes are kept in memory.
    tail_bytes: int
    _tail: bytearray = field(default_factory=bytearray, init=False)
    # Whether the loss of output has been logged.
    _is_lost: bool = field(default=False, init=False)

    @property
    def tail(self) -> str:
        """The last that was written, without a first line that is incomplete."""
        text = self._tail.decode(errors="backslashreplace")
        is_cut = len(self._tail) >= self.tail_bytes
        # A single long line is shown as far as it is kept.
        return (text.partition("\n")[2] or text if is_cut else text).strip()

    async def copy(self, output: asyncio.StreamReader) -> None:
        """Copy ``output`` to its end.

        If the file cannot be written, for example on a full disk, output is lost; the process never
        waits for the disk.
        """
        # Bytes are counted in windows of a second, or of as long as they should have taken.
        began_s, written = self.clock.monotonic(), 0
        while chunk := await output.read(CHUNK_BYTES):
            self._tail += chunk
            # ``or None``: with a tail of zero bytes the slice ``[:0]`` would delete nothing.
            del self._tail[: -self.tail_bytes or None]
            self._append(chunk)
            now_s = self.clock.monotonic()
            if now_s >= began_s + 1:
                began_s, written = now_s, 0
            written += len(chunk)
            if written >= self.bytes_per_s_max:
                # Meanwhile the reader's buffer fills, then the pipe; then the kernel blocks the
                # process.
                await asyncio.sleep(began_s + written / self.bytes_per_s_max - now_s)

    def _append(self, chunk: bytes) -> None:
        # On the loop: at most 64 KiB go into the page cache, in about 20 us, less than the way to a
        # thread and back. It is opened for each chunk, since the one before may have renamed it.
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, chunk)
                is_long = os.fstat(file).st_size >= self.file_bytes_max
            finally:
                os.close(file)
            if is_long:
                # After the write, so that the file that is renamed ends with a whole chunk.
                self.path.replace(self.path.with_name(self.path.name + ".old"))
        except OSError as error:
            if not self._is_lost:
                self._is_lost = True
                reason = {"file": str(self.path), "reason": str(error)}
                log.warning("output of an instance is lost", extra=reason)
