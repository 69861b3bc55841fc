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
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from geminga_runtime.disk import Chunk, DiskFile
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.errors import SimulationError
from geminga_simulation.event_loop.incarnation import do_nothing, is_dead_here
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.stored_file import StoredFile

ResultT = TypeVar("ResultT")

# Two appends to one file never happen at the same instant: the loop would choose their order.
TICK_S = 0.000_001
# The size of a file system mostly is in memory: so many questions for it read the device.
MEASURE_SHARE = 0.1
CAPACITY_BYTES_DEFAULT = 64 * 1024 * 1024 * 1024


# A file on a simulated disk, and what a loss of power may leave of it:
#
#     0            synced_size                  len(content)    reserved
#     | survives   | nothing, a part, or all,   |               | zeros, or nothing
#     |            | perhaps with holes         |               |
#
# Ranges in ``doomed``, whose sync failed, are spoiled wherever they lie.
class SimulatedDisk:
    """A device with a name, a capacity and a character (``conditions``)."""

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        conditions: DiskConditions | None = None,
        *,
        capacity_bytes: int = CAPACITY_BYTES_DEFAULT,
    ) -> None:
        self.loop, self.name = loop, name
        self.random = loop.stream(f"disk {name}")
        self.conditions = conditions or DiskConditions()
        self.capacity_bytes = capacity_bytes
        # Syncs return and make nothing safe, as on a disk with a volatile cache. Set by the canary,
        # and by the fault injector for a while.
        self.is_lying = False
        # By path, without a leading slash. What processes see, synced or not; only a crash tells
        # the two apart.
        self.files: dict[str, StoredFile] = {}
        self.directories: dict[str, None] = {"": None}
        # Counts the lives of processes on this disk: views of earlier ones are dead. Only
        # ``unmount`` and ``crash`` change it. A view compares it at each operation.
        self.life = 0
        # The sum of the lengths of all files, kept up by every operation that changes one.
        self.used_bytes = 0

    def mount(self) -> MountedDisk:
        """A view for one process: good until the next ``crash`` or ``unmount``."""
        return MountedDisk(self, self.life)

    # --- faults -----------------------------------------------------------------------------

    def unmount(self) -> None:
        """The process died, the machine lives: views are dead, every written byte is kept."""
        # First: operations that are under way find their view dead, and never take effect.
        self.life += 1
        # Sorted: each file draws from the random source.
        for path in sorted(self.files):
            self.used_bytes += self.files[path].show_reserved(self.random)

    def crash(self) -> None:
        """Power is lost: unsynced bytes survive as chance has it."""
        self.life += 1
        for path in sorted(self.files):
            self.files[path].lose_power(self.random, self.conditions.torn_probability)
        # Files were cut and lengthened meanwhile, each in its own way.
        self.used_bytes = sum(len(file.content) for file in self.files.values())

    def flip_bit(self, path: str, offset: int | None = None) -> int:
        """Flip one bit, at ``offset`` bytes or anywhere; returns the offset."""
        content = self.files[path].content
        if not content:
            raise SimulationError(f"file {path} of disk {self.name} has no bit to flip")
        if offset is None:
            offset = self.random.randrange(len(content))
        # ``synced_size`` stays: the flip survives a crash like any other byte.
        content[offset] ^= 1 << self.random.randrange(8)
        return offset

    def cut(self, path: str, size: int) -> None:
        """Cut a file to ``size`` bytes, as corruption of a file system does."""
        file = self.files[path]
        self.used_bytes -= len(file.content) - size
        del file.content[size:]
        # It never exceeds the file: ``lose_power`` takes the difference for the unsynced tail.
        file.synced_size = min(file.synced_size, size)

    def copy(self, path: str, other: SimulatedDisk) -> None:
        """Copy a file to another device, as an operator may do."""
        content = bytearray(self.files[path].content)
        other.files[path] = StoredFile(content, synced_size=len(content))
        other.used_bytes += len(content)

    def lose(self, path: str) -> None:
        """Lose a file."""
        self.used_bytes -= len(self.files.pop(path).content)

    def clear(self) -> None:
        """Replace the device by an empty one."""
        self.files.clear()
        # The same mapping: an operation that is in flight adds to it.
        self.directories.clear()
        self.directories[""] = None
        self.used_bytes = 0

    # --- for the views ----------------------------------------------------------------------

    def error_of(self, probability: float) -> int:
        """The errno with which an operation fails, by chance, or 0."""
        # Without a draw where nothing can fail: good conditions shift no later chance.
        return errno.EIO if probability and self.random.random() < probability else 0

    def error_of_write(self, size: int) -> int:
        """The same for an operation that takes ``size`` more bytes."""
        # Without a draw where it is full for certain.
        is_full = self.used_bytes + size > self.capacity_bytes
        if is_full or self.error_of(self.conditions.full_probability):
            return errno.ENOSPC
        return self.error_of(self.conditions.write_error_probability)

    def access_s(self, *, is_sync: bool = False) -> float:
        """How many seconds the next read, write or (``is_sync``) sync takes."""
        conditions = self.conditions
        chance = self.random.random
        low_s = conditions.sync_s_min if is_sync else 0.0
        high_s = conditions.sync_s_max if is_sync else conditions.access_s_max
        seconds = low_s + (high_s - low_s) * chance()
        if conditions.slow_probability and chance() < conditions.slow_probability:
            seconds += conditions.slow_s_max * chance()
        return seconds


@dataclass(slots=True, eq=False)
class _View:
    """What a mounted disk and its files share: they may act only while their life lasts.

    An operation is handed over and takes effect at one instant later, as in a thread: cancelling
    the task that waits for it may come too late to stop it.
    """

    disk: SimulatedDisk
    # The life of the disk that this view belongs to.
    life: int

    @property
    def is_dead(self) -> bool:
        """Whether this process, or its machine, has died."""
        return self.life != self.disk.life or is_dead_here()

    async def _alive(self) -> None:
        """Return if this process lives; in a dead one this never returns."""
        # A future that no code resolves: the task waits until ``bury`` throws it away. An exception
        # would let the dead process act on it.
        if self.is_dead:
            await self.disk.loop.create_future()

    async def _perform(self, seconds: float, effect: Callable[[], ResultT]) -> ResultT:
        """Let ``effect`` happen in so many seconds; return or raise what it does."""
        await self._alive()
        loop = self.disk.loop
        # The waiter may be cancelled; the operation is then still done, or not, as in a thread
        # pool.
        future: asyncio.Future[ResultT] = loop.create_future()

        def happen() -> None:
            # A thread may have begun before its waiter was cancelled, or not. This is drawn for the
            # dead, too.
            was_stopped = future.cancelled() and self.disk.random.random() < 0.5
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

        # In virtual time: a device does not go by the clock of the host, which may be wrong.
        # ``happen`` asks again whether the view lives: code in the main incarnation, such as a
        # test, outlives a crash of the disk.
        loop.after(seconds, happen)
        return await future


class MountedDisk(_View):
    """One process's view of a disk: implements ``geminga_runtime.disk.Disk``."""

    async def open(
        self,
        path: str,
        *,
        reserve_bytes: int = 0,
        is_reread: bool = True,  # noqa: ARG002 no cache
    ) -> DiskFile:
        """As ``Disk.open``; raises ``FileNotFoundError`` where the directory is missing."""
        disk = self.disk

        def open_it() -> StoredFile:
            file = disk.files.get(path)
            if file is None:
                self._require_directory(path)
                file = disk.files[path] = StoredFile()
            disk.used_bytes += file.show_reserved(disk.random)
            return file

        # Two waits for what is one call of the real disk, so that a crash can fall between them.
        file = await self._perform(disk.access_s(), open_it)
        # The real one syncs the directory: a crash meanwhile finds the file made, and not opened.
        # What such a sync makes durable has happened already, here and below.
        await self._perform(disk.access_s(is_sync=True), do_nothing)
        return OpenFile(disk, self.life, path, file, is_reserving=reserve_bytes > 0)

    async def read_file(self, path: str) -> bytes | None:
        """As ``Disk.read_file``; raises ``OSError`` (EIO)."""
        disk = self.disk
        # At once: the files that are read as a whole are small and in the page cache.
        await self._alive()
        file = disk.files.get(path)
        if file is None:
            return None
        _raise_if(disk.error_of(disk.conditions.read_error_probability), path)
        return bytes(file.content)

    async def write_file(self, path: str, content: bytes) -> None:
        """As ``Disk.write_file``; raises ``OSError`` and leaves the old content."""
        disk = self.disk
        # A copy: the caller may change its buffer while this waits. Synced as a whole: the real one
        # writes another file, syncs it and renames it.
        new = StoredFile(bytearray(content), synced_size=len(content))

        def replace_it() -> None:
            self._require_directory(path)
            _raise_if(disk.error_of_write(new.synced_size), path)
            if path in disk.files:
                disk.lose(path)
            disk.files[path] = new
            disk.used_bytes += new.synced_size
            disk.loop.trace.note(f"{disk.name}/{path}", new.content)

        # The renaming is the one instant at which the new content takes the place of the old.
        await self._perform(disk.access_s(is_sync=True), replace_it)
        await self._perform(disk.access_s(is_sync=True), do_nothing)

    async def list(self, directory: str) -> list[str]:
        """As ``Disk.list``."""
        await self._alive()
        stripped = directory.strip("/")
        prefix = f"{stripped}/" if stripped else ""
        paths = (*self.disk.files, *self.disk.directories)
        below = (path for path in paths if path.startswith(prefix) and path != stripped)
        return sorted({path[len(prefix) :].split("/", 1)[0] for path in below})

    async def remove(self, path: str) -> None:
        """As ``Disk.remove``."""
        disk = self.disk

        def remove_it() -> None:
            if path in disk.files:
                disk.lose(path)
                disk.loop.trace.note(f"{disk.name}/{path} removed")

        await self._perform(disk.access_s(), remove_it)
        await self._perform(disk.access_s(is_sync=True), do_nothing)

    async def make_directory(self, path: str) -> None:
        """As ``Disk.make_directory``."""
        disk = self.disk
        parts = path.strip("/").split("/")
        made = {"/".join(parts[: depth + 1]): None for depth in range(len(parts))}
        # All levels at one instant; each may exist already.
        await self._perform(disk.access_s(is_sync=True), partial(disk.directories.update, made))

    def free_bytes(self) -> int:
        """As ``Disk.free_bytes``; raises ``OSError`` where reading the device fails."""
        disk = self.disk
        _raise_if(disk.error_of(disk.conditions.read_error_probability * MEASURE_SHARE), disk.name)
        return max(0, disk.capacity_bytes - disk.used_bytes)

    def total_bytes(self) -> int:
        """As ``Disk.total_bytes``."""
        return self.disk.capacity_bytes

    def _require_directory(self, path: str) -> None:
        if path.rpartition("/")[0] not in self.disk.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@dataclass(slots=True, eq=False)
class OpenFile(_View):
    """One open file: implements ``geminga_runtime.disk.DiskFile``."""

    path: str
    # Shared by all views of the file: what one process wrote, the next one finds.
    file: StoredFile
    # Syncs of appends reserve space behind them.
    is_reserving: bool
    # The errno of a failed sync: from then on every append and sync fails with it.
    failure: int = 0
    is_closed: bool = False
    # When the last append that was handed over is done: appends are done in order, one at a time.
    append_due_s: float = 0.0

    @property
    def size(self) -> int:
        """Bytes in the file, synced or not."""
        return len(self.file.content)

    async def append(self, chunks: Sequence[Chunk]) -> int:
        """As ``DiskFile.append``."""
        self._require_open()
        disk = self.disk

        def append_it() -> int:
            content = b"".join(chunks)
            _raise_if(self.failure, self.path)
            _raise_if(disk.error_of_write(len(content)), self.path)
            # The end is that of this instant: appends handed over earlier have happened.
            offset = len(self.file.content)
            self.file.content += content
            disk.used_bytes += len(content)
            disk.loop.trace.note(f"{disk.name}/{self.path}", content)
            return offset

        now_s = disk.loop.now_s
        # Appends through one open file queue up behind each other, whatever each of them draws.
        self.append_due_s = max(now_s, self.append_due_s) + disk.access_s() + TICK_S
        return await self._perform(self.append_due_s - now_s, append_it)

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        """As ``DiskFile.append_and_sync``."""
        offset = await self.append(chunks)
        await self.sync()
        # The process may have died in the turn in which the sync was done.
        if self.is_reserving and not self.is_dead:
            self.file.is_reserved = True
        return offset

    async def sync(self) -> None:
        """As ``DiskFile.sync``; covers what was appended before it began."""
        self._require_open()
        disk, file = self.disk, self.file
        # Bytes appended while the sync is under way may or may not be covered; they do not count.
        size = len(file.content)

        def sync_it() -> None:
            _raise_if(self.failure, self.path)
            error_number = disk.error_of(disk.conditions.sync_error_probability)
            if error_number:
                self.failure = error_number
                # A later sync succeeds without these bytes, as on Linux.
                file.doomed.append((file.synced_size, size))
                _raise_if(error_number, self.path)
            if not disk.is_lying:
                # The file may have been cut meanwhile, or synced further by a sync begun later.
                file.synced_size = max(file.synced_size, min(size, len(file.content)))

        await self._perform(disk.access_s(is_sync=True), sync_it)

    async def read(self, offset: int, length: int) -> bytes:
        """As ``DiskFile.read``; what is not in the page cache takes a while."""
        self._require_open()
        disk = self.disk

        def read_it() -> bytes:
            _raise_if(disk.error_of(disk.conditions.read_error_probability), self.path)
            return bytes(self.file.content[offset : offset + max(0, length)])

        await self._alive()
        # Most reads return in the caller's turn: code under test must not rely on a read letting
        # others run.
        if disk.random.random() < disk.conditions.uncached_probability:
            return await self._perform(disk.access_s(), read_it)
        return read_it()

    async def truncate(self, size: int) -> None:
        """As ``DiskFile.truncate``; a file is never lengthened by it."""
        self._require_open()
        disk = self.disk

        def cut_it() -> None:
            file = self.file
            assert size <= len(file.content), f"{self.path} has fewer than {size} bytes"
            disk.used_bytes -= len(file.content) - size
            del file.content[size:]
            file.is_reserved = False
            file.synced_size = size
            file.doomed = [(start, min(end, size)) for start, end in file.doomed if start < size]

        await self._perform(disk.access_s(), cut_it)
        await self._perform(disk.access_s(is_sync=True), do_nothing)

    async def close(self) -> None:
        """As ``DiskFile.close``."""
        # Operations under way go on: the real one closes the file when they are done.
        self.is_closed = True

    def _require_open(self) -> None:
        if self.is_closed:
            raise ValueError(f"the file {self.path} is closed")


def _raise_if(error_number: int, path: str) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number), path)
