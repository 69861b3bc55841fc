"""The journal: makes adds durable, a group at a time, and then answers them.

A group is everything that arrived while the group before it was being written. The order of events:

1. A session appends to the group that forms (``forming``) and puts a waiter on it.
2. The writer task takes the group; what arrives from now on forms the next one.
3. The group is written and synced with one hand-over to the disk. On return it is durable.
4. ``on_written`` is called, then the waiters in their order: only now is an add answered.

A crash before 3 leaves nothing of the group, or a torn part of it at the very end of the last file,
which replay cuts off: none of its adds were answered. A crash between 3 and 4 leaves a whole group
that was not answered either; replay brings its entries back, and a client that sends them again
writes the same bytes.

After a write or sync that failed, what is on the disk cannot be known: the kernel may have dropped
the pages and reports no second error. So the journal takes nothing more until the bookie starts
again, and every waiter is called with a failure.

Whether a group waits for more entries is decided in ``decisions.group_pacing``, what it looks like
on disk in ``formats.journal_v1``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from geminga_bookie.decisions.group_pacing import GroupPacing
from geminga_bookie.formats import journal_v1 as layout
from geminga_bookie.formats.journal_v1 import JournalMark, Mark
from geminga_runtime.clock import Clock
from geminga_runtime.disk import Disk, DiskFile
from geminga_runtime.service import Service
from geminga_server.metrics import Durations

log = logging.getLogger(__name__)

# Reserved from the device at a time, so that a sync need not make the file's growth durable as
# well: 1 KiB took 0.28 ms and 149 us of CPU instead of 0.33 and 175 (ext4, Linux 6.18). After a
# crash at most so many zeros follow the last group.
RESERVE_BYTES = 16 * 1024 * 1024

# Called with the argument it was put down with, and whether the group is durable.
Waiter = Callable[[Any, bool], None]


@dataclass(slots=True, eq=False)
class Group:
    """What is written and synced together."""

    # The items as ``journal_v1`` draws them, in pieces of ``size`` bytes together. Large pieces are
    # views of what the sockets gave, not copies.
    chunks: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    # The checksum of the pieces, computed as they come.
    crc: int = 0
    # Adds; a fence or an explicit last-add-confirmed counts as one.
    entries: int = 0
    # When the first of them came: add latencies are counted from here.
    opened_s: float = 0.0
    # Called in order when the group is durable or has failed, each with its argument.
    waiters: list[tuple[Waiter, Any]] = field(default_factory=list)


class Journal(Service):
    """Appends groups to numbered files on ``disk``.

    To add: append to ``forming`` by one of the methods below, and put a waiter on it, once for all
    that the waiter stands for. Nothing may be awaited between the two: the writer task may take the
    group meanwhile.

    ``on_written`` is called after each group, before its waiters; ``on_failed`` once, before any
    waiter learns of the failure.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        file_bytes_max: int,
        group_interval_max_s: float,
        close_timeout_s: float,
        on_written: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        super().__init__()
        self._disk = disk
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._close_timeout_s = close_timeout_s
        self._pacing = GroupPacing(group_interval_max_s)
        self._on_written = on_written
        self._on_failed = on_failed
        # The file that is appended to, its number, and the seed of its groups' checksums. There is
        # no file only while one is closed and the next one is not made yet, or after that failed.
        self._file: DiskFile | None = None
        self._seed = 0
        self._file_number = 0
        # The number of the group that is written next. It rises over all files and all restarts, so
        # that replay notices a group that is missing.
        self._next_group = 1
        # The files before it that still exist, rising. The writer task adds to the end, ``trim``
        # takes from the front.
        self._old_files: list[int] = []
        # Set by the first item that ``forming`` gets, cleared when the writer takes the group.
        self._has_work = asyncio.Event()
        # Cleared by the first item too, but set again only when everything is durable or has
        # failed.
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        # The group that the next write takes. Read it anew for each use.
        self.forming = Group()
        # Why the journal takes nothing more; None while it works.
        self.error: OSError | None = None
        # The end of the last durable group. A checkpoint that begins now reaches up to here. It
        # always stands in a file whose header is durable, because a start fails where the file of
        # its mark is missing.
        self.mark = JournalMark(0, 0, 0)
        # Of the group that is being written: not durable yet, and not in ``forming`` any more. What
        # waits for the disk is this and what forms; while both together are more than
        # ``journal_queue_bytes_max``, no socket is read.
        self.writing_bytes = 0
        self.writing_entries = 0
        # Counted since the start.
        self.written_bytes = 0
        self.groups = 0
        self.add_durations = Durations()
        self.sync_durations = Durations()

    def continue_after(self, file_numbers: Sequence[int], next_group: int) -> None:
        """Say, before the journal opens, which files exist already and which number comes next."""
        self._old_files = sorted(file_numbers)
        self._file_number = max(file_numbers, default=0)
        self._next_group = next_group

    async def _open(self, stack: AsyncExitStack) -> None:
        # A new file at each start: what the last run left is never appended to.
        await self._open_next_file()
        # The service ends its tasks before it leaves the stack, so that the file is closed under no
        # write.
        stack.push_async_callback(self._close_file)
        self.spawn(self._write_groups(), name="journal writer")

    async def _close(self) -> None:
        # ``super`` cancels the writer task: what waits must be written before that.
        await self.drain()
        await super()._close()

    async def drain(self) -> None:
        """Wait until everything appended is durable or has failed, at most ``close_timeout_s``."""
        try:
            async with asyncio.timeout(self._close_timeout_s):
                await self._is_idle.wait()
        except TimeoutError:
            log.warning("journal closes with adds that were not written")

    async def _close_file(self) -> None:
        if self._file is None:
            return  # rotating was cut short: one file is closed, and the next one not made
        # Give back what is reserved: a bookie that does not run needs no room for more. Not where
        # the disk has failed or hangs: what is there must not be touched any more.
        if self.error is None and self._is_idle.is_set():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._close_timeout_s):
                    await self._file.truncate(self._file.size)
        await self._file.close()

    # Appending. Nothing here waits.

    def append_adds(self, requests: bytes | memoryview, count: int) -> None:
        """Append ``count`` V2 requests to add, as they came, each with its size.

        HOT: once for each piece that a socket gave, whatever the number of adds in it.
        """
        group = self.forming
        size = len(requests)
        header = layout.encode_adds_header(size)
        group.chunks += (header, requests)
        # The checksum runs on over all pieces of the body. Computed here, it does not delay the
        # write, which all clients of the group wait for.
        group.crc = crc32c(requests, crc32c(header, group.crc))
        group.size += size + layout.ITEM_HEADER_BYTES
        # The first item of the group: the writer task may be asleep.
        if not group.entries:
            self._wake(group)
        group.entries += count

    def append_mark(self, mark: Mark) -> None:
        """Append that a ledger is fenced, or what its writer said without an entry."""
        item = layout.encode_mark(mark)
        group = self.forming
        group.chunks.append(item)
        group.crc = crc32c(item, group.crc)
        group.size += len(item)
        if not group.entries:
            self._wake(group)
        group.entries += 1

    def _wake(self, group: Group) -> None:
        group.opened_s = self._clock.monotonic()
        # Both events change at once, so that ``drain`` does not return between an append and its
        # write.
        self._is_idle.clear()
        self._has_work.set()

    async def trim(self, mark: JournalMark) -> None:
        """Remove the files that lie wholly before ``mark``. Raises ``OSError``.

        The caller has made the mark durable in the index: no start replays these files any more.
        """
        # The file of the mark itself stays, even where the mark is its end: the index names it.
        while self._old_files and self._old_files[0] < mark.file_number:
            # Off the list first: a file that cannot be removed is left to the next start, which
            # does not replay it either.
            number = self._old_files.pop(0)
            await self._disk.remove(layout.file_name(number))

    # Writing; one task.

    async def _write_groups(self) -> None:
        while True:
            # Each turn: wait for the first item, give others time to join it, write and answer the
            # group, and begin a new file where this one is large enough. A failure ends the task
            # for good.
            await self._has_work.wait()
            # Let the group grow for a while, if that was found to be worth it.
            now_s = self._clock.monotonic()
            wait_s = self._pacing.wait_s(now_s, self.forming.entries)
            if wait_s:
                await asyncio.sleep(wait_s)
                now_s = self._clock.monotonic()
            # Nothing is awaited from here until ``_write`` has put a new group in this one's place:
            # nothing is appended to a group whose size and checksum are in its header already.
            group = self.forming
            self._pacing.started(now_s, group.entries)
            try:
                await self._write(group)
                assert self._file is not None
                if self._file.size >= self._file_bytes_max:
                    # No other file may exist while zeros follow the last group: replay would call
                    # it damage.
                    await self._file.truncate(self._file.size)
                    await self._file.close()
                    self._file = None
                    # Until the next file has its header, ``mark`` stays at the end of this one. A
                    # checkpoint that begins in between names this file, and ``trim`` leaves it.
                    self._old_files.append(self._file_number)
                    await self._open_next_file()
            except OSError as error:
                self._fail(group, error)
                return
            except Exception as error:
                # A bug of ours, not the disk's. What waits must be answered all the same.
                self._fail(group, OSError(f"{type(error).__name__}: {error}"))
                raise

    async def _write(self, group: Group) -> None:
        """Make ``group`` durable, then answer it. What comes meanwhile forms the next group."""
        assert self._file is not None
        # Sessions hold on to the group that their last adds are in, and see by this that it is
        # closed.
        self.forming = Group()
        self._has_work.clear()
        self.writing_bytes = group.size
        self.writing_entries = group.entries
        header = layout.encode_group_header(self._seed, self._next_group, group.size, group.crc)
        started_s = self._clock.monotonic()
        await self._file.append_and_sync([header, *group.chunks])
        # Durable. Everything below happens in one turn of the loop, so a checkpoint never sees the
        # mark of a group whose bytes are still counted as being written.
        now_s = self._clock.monotonic()
        self._next_group += 1
        self.mark = JournalMark(self._file_number, self._file.size, self._next_group)
        self.writing_bytes = self.writing_entries = 0
        self.written_bytes += group.size
        self.groups += 1
        self.sync_durations.add((now_s - started_s) * 1000)
        self.add_durations.add((now_s - group.opened_s) * 1000, group.entries)
        self._on_written()
        # Each waiter is off the list before it is called: where one raises, ``_fail`` calls the
        # others, and none is called twice.
        waiters = group.waiters
        waiters.reverse()
        while waiters:
            waiter, argument = waiters.pop()
            waiter(argument, True)  # noqa: FBT003 a keyword would cost every waiter
        # A client's answer, or a fence that became durable, may have led to another append by now.
        if not self._has_work.is_set():
            self._is_idle.set()

    def _fail(self, group: Group, error: OSError) -> None:
        """Refuse everything from now on; call all waiters, of ``group`` and of what came since."""
        self.error = error
        log.error(
            "journal failed: the bookie takes no more adds until it is started again",
            extra={"file": layout.file_name(self._file_number), "error": str(error)},
        )
        # First the bookie becomes read-only: a client that sends its add again, as soon as it is
        # told, must be refused.
        self._on_failed(error)
        waiters = group.waiters + self.forming.waiters
        group.waiters = []
        self.forming = Group()
        self.writing_bytes = self.writing_entries = 0
        self._is_idle.set()
        for waiter, argument in waiters:
            waiter(argument, False)  # noqa: FBT003 the same

    async def _open_next_file(self) -> None:
        """Begin a file whose header is durable before any group is written behind it."""
        number = self._file_number + 1
        path = layout.file_name(number)
        file = await self._disk.open(path, reserve_bytes=RESERVE_BYTES, is_reread=False)
        # The time makes the seed another one for each file: a number may come back, where replay
        # removed a last file that had no group.
        header = layout.encode_file_header(number, self._clock.wall_ms())
        try:
            if file.size:  # a crash tore it while it was made
                await file.truncate(0)
            await file.append_and_sync([header])
        except OSError:
            await file.close()
            raise
        # Everything that tells where the journal stands changes in one turn, after the header is
        # durable.
        decoded = layout.decode_file_header(path, header)
        assert decoded is not None
        self._file = file
        self._file_number = number
        self._seed = decoded.seed
        self.mark = JournalMark(number, file.size, self._next_group)
        log.info("journal file opened", extra={"file": path})
