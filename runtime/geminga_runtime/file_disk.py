"""Real files: the only module that opens any.

``FileDisk`` implements ``Disk`` below one directory. Blocking calls run in a few threads. What the
page cache has is read on the event loop, since it takes microseconds and a thread takes more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from geminga_runtime.disk import Chunk, DiskFile
from geminga_runtime.threads import Threads

# Reads at most this long are tried on the event loop first: what the page cache has, it copies in
# microseconds, and a thread costs more.
INLINE_READ_BYTES_MAX = 256 * 1024
# Linux refuses more buffers in one writev (IOV_MAX).
BUFFERS_PER_WRITE_MAX = 1024
# A file that is not read again is dropped from the page cache in steps of so many synced bytes.
FORGET_BYTES = 4 * 1024 * 1024
# What a file is called until it replaces the old one; a crash may leave such a file behind.
UNFINISHED_SUFFIX = ".unfinished"
# "Only what the page cache has": Linux's flag for preadv, 0 elsewhere.
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)


class FileDisk:
    """Real files below ``root``; blocking calls run on ``threads`` threads of its own.

    ``is_synced=False`` skips every fsync (the ``--no-sync`` of continuous-integration clusters):
    a power cut may then lose acknowledged messages, a crash of the process does not.
    """

    def __init__(self, root: Path, *, threads: int = 2, is_synced: bool = True) -> None:
        self._root = root
        self._is_synced = is_synced
        self._threads = Threads(threads, "geminga-disk")
        # Two replacements of one file at once would write to the same unfinished file.
        self._replacing = threading.Lock()
        self._make_directories(root)

    async def open(self, path: str, *, reserve_bytes: int = 0, is_reread: bool = True) -> DiskFile:
        """As ``Disk.open``; nothing is reserved where the file system has no way to."""
        target = self._root / path

        def open_it() -> tuple[int, int]:
            # A new name has to survive a power cut before anything is appended under it.
            is_new = not target.exists()
            # Not inherited by children (``O_CLOEXEC``): a child that lives longer would keep
            # deleted files' space taken.
            descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if is_new:
                self._sync_directory(target.parent)
            return descriptor, os.fstat(descriptor).st_size

        # The whole file as it was found: zeros that were reserved before a crash are part of it
        # now.
        descriptor, size = await self._threads.run(open_it)
        if not self._is_synced or not hasattr(os, "posix_fallocate"):
            reserve_bytes = 0
        if not self._is_synced or not hasattr(os, "posix_fadvise"):
            is_reread = True
        return _OpenFile(
            descriptor,
            size,
            self._threads,
            reserve_bytes,
            is_reread=is_reread,
            is_synced=self._is_synced,
        )

    async def read_file(self, path: str) -> bytes | None:
        """The whole file, or None where there is none."""
        target = self._root / path
        try:
            if target.stat().st_size <= INLINE_READ_BYTES_MAX:
                return target.read_bytes()
            return await self._threads.run(target.read_bytes)
        except FileNotFoundError:
            return None

    async def write_file(self, path: str, content: bytes) -> None:
        """Replace the file as a whole: after a crash it holds the old content or the new."""
        target = self._root / path

        def replace_it() -> None:
            # Beside the target: a file system can only rename within itself.
            unfinished = target.with_name(target.name + UNFINISHED_SUFFIX)
            with self._replacing:
                with unfinished.open("wb") as file:
                    file.write(content)
                    file.flush()
                    # Before the renaming: else a power cut may leave the new name on no content.
                    if self._is_synced:
                        os.fsync(file.fileno())
                unfinished.replace(target)
            # Now the renaming survives as well: the caller may act on the new content.
            self._sync_directory(target.parent)

        await self._threads.run(replace_it)

    async def list(self, directory: str) -> list[str]:
        """Names in ``directory``, sorted; empty where it does not exist."""
        try:
            # On the loop: directories are listed when a bookie starts, and have some hundred files.
            names = [entry.name for entry in (self._root / directory).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.endswith(UNFINISHED_SUFFIX))

    async def remove(self, path: str) -> None:
        """Delete the file, durably; no error where it is missing."""
        target = self._root / path

        def remove_it() -> None:
            try:
                # The space is given back when the last open descriptor is closed: readers may go
                # on.
                target.unlink()
            except FileNotFoundError:
                return
            self._sync_directory(target.parent)

        await self._threads.run(remove_it)

    async def make_directory(self, path: str) -> None:
        """Make the directory and its parents, durably."""
        await self._threads.run(lambda: self._make_directories(self._root / path))

    def free_bytes(self) -> int:
        """Bytes that can still be written by a user other than root."""
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        """Bytes of the whole file system."""
        status = os.statvfs(self._root)
        return status.f_blocks * status.f_frsize

    def close(self) -> None:
        """End the threads after the calls that they were given. Of open files, only what the page
        cache has can then be read."""
        self._threads.close()

    def _make_directories(self, directory: Path) -> None:
        if directory.is_dir():
            return
        self._make_directories(directory.parent)
        directory.mkdir(exist_ok=True)
        self._sync_directory(directory.parent)  # a directory's name stands in its parent

    def _sync_directory(self, directory: Path) -> None:
        if not self._is_synced:
            return
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Descriptor:
    """A file descriptor that is closed when its last user is done.

    A call in a thread goes on when the task that waits for it is cancelled. If the descriptor were
    closed meanwhile, its number might soon belong to another file, and the call would write there.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        # Calls in threads that use the number now.
        self._users = 0
        # Only the loop closes: no close can interrupt a call that is made on the loop.
        self.is_closed = False
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Generator[int]:
        """The number, valid until the block ends; raises ``ValueError`` for a closed file."""
        with self._lock:
            if self.is_closed:
                raise ValueError("the file is closed")
            self._users += 1
        try:
            yield self.number
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            # Only one user can be the last, since a closed descriptor takes no new ones.
            is_last = self.is_closed and self._users == 0
        if is_last:
            os.close(self.number)

    def close(self) -> None:
        """Allow no more users, and close once the last is done. A second call does nothing."""
        with self._lock:
            is_idle = not self.is_closed and self._users == 0
            self.is_closed = True
        if is_idle:
            os.close(self.number)


class _OpenFile:
    """One open file: implements ``DiskFile``."""

    def __init__(
        self,
        descriptor: int,
        size: int,
        threads: Threads,
        reserve_bytes: int,
        *,
        is_reread: bool,
        is_synced: bool,
    ) -> None:
        # The bytes of the file as we know it; reserved space behind them does not count. Written in
        # a thread that holds ``_appending``, and read anywhere: Python replaces an integer as a
        # whole.
        self.size = size
        self._descriptor = _Descriptor(descriptor)
        # How much space is reserved at a time (0: none), and where the reserved space ends.
        self._reserve_bytes = reserve_bytes
        self._reserved_end = 0
        # A file that is not read again is dropped from the page cache up to this offset.
        self._is_reread = is_reread
        self._forgotten_end = size
        self._threads = threads
        self._is_synced = is_synced
        # Guards the end of the file: appends, cuts and reservations, one at a time.
        self._appending = threading.Lock()
        # The error after which the file takes no more.
        self._failure: OSError | None = None
        # False once the file system has refused reads of the page cache alone.
        self._can_read_cached = _NO_WAIT != 0

    # --- on the event loop: the methods of ``DiskFile``, each one call in a thread -----------

    async def append(self, chunks: Sequence[Chunk]) -> int:
        return await self._threads.run(lambda: self._append(chunks))

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        def append_then_sync() -> int:
            # Two hand-overs may append one after the other and then sync at once. Each returns
            # after a sync that began behind its own append.
            offset = self._append(chunks)
            self._sync()
            # Space for the next appends: a sync of a file whose blocks exist need not write the
            # file system's own records.
            if self._reserve_bytes and self.size > self._reserved_end:
                with self._appending, self._descriptor.use() as descriptor:
                    try:
                        # After the sync that callers wait for, in the same call: they wait for this
                        # as well, once for each ``reserve_bytes``.
                        os.posix_fallocate(descriptor, self.size, self._reserve_bytes)
                    except OSError:  # the disk is full, or the file system cannot: no more attempts
                        self._reserve_bytes = 0
                    else:
                        self._reserved_end = self.size + self._reserve_bytes
            if not self._is_reread and self.size >= self._forgotten_end + FORGET_BYTES:
                # The page cache can give the pages to other files, or to the next appends, which
                # then are warm. This is only advice: an error does no harm.
                with self._descriptor.use() as descriptor, suppress(OSError):
                    os.posix_fadvise(descriptor, 0, self.size, os.POSIX_FADV_DONTNEED)
                self._forgotten_end = self.size
            return offset

        return await self._threads.run(append_then_sync)

    async def sync(self) -> None:
        await self._threads.run(self._sync)

    async def read(self, offset: int, length: int) -> bytes:
        if length <= INLINE_READ_BYTES_MAX:
            cached = self._read_cached(offset, length)
            if cached is not None:
                return cached

        def read_range() -> bytes:
            # One pread may give less than was asked for: at most 2 GiB, or up to an I/O error.
            pieces: list[bytes] = []
            # Zeros that were reserved behind the end are no part of the file.
            at, end = offset, min(offset + length, self.size)
            with self._descriptor.use() as descriptor:
                while at < end:
                    # Reads and appends need no common lock: both say where in the file they work.
                    piece = os.pread(descriptor, end - at, at)
                    if not piece:
                        break
                    pieces.append(piece)
                    at += len(piece)
            return b"".join(pieces)

        return await self._threads.run(read_range)

    async def truncate(self, size: int) -> None:
        def cut_and_sync() -> None:
            with self._appending, self._descriptor.use() as descriptor:
                os.ftruncate(descriptor, size)
                self.size = self._reserved_end = self._forgotten_end = size
            self._sync()

        await self._threads.run(cut_and_sync)

    async def close(self) -> None:
        self._descriptor.close()

    # --- in a thread ------------------------------------------------------------------------

    def _append(self, chunks: Sequence[Chunk]) -> int:
        with self._appending, self._descriptor.use() as descriptor:
            self._refuse_after_failure()
            offset = self.size
            try:
                end = offset
                for first in range(0, len(chunks), BUFFERS_PER_WRITE_MAX):
                    end = _write_all(descriptor, chunks[first : first + BUFFERS_PER_WRITE_MAX], end)
            except OSError as error:
                # A part may have reached the file. It must not stay, for the caller gets an error;
                # where it cannot be cut off, the file takes no more.
                try:
                    os.ftruncate(descriptor, offset)
                    self._reserved_end = offset
                except OSError:
                    self._failure = error
                raise
            # Only now: a reader never asks for bytes that are not written yet.
            self.size = end
            return offset

    def _sync(self) -> None:
        with self._descriptor.use() as descriptor:
            self._refuse_after_failure()
            if not self._is_synced:
                return
            try:
                os.fdatasync(descriptor)
            except OSError as error:
                # The kernel marks pages that it could not write as clean. A second sync would
                # succeed without them.
                self._failure = error
                raise

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            # A new object: several tasks that raised the same one would add their traces to it.
            raise OSError(*self._failure.args)

    def _read_cached(self, offset: int, length: int) -> bytes | None:
        """The bytes if the page cache has them all, else None: then a thread has to read them."""
        if not self._can_read_cached:
            return None
        # Up to the end as we know it: zeros that were reserved behind it are no part of the file.
        length = max(0, min(length, self.size - offset))
        buffer = bytearray(length)
        # On the loop, which alone closes: the number cannot be given to another file before
        # ``preadv``.
        if self._descriptor.is_closed:
            raise ValueError("the file is closed")
        try:
            count = os.preadv(self._descriptor.number, [buffer], offset, _NO_WAIT) if length else 0
        except BlockingIOError:
            return None
        except OSError:  # the file system does not support it; a real error comes again in a thread
            self._can_read_cached = False
            return None
        # The page cache had only a part: the thread reads all of it anew.
        return bytes(buffer) if count == length else None


def _write_all(descriptor: int, chunks: Sequence[Chunk], offset: int) -> int:
    """Write ``chunks`` at ``offset``; returns where they end."""
    size = sum(map(len, chunks))
    written = os.pwritev(descriptor, chunks, offset)
    if written < size:  # a short write: a signal or a nearly full disk; the rest in one piece
        rest = memoryview(b"".join(chunks))
        while written < size:
            written += os.pwrite(descriptor, rest[written:], offset + written)
    return offset + size
