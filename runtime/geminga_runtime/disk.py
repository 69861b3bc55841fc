"""The interface to files.

It is asynchronous and made of whole operations (append a group of chunks and sync it, read a
range), because handing work to a thread costs some 50 us: once for a group, never for each entry.
``FileDisk`` (``file_disk``) works below one directory. Its twin in ``geminga_simulation`` keeps
bytes in memory, tears unsynced writes on a crash and injects errors, without any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Chunk = bytes | bytearray | memoryview


# What is left of appended bytes, where the disk syncs at all:
#
#                          the process is killed     the power fails
#     append               all of them               all, a part, or none
#     append, then sync    all of them               all of them
#
# After a power cut, bytes that were not synced may also be wrong ones: readers check them.
class DiskFile(Protocol):
    """One open file that is only ever appended to, cut off, or read.

    Appends made at the same time are done one after the other. After a failed sync, or a failed
    append that could not be undone, the file takes no more: every later append and sync raises the
    same error, because the kernel forgets what it could not write and would report success the
    next time. Open it again to see what is there.
    """

    @property
    def size(self) -> int:
        """Bytes in the file, appended ones included whether synced or not."""
        ...

    async def append(self, chunks: Sequence[Chunk]) -> int:
        """Write ``chunks`` one after the other at the end; returns the offset of the first byte.

        Raises ``OSError`` (ENOSPC, EIO) with the file as it was before.
        """
        ...

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        """``append`` then ``sync`` in one hand-over; returns the offset of the first byte.

        When the sync fails, the bytes are in the file and may be lost at any time.
        """
        ...

    async def sync(self) -> None:
        """Return when everything appended so far is on stable storage."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes from ``offset``; fewer than ``length`` only at the end of the file."""
        ...

    async def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, give back what is reserved behind them, and sync."""
        ...

    async def close(self) -> None:
        """Close the file once operations under way are done. Does not sync."""
        ...


class Disk(Protocol):
    """A directory tree. Paths are relative, with ``/``."""

    async def open(self, path: str, *, reserve_bytes: int = 0, is_reread: bool = True) -> DiskFile:
        """Open for appending and reading; created empty (its name durable) where missing.

        With ``reserve_bytes``, ``append_and_sync`` takes space from the device so many bytes at a
        time, ahead of what is appended: its syncs then need not make the file's growth durable.
        Reserved bytes do not count as part of the file, until it is opened again without having
        been cut: then they are zeros at its end.

        ``is_reread=False`` says that synced bytes are hardly ever read again: they are dropped from
        the page cache, where they would take the place of bytes that are.
        """
        ...

    async def read_file(self, path: str) -> bytes | None:
        """The whole file, or None where there is none."""
        ...

    async def write_file(self, path: str, content: bytes) -> None:
        """Replace the file as a whole: after a crash it holds the old content or the new."""
        ...

    async def list(self, directory: str) -> list[str]:
        """Names in ``directory``, sorted; empty where it does not exist.

        Files that a crash left of an unfinished ``write_file`` are left out.
        """
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

    def total_bytes(self) -> int:
        """Bytes of the whole disk, the free ones included."""
        ...
