"""A disk in memory that behaves as badly as real ones may.

``SimulatedDisk`` is the device and outlives crashes; ``mount()`` gives one process's view of it,
which implements ``geminga_runtime.disk.Disk``. A crash ends all views and open files, and leaves of
each file what was synced, plus what the seed lets survive of the rest: nothing, all, a part cut off
anywhere, or sectors of it with holes (zeros or garbage) between.

What the real ``FileDisk`` makes durable is durable here: names after ``open``, ``write_file`` as a
whole, ``remove``, ``make_directory``, ``truncate``. Each takes effect at one instant while its
caller waits, so a crash meanwhile finds it done or not done, never half. What was reserved behind a
file's end is there as zeros when its process is gone; power may be lost before that was durable.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from geminga_runtime.disk import Chunk, DiskFile
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.errors import SimulationError
from geminga_simulation.event_loop.incarnation import is_dead_here
from geminga_simulation.event_loop.loop import SimulatedLoop

ResultT = TypeVar("ResultT")

SECTOR_BYTES = 512
# Two appends to one file never happen at the same instant: the loop would choose their order.
TICK_S = 0.000_001
# At most so many reserved zeros are found behind a file's end. Real files have megabytes of them;
# readers stop at the first, so few show the same.
RESERVED_FOUND_BYTES_MAX = 4096
# The size of a file system mostly is in memory: so many questions for it read the device.
MEASURE_SHARE = 0.1
CAPACITY_BYTES_DEFAULT = 64 * 1024 * 1024 * 1024


class StoredFile:
    """The bytes of one file."""

    __slots__ = ("content", "doomed", "is_reserved", "synced_size")

    def __init__(self, content: bytes = b"") -> None:
        # As processes see it, and how many bytes of it survive a loss of power.
        self.content = bytearray(content)
        self.synced_size = len(content)
        # Ranges whose sync failed, as (start, end). The system marks their pages clean and never
        # writes them again: after a loss of power they hold something else, synced since or not.
        self.doomed: list[tuple[int, int]] = []
        # Space is reserved behind ``content``.
        self.is_reserved = False


class SimulatedDisk:
    """A device with a name, a capacity and a character (``conditions``).

    ``is_lying`` is a canary: syncs return and make nothing safe, as disks with a volatile cache do.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        conditions: DiskConditions | None = None,
        *,
        capacity_bytes: int = CAPACITY_BYTES_DEFAULT,
        is_lying: bool = False,
    ) -> None:
        self.loop = loop
        self.name = name
        self.random = loop.stream(f"disk {name}")
        self.conditions = conditions or DiskConditions()
        self.capacity_bytes = capacity_bytes
        self.is_lying = is_lying
        # By path, without a leading slash.
        self.files: dict[str, StoredFile] = {}
        self.directories: dict[str, None] = {"": None}
        # Counts the lives of processes on this disk: views of earlier ones are dead.
        self.life = 0
        self.used_bytes = 0
        # Errors ordered by tests, by operation: they come before those of chance.
        self._next_errors: dict[str, list[int]] = {}

    def mount(self) -> MountedDisk:
        """A view for one process: good until the next ``crash`` or ``unmount``."""
        return MountedDisk(self)

    # --- faults -----------------------------------------------------------------------------

    def unmount(self) -> None:
        """The process died, the machine lives: views are dead, every written byte is kept."""
        self.life += 1
        # Sorted: each file draws from the random source.
        for path in sorted(self.files):
            self.show_reserved(self.files[path])

    def crash(self) -> None:
        """Power is lost: unsynced bytes survive as chance has it."""
        self.life += 1
        chance = self.random
        for path in sorted(self.files):
            file = self.files[path]
            content = file.content
            for start, end in file.doomed:
                self._spoil(content, start, min(end, len(content)))
            file.doomed.clear()
            synced_size = min(file.synced_size, len(content))
            tail_bytes = len(content) - synced_size
            if tail_bytes:
                # Of the unsynced tail a quarter of the files keep nothing, half keep a beginning,
                # a quarter all.
                fate = chance.random()
                if fate < 0.25:
                    del content[synced_size:]
                elif fate < 0.75:
                    del content[synced_size + chance.randrange(tail_bytes + 1) :]
                if chance.random() < self.conditions.torn_probability:
                    # Sectors reach the device in any order: some of those that are left did not.
                    start = synced_size
                    while start < len(content):
                        end = min(len(content), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
                        if chance.random() < 0.5:
                            self._spoil(content, start, end)
                        start = end
            if chance.random() < 0.5:
                self.show_reserved(file)
            file.is_reserved = False
            file.synced_size = len(file.content)
        self.used_bytes = sum(len(file.content) for file in self.files.values())

    def fail_next(self, operation: str, error_number: int) -> None:
        """Let the next ``append``, ``sync``, ``read`` or ``write_file`` fail with this errno."""
        self._next_errors.setdefault(operation, []).append(error_number)

    def flip_bit(self, path: str, offset: int | None = None) -> int:
        """Flip one bit, at ``offset`` bytes or anywhere; returns the offset."""
        content = self.files[path].content
        if not content:
            raise SimulationError(f"file {path} of disk {self.name} has no bit to flip")
        if offset is None:
            offset = self.random.randrange(len(content))
        content[offset] ^= 1 << self.random.randrange(8)
        return offset

    def cut(self, path: str, size: int) -> None:
        """Cut a file to ``size`` bytes, as corruption of a file system does."""
        file = self.files[path]
        self.used_bytes -= len(file.content) - size
        del file.content[size:]
        file.synced_size = min(file.synced_size, size)

    def spoil(self, path: str, offset: int, length: int) -> None:
        """Let ``length`` bytes of a file at ``offset`` read as something else from now on."""
        content = self.files[path].content
        self._spoil(content, offset, min(offset + length, len(content)))

    def copy(self, path: str, other: SimulatedDisk) -> None:
        """Copy a file to another device, as an operator may do."""
        copied = other.files[path] = StoredFile(bytes(self.files[path].content))
        other.used_bytes += len(copied.content)

    def lose(self, path: str) -> None:
        """Lose a file."""
        self.used_bytes -= len(self.files.pop(path).content)

    def clear(self) -> None:
        """Replace the device by an empty one."""
        self.files.clear()
        self.directories = {"": None}
        self.used_bytes = 0

    def _spoil(self, content: bytearray, start: int, end: int) -> None:
        """Put what the device held before in the place of bytes: mostly zeros, else garbage."""
        if start < end:
            is_zero = self.random.random() < 0.7
            length = end - start
            content[start:end] = bytes(length) if is_zero else self.random.randbytes(length)

    # --- for the views ----------------------------------------------------------------------

    def show_reserved(self, file: StoredFile) -> None:
        """Let zeros stand where space was reserved: the process that had the file open is gone."""
        if file.is_reserved:
            size = 1 + self.random.randrange(RESERVED_FOUND_BYTES_MAX)
            file.content += bytes(size)
            file.is_reserved = False
            self.used_bytes += size

    def error_of(self, operation: str, probability: float) -> int:
        """The errno with which this operation fails, or 0: one that was ordered, else by chance."""
        planned = self._next_errors.get(operation)
        if planned:
            return planned.pop(0)
        if probability and self.random.random() < probability:
            return errno.EIO
        return 0

    def error_of_write(self, operation: str, size: int) -> int:
        """The same for an operation that takes ``size`` more bytes."""
        if self.used_bytes + size > self.capacity_bytes:
            return errno.ENOSPC
        chance = self.conditions.full_probability
        if chance and self.random.random() < chance:
            return errno.ENOSPC
        return self.error_of(operation, self.conditions.write_error_probability)

    def access_s(self) -> float:
        """How many seconds the next read or write takes."""
        return self._slowed(self.conditions.access_s_max * self.random.random())

    def sync_s(self) -> float:
        """How many seconds the next sync takes."""
        conditions = self.conditions
        spread_s = conditions.sync_s_max - conditions.sync_s_min
        return self._slowed(conditions.sync_s_min + spread_s * self.random.random())

    def _slowed(self, seconds: float) -> float:
        conditions = self.conditions
        if conditions.slow_probability and self.random.random() < conditions.slow_probability:
            return seconds + conditions.slow_s_max * self.random.random()
        return seconds


class _View:
    """What a mounted disk and its files share: they may act only while their life lasts.

    An operation is handed over and takes effect at one instant later, as in a thread: cancelling
    the task that waits for it may come too late to stop it.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        # The life of the disk that this view belongs to.
        self._life = disk.life

    @property
    def is_dead(self) -> bool:
        """Whether this process, or its machine, has died."""
        return self._life != self._disk.life or is_dead_here()

    async def _alive(self) -> None:
        """Return if this process lives; in a dead one this never returns."""
        if self.is_dead:
            await self._disk.loop.create_future()

    async def _perform(self, seconds: float, effect: Callable[[], ResultT]) -> ResultT:
        """Let ``effect`` happen in so many seconds; return or raise what it does."""
        await self._alive()
        loop = self._disk.loop
        future: asyncio.Future[ResultT] = loop.create_future()
        # In virtual time: a device does not go by the clock of the host, which may be wrong.
        loop.after(seconds, self._happen, future, effect)
        return await future

    def _happen(self, future: asyncio.Future[ResultT], effect: Callable[[], ResultT]) -> None:
        # A thread may have begun before its waiter was cancelled, or not.
        was_stopped = future.cancelled() and self._disk.random.random() < 0.5
        if self.is_dead or was_stopped:
            return
        try:
            result = effect()
        except (OSError, ValueError) as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)


class MountedDisk(_View):
    """One process's view of a disk: implements ``geminga_runtime.disk.Disk``."""

    async def open(
        self,
        path: str,
        *,
        reserve_bytes: int = 0,
        is_reread: bool = True,  # noqa: ARG002 no page cache here
    ) -> DiskFile:
        """As ``Disk.open``; raises ``FileNotFoundError`` where the directory is missing."""
        disk = self._disk

        def open_it() -> StoredFile:
            file = disk.files.get(path)
            if file is None:
                self._require_directory(path)
                file = disk.files[path] = StoredFile()
            disk.show_reserved(file)
            return file

        file = await self._perform(disk.access_s(), open_it)
        # The real one syncs the directory: a crash meanwhile finds the file made, and not opened.
        await self._perform(disk.sync_s(), _do_nothing)
        return OpenFile(disk, path, file, is_reserving=reserve_bytes > 0)

    async def read_file(self, path: str) -> bytes | None:
        """As ``Disk.read_file``; raises ``OSError`` (EIO)."""
        disk = self._disk
        await self._alive()
        file = disk.files.get(path)
        if file is None:
            return None
        _raise_if(disk.error_of("read", disk.conditions.read_error_probability), path)
        return bytes(file.content)

    async def write_file(self, path: str, content: bytes) -> None:
        """As ``Disk.write_file``; raises ``OSError`` and leaves the old content."""
        disk = self._disk
        copy = bytes(content)

        def replace_it() -> None:
            self._require_directory(path)
            _raise_if(disk.error_of_write("write_file", len(copy)), path)
            old = disk.files.get(path)
            disk.used_bytes += len(copy) - (len(old.content) if old else 0)
            disk.files[path] = StoredFile(copy)
            disk.loop.trace.note(f"{disk.name}/{path}", copy)

        await self._perform(disk.sync_s(), replace_it)
        await self._perform(disk.sync_s(), _do_nothing)

    async def list(self, directory: str) -> list[str]:
        """As ``Disk.list``."""
        await self._alive()
        stripped = directory.strip("/")
        prefix = f"{stripped}/" if stripped else ""
        names = {
            path[len(prefix) :].split("/", 1)[0]
            for path in (*self._disk.files, *self._disk.directories)
            if path.startswith(prefix) and path != stripped
        }
        return sorted(names)

    async def remove(self, path: str) -> None:
        """As ``Disk.remove``."""
        disk = self._disk

        def remove_it() -> None:
            file = disk.files.pop(path, None)
            if file is not None:
                disk.used_bytes -= len(file.content)
                disk.loop.trace.note(f"{disk.name}/{path} removed")

        await self._perform(disk.access_s(), remove_it)
        await self._perform(disk.sync_s(), _do_nothing)

    async def make_directory(self, path: str) -> None:
        """As ``Disk.make_directory``."""
        disk = self._disk
        parts = path.strip("/").split("/")

        def make_it() -> None:
            for length in range(1, len(parts) + 1):
                disk.directories["/".join(parts[:length])] = None

        await self._perform(disk.sync_s(), make_it)

    def free_bytes(self) -> int:
        """As ``Disk.free_bytes``; raises ``OSError`` where reading the device fails."""
        disk = self._disk
        chance = disk.conditions.read_error_probability * MEASURE_SHARE
        _raise_if(disk.error_of("measure", chance), disk.name)
        return max(0, self._disk.capacity_bytes - self._disk.used_bytes)

    def total_bytes(self) -> int:
        """As ``Disk.total_bytes``."""
        return self._disk.capacity_bytes

    def _require_directory(self, path: str) -> None:
        if path.rpartition("/")[0] not in self._disk.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class OpenFile(_View):
    """One open file: implements ``geminga_runtime.disk.DiskFile``."""

    def __init__(
        self, disk: SimulatedDisk, path: str, file: StoredFile, *, is_reserving: bool
    ) -> None:
        super().__init__(disk)
        # Syncs of appends reserve space behind them.
        self._is_reserving = is_reserving
        self._path = path
        # Shared by all views of the file: what one process wrote, the next one finds.
        self._file = file
        # The errno of a failed sync: from then on every append and sync fails with it.
        self._failure = 0
        self._is_closed = False
        # When the last append that was handed over is done: appends are done in order, one at a
        # time.
        self._append_due_s = 0.0

    @property
    def size(self) -> int:
        """Bytes in the file, synced or not."""
        return len(self._file.content)

    async def append(self, chunks: Sequence[Chunk]) -> int:
        """As ``DiskFile.append``."""
        self._require_open()
        disk = self._disk

        def append_it() -> int:
            content = b"".join(chunks)
            _raise_if(self._failure, self._path)
            _raise_if(disk.error_of_write("append", len(content)), self._path)
            # The end is that of this instant: appends handed over earlier have happened.
            offset = len(self._file.content)
            self._file.content += content
            disk.used_bytes += len(content)
            disk.loop.trace.note(f"{disk.name}/{self._path}", content)
            return offset

        now_s = disk.loop.now_s
        self._append_due_s = max(now_s, self._append_due_s) + disk.access_s() + TICK_S
        return await self._perform(self._append_due_s - now_s, append_it)

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        """As ``DiskFile.append_and_sync``."""
        offset = await self.append(chunks)
        await self.sync()
        # The process may have died in the turn in which the sync was done.
        if self._is_reserving and not self.is_dead:
            self._file.is_reserved = True
        return offset

    async def sync(self) -> None:
        """As ``DiskFile.sync``; covers what was appended before it began."""
        self._require_open()
        disk, file = self._disk, self._file
        # Bytes appended while the sync is under way may or may not be covered; they do not count.
        size = len(file.content)

        def sync_it() -> None:
            _raise_if(self._failure, self._path)
            error_number = disk.error_of("sync", disk.conditions.sync_error_probability)
            if error_number:
                self._failure = error_number
                # A later sync succeeds without these bytes, as on Linux.
                file.doomed.append((file.synced_size, size))
                _raise_if(error_number, self._path)
            if not disk.is_lying:
                # The file may have been cut meanwhile, or synced further by a sync begun later.
                file.synced_size = max(file.synced_size, min(size, len(file.content)))

        await self._perform(disk.sync_s(), sync_it)

    async def read(self, offset: int, length: int) -> bytes:
        """As ``DiskFile.read``; what is not in the page cache takes a while."""
        self._require_open()
        disk = self._disk
        await self._alive()
        if disk.random.random() < disk.conditions.uncached_probability:
            return await self._perform(disk.access_s(), lambda: self._read(offset, length))
        return self._read(offset, length)

    async def truncate(self, size: int) -> None:
        """As ``DiskFile.truncate``; a file is never lengthened by it."""
        self._require_open()
        disk = self._disk

        def cut_it() -> None:
            file = self._file
            assert size <= len(file.content), f"{self._path} has fewer than {size} bytes"
            disk.used_bytes -= len(file.content) - size
            del file.content[size:]
            file.is_reserved = False
            file.synced_size = size
            file.doomed = [(start, min(end, size)) for start, end in file.doomed if start < size]

        await self._perform(disk.access_s(), cut_it)
        await self._perform(disk.sync_s(), _do_nothing)

    async def close(self) -> None:
        """As ``DiskFile.close``."""
        self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the file {self._path} is closed")

    def _read(self, offset: int, length: int) -> bytes:
        disk = self._disk
        _raise_if(disk.error_of("read", disk.conditions.read_error_probability), self._path)
        return bytes(self._file.content[offset : offset + max(0, length)])


def _do_nothing() -> None:
    """The effect of a sync of a directory: what it makes durable has happened already."""


def _raise_if(error_number: int, path: str) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number), path)
