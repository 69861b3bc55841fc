"""Files: the only module that opens one.

The interface is asynchronous and made of whole operations (append a group and sync it, read a
group of ranges), because handing work to a thread costs about 80 us: once a group, never once an
entry. ``FileDisk`` works below one directory; its twin in ``magnetar_simulation`` keeps bytes in
memory, tears unsynced writes on a crash and injects errors, without any thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

ResultT = TypeVar("ResultT")
Chunk = bytes | bytearray | memoryview

# Reads at most this long are done on the event loop: the page cache answers them in microseconds.
INLINE_READ_BYTES_MAX = 256 * 1024
# Linux refuses more buffers in one writev (IOV_MAX).
BUFFERS_PER_WRITE_MAX = 1024


class DiskFile(Protocol):
    """One open file that is only ever appended to, cut off, or read."""

    @property
    def size(self) -> int:
        """Bytes in the file, appended ones included whether synced or not."""
        ...

    async def append(self, chunks: Sequence[Chunk]) -> int:
        """Write ``chunks`` one after the other at the end; returns the offset of the first byte.

        Raises ``OSError`` (ENOSPC, EIO) with the file's size as it was before.
        """
        ...

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        """``append`` then ``sync`` in one hand-over; returns the offset of the first byte."""
        ...

    async def sync(self) -> None:
        """Return when everything appended so far is on stable storage."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes from ``offset``; fewer than ``length`` only at the end of the file."""
        ...

    async def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes and sync."""
        ...

    async def close(self) -> None:
        """Give the file back. Does not sync."""
        ...


class Disk(Protocol):
    """A directory tree. Paths are relative, with ``/``."""

    async def open(self, path: str) -> DiskFile:
        """Open for appending and reading; created empty (its name durable) where missing."""
        ...

    async def read_file(self, path: str) -> bytes | None:
        """The whole file, or None where there is none."""
        ...

    async def write_file(self, path: str, content: bytes) -> None:
        """Replace the file as a whole: after a crash it holds the old content or the new."""
        ...

    async def list(self, directory: str) -> list[str]:
        """Names in ``directory``, sorted; empty where it does not exist."""
        ...

    async def remove(self, path: str) -> None:
        """Delete the file, durably; no error where it is missing."""
        ...

    async def make_directory(self, path: str) -> None:
        """Make the directory and its parents, durably."""
        ...

    def free_bytes(self) -> int:
        """Bytes that can still be written."""
        ...


class FileDisk:
    """Real files below ``root``; blocking calls run on ``threads`` threads of its own.

    ``is_synced=False`` skips every fsync (the ``--no-sync`` of continuous-integration clusters):
    a power cut may then lose acknowledged messages, a crash of the process does not.
    """

    def __init__(self, root: Path, *, threads: int = 2, is_synced: bool = True) -> None:
        self._root = root
        self._is_synced = is_synced
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="magnetar-disk")
        root.mkdir(parents=True, exist_ok=True)

    async def open(self, path: str) -> DiskFile:
        target = self._root / path

        def open_it() -> tuple[int, int]:
            is_new = not target.exists()
            descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if is_new:
                self._sync_directory(target.parent)
            return descriptor, os.fstat(descriptor).st_size

        descriptor, size = await self._run(open_it)
        return _OpenFile(descriptor, size, self._executor, is_synced=self._is_synced)

    async def read_file(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    async def write_file(self, path: str, content: bytes) -> None:
        target = self._root / path
        await self._run(lambda: self._replace(target, content))

    def _replace(self, target: Path, content: bytes) -> None:
        temporary = target.with_name(target.name + ".new")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if self._is_synced:
                os.fsync(file.fileno())
        temporary.replace(target)
        self._sync_directory(target.parent)

    async def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / directory))
        except FileNotFoundError:
            return []

    async def remove(self, path: str) -> None:
        target = self._root / path

        def remove_it() -> None:
            target.unlink(missing_ok=True)
            self._sync_directory(target.parent)

        await self._run(remove_it)

    async def make_directory(self, path: str) -> None:
        target = self._root / path

        def make_it() -> None:
            target.mkdir(parents=True, exist_ok=True)
            self._sync_directory(target.parent)

        await self._run(make_it)

    def free_bytes(self) -> int:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        """End the threads; files still open stay usable for reads on the loop only."""
        self._executor.shutdown(wait=True)

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _sync_directory(self, directory: Path) -> None:
        if not self._is_synced:
            return
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _OpenFile:
    """A descriptor opened with O_APPEND, and the size we know it to have."""

    def __init__(
        self, descriptor: int, size: int, executor: ThreadPoolExecutor, *, is_synced: bool
    ) -> None:
        self._descriptor = descriptor
        self._size = size
        self._executor = executor
        self._is_synced = is_synced

    @property
    def size(self) -> int:
        return self._size

    async def append(self, chunks: Sequence[Chunk]) -> int:
        return await self._run(lambda: self._append(chunks))

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        def append_then_sync() -> int:
            offset = self._append(chunks)
            self._sync()
            return offset

        return await self._run(append_then_sync)

    async def sync(self) -> None:
        await self._run(self._sync)

    async def read(self, offset: int, length: int) -> bytes:
        if length <= INLINE_READ_BYTES_MAX:
            return os.pread(self._descriptor, length, offset)
        return await self._run(lambda: os.pread(self._descriptor, length, offset))

    async def truncate(self, size: int) -> None:
        def cut_and_sync() -> None:
            os.ftruncate(self._descriptor, size)
            self._sync()

        await self._run(cut_and_sync)
        self._size = size

    async def close(self) -> None:
        os.close(self._descriptor)

    def _append(self, chunks: Sequence[Chunk]) -> int:
        offset = self._size
        try:
            for first in range(0, len(chunks), BUFFERS_PER_WRITE_MAX):
                self._write_all(chunks[first : first + BUFFERS_PER_WRITE_MAX])
        except OSError:
            # A part may have reached the file: what the caller was not told of must not stay.
            os.ftruncate(self._descriptor, offset)
            self._size = offset
            raise
        return offset

    def _write_all(self, chunks: Sequence[Chunk]) -> None:
        size = sum(map(len, chunks))
        written = os.writev(self._descriptor, chunks)
        self._size += written
        if written < size:  # a short write: a signal or a nearly full disk; the rest in one piece
            rest = memoryview(b"".join(chunks))[written:]
            while rest:
                written = os.write(self._descriptor, rest)
                self._size += written
                rest = rest[written:]

    def _sync(self) -> None:
        if self._is_synced:
            os.fdatasync(self._descriptor)

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
