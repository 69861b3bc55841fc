"""A disk in memory that keeps apart what was synced, fails on order, and can be copied as a crash
would leave it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence

from geminga_runtime.disk import Chunk

# How many reserved zeros a crash shows.
RESERVED_SHOWN_BYTES = 1000


class MemoryFile:
    """The content of a file, and how much of it is synced."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = len(content)
        self.reserved = 0
        self.broken: OSError | None = None
        # A sync failed in another life: the kernel shows what it gave up on, and syncs nothing.
        self.is_given_up = False


class MemoryDisk:
    """Files by name. ``errors`` maps an operation (``append``, ``sync``, ``read``, ``open``) to
    error numbers, of which each call takes the first.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {name: MemoryFile(content) for name, content in (files or {}).items()}
        self.errors: dict[str, list[int]] = {}
        self.syncs = 0
        self.reads = 0
        self.removed: list[str] = []
        self.free = 1 << 40
        # When set, no more fits than this, and ``free`` says nothing.
        self.capacity: int | None = None
        # Called before anything changes: a moment to die.
        self.on_step: Callable[[], None] = lambda: None
        # While set, each sync waits for it: a slow disk.
        self.gate: asyncio.Event | None = None

    def after_crash(self, *, unsynced_bytes: int = 0) -> MemoryDisk:
        """A disk with what was synced of each file, and so many bytes of the rest, then zeros
        where space was reserved.
        """
        files: dict[str, bytes] = {}
        for name, file in self.files.items():
            content = bytes(file.content[: file.synced + unsynced_bytes])
            files[name] = content + bytes(file.reserved)
        disk = MemoryDisk(files)
        disk.capacity = self.capacity
        return disk

    def contents(self) -> dict[str, bytes]:
        """Every file as it is now."""
        return {name: bytes(file.content) for name, file in self.files.items()}

    def fail(self, operation: str, error_number: int) -> None:
        """Let the next such operation fail."""
        self.errors.setdefault(operation, []).append(error_number)

    def take_error(self, operation: str) -> None:
        numbers = self.errors.get(operation)
        if numbers:
            number = numbers.pop(0)
            raise OSError(number, os.strerror(number))

    async def open(
        self, path: str, *, reserve_bytes: int = 0, is_reread: bool = True
    ) -> OpenMemoryFile:
        del is_reread
        await asyncio.sleep(0)
        self.on_step()
        self.take_error("open")
        file = self.files.setdefault(path, MemoryFile())
        file.content += bytes(file.reserved)
        file.reserved = 0
        return OpenMemoryFile(self, file, min(reserve_bytes, RESERVED_SHOWN_BYTES))

    async def read_file(self, path: str) -> bytes | None:
        file = self.files.get(path)
        return None if file is None else bytes(file.content)

    async def write_file(self, path: str, content: bytes) -> None:
        await asyncio.sleep(0)
        self.on_step()
        self.require_room(len(content))
        self.files[path] = MemoryFile(content)

    async def list(self, directory: str) -> list[str]:
        assert directory == ""
        return sorted(self.files)

    async def remove(self, path: str) -> None:
        await asyncio.sleep(0)
        self.on_step()
        self.removed.append(path)
        self.files.pop(path, None)

    async def make_directory(self, path: str) -> None:
        raise NotImplementedError(path)

    def free_bytes(self) -> int:
        if self.capacity is None:
            return self.free
        return self.capacity - sum(len(file.content) for file in self.files.values())

    def total_bytes(self) -> int:
        return 1 << 41 if self.capacity is None else self.capacity

    def require_room(self, size: int) -> None:
        if self.capacity is not None and size > self.free_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class OpenMemoryFile:
    """A ``DiskFile`` of a memory disk."""

    def __init__(self, disk: MemoryDisk, file: MemoryFile, reserve_bytes: int) -> None:
        self._reserve_bytes = reserve_bytes
        self._disk = disk
        self._file = file
        self._is_closed = False

    @property
    def size(self) -> int:
        return len(self._file.content)

    async def append(self, chunks: Sequence[Chunk]) -> int:
        await asyncio.sleep(0)
        return self._append(chunks)

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        await asyncio.sleep(0)
        offset = self._append(chunks)
        await self.sync()
        self._file.reserved = self._reserve_bytes
        return offset

    async def sync(self) -> None:
        if self._disk.gate is not None:
            await self._disk.gate.wait()
        await asyncio.sleep(0)
        self._refuse_broken()
        try:
            self._disk.take_error("sync")
        except OSError as error:
            self._file.broken = error
            raise
        self._disk.on_step()
        self._disk.syncs += 1
        if not self._file.is_given_up:
            self._file.synced = len(self._file.content)

    async def read(self, offset: int, length: int) -> bytes:
        assert not self._is_closed
        await asyncio.sleep(0)
        self._disk.take_error("read")
        self._disk.reads += 1
        return bytes(self._file.content[offset : offset + length])

    async def truncate(self, size: int) -> None:
        assert not self._is_closed
        await asyncio.sleep(0)
        self._disk.on_step()
        del self._file.content[size:]
        self._file.synced = size
        self._file.reserved = 0

    async def close(self) -> None:
        self._is_closed = True

    def _append(self, chunks: Sequence[Chunk]) -> int:
        assert not self._is_closed
        self._refuse_broken()
        self._disk.take_error("append")
        self._disk.on_step()
        self._disk.require_room(sum(map(len, chunks)))
        offset = len(self._file.content)
        for chunk in chunks:
            self._file.content += chunk
        return offset

    def _refuse_broken(self) -> None:
        if self._file.broken is not None:
            raise self._file.broken
