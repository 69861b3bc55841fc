"""The journal: makes what was added durable, a group at a time, and says so to who waits.

A group is everything that arrived while the group before it was being written. One task writes one
group with one hand-over to the disk and one sync, then answers all who wait for it; meanwhile the
next group forms. Whether it waits for more company is decided in ``pacing``. What a group looks
like on disk is ``formats.journal_v1``'s business, reading it back ``replay``'s.

After a failed write or sync nobody can tell what is on the disk: the journal then takes nothing any
more, and everybody who waits is told that it failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from crc32c import crc32c

from geminga_bookie.decisions.group_pacing import GroupPacing
from geminga_bookie.formats import journal_v1 as layout
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_runtime.clock import Clock
from geminga_runtime.disk import Disk, DiskFile
from geminga_runtime.service import Service
from geminga_server.metrics import Durations

log = logging.getLogger(__name__)

# Taken from the device at a time, so that a sync need not make the file's growth durable as well:
# 1 KiB took 0.28 ms and 149 us of CPU instead of 0.33 and 175 (ext4, Linux 6.18). Whoever dies
# leaves so many zeros behind the last group at the most.
RESERVE_BYTES = 16 * 1024 * 1024

# Called with what was given along, and whether the group is durable.
Waiter = Callable[[Any, bool], None]


class Group:
    """What will be written and synced together: ``chunks`` of ``size`` bytes with checksum ``crc``.

    ``waiters`` are called, each with its argument, when the group is durable or has failed.
    """

    __slots__ = ("chunks", "crc", "entries", "opened_s", "size", "waiters")

    def __init__(self) -> None:
        self.chunks: list[bytes | memoryview] = []
        self.size = 0
        self.crc = 0
        self.entries = 0
        self.opened_s = 0.0
        self.waiters: list[tuple[Waiter, Any]] = []


class Journal(Service):
    """Appends groups to numbered files on ``disk``.

    ``forming`` is the group that the next write takes. To add: append to it, then put a waiter on
    it (once for all that the waiter brings). ``on_written`` is called after each group, before
    its waiters; ``on_failed`` once, before anybody else learns of the failure.
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
        self._file: DiskFile | None = None
        self._seed = 0
        self._file_number = 0
        self._next_group = 1
        self._old_files: list[int] = []
        self._mark = JournalMark(0, 0, 0)
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self.forming = Group()
        self.error: OSError | None = None
        self.writing_bytes = 0
        self._writing_entries = 0
        self.written_bytes = 0
        self.groups = 0
        self.add_durations = Durations()
        self.sync_durations = Durations()

    def continue_after(self, file_numbers: Sequence[int], next_group: int) -> None:
        """Say, before it opens, which files exist already and which number comes next."""
        self._old_files = sorted(file_numbers)
        self._file_number = max(file_numbers, default=0)
        self._next_group = next_group

    async def _open(self, stack: AsyncExitStack) -> None:
        await self._open_next_file()
        stack.push_async_callback(self._close_file)
        self.spawn(self._write_groups(), name="journal writer")

    async def _close(self) -> None:
        await self.drain()
        await super()._close()

    async def drain(self) -> None:
        """Wait till everything added is durable or has failed, at most ``close_timeout_s``."""
        try:
            async with asyncio.timeout(self._close_timeout_s):
                await self._is_idle.wait()
        except TimeoutError:
            log.warning("journal closes with adds that were not written")

    async def _close_file(self) -> None:
        """Give back what is reserved: a bookie that does not run needs no room for more."""
        if self._file is None:
            return  # it was closed, and the next one is not made yet
        if self.error is None and self._is_idle.is_set():  # else the disk fails, or hangs
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._close_timeout_s):
                    await self._file.truncate(self._file.size)
        await self._file.close()

    # Adding; nothing here waits.

    def append_adds(self, requests: bytes | memoryview, count: int) -> None:
        """Add ``count`` V2 requests to add, as they came, each with its size, to ``forming``."""
        group = self.forming
        size = len(requests)
        header = layout.encode_adds_header(size)
        group.chunks += (header, requests)
        group.crc = crc32c(requests, crc32c(header, group.crc))
        group.size += size + layout.ITEM_HEADER_BYTES
        if not group.entries:
            self._wake(group)
        group.entries += count

    def append_fence(self, ledger_id: int, master_key: bytes) -> None:
        """Add to ``forming`` that the ledger is fenced."""
        self._append_item(layout.encode_fence(ledger_id, master_key))

    def append_explicit_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> None:
        """Add to ``forming`` what the ledger's writer said about its last-add-confirmed."""
        self._append_item(layout.encode_explicit_lac(ledger_id, master_key, body))

    def _append_item(self, item: bytes) -> None:
        group = self.forming
        group.chunks.append(item)
        group.crc = crc32c(item, group.crc)
        group.size += len(item)
        if not group.entries:
            self._wake(group)
        group.entries += 1

    @property
    def queued_bytes(self) -> int:
        """Bytes that are not known to be durable yet."""
        return self.forming.size + self.writing_bytes

    @property
    def queued_entries(self) -> int:
        """Entries of the group that forms."""
        return self.forming.entries

    @property
    def unanswered_entries(self) -> int:
        """Entries that are not known to be durable yet."""
        return self.forming.entries + self._writing_entries

    @property
    def mark(self) -> JournalMark:
        """The end of the last durable group."""
        return self._mark

    async def trim(self, mark: JournalMark) -> None:
        """Remove the files that lie wholly before ``mark``."""
        while self._old_files and self._old_files[0] < mark.file_number:
            number = self._old_files.pop(0)
            await self._disk.remove(layout.file_name(number))

    def _wake(self, group: Group) -> None:
        group.opened_s = self._clock.monotonic()
        self._is_idle.clear()
        self._has_work.set()

    # Writing; one task.

    async def _write_groups(self) -> None:
        while True:
            await self._has_work.wait()
            await self._gather_company()
            group = self.forming
            try:
                await self._write(group)
                assert self._file is not None
                if self._file.size >= self._file_bytes_max:
                    await self._rotate()
            except OSError as error:
                self._fail(group, error)
                return
            except Exception as error:
                # A mistake of ours, not of the disk: who waits must not wait for ever.
                self._fail(group, OSError(f"{type(error).__name__}: {error}"))
                raise

    async def _gather_company(self) -> None:
        """Let the group that forms grow, if that was found to be worth it."""
        group = self.forming
        now_s = self._clock.monotonic()
        wait_s = self._pacing.wait_s(now_s, group.entries)
        if wait_s:
            await asyncio.sleep(wait_s)
            now_s = self._clock.monotonic()
        self._pacing.started(now_s, group.entries)

    async def _write(self, group: Group) -> None:
        assert self._file is not None
        self.forming = Group()
        self._has_work.clear()
        self.writing_bytes = group.size
        self._writing_entries = group.entries
        header = layout.encode_group_header(self._seed, self._next_group, group.size, group.crc)
        started_s = self._clock.monotonic()
        await self._file.append_and_sync([header, *group.chunks])
        now_s = self._clock.monotonic()
        self._next_group += 1
        self._mark = JournalMark(self._file_number, self._file.size, self._next_group)
        self.writing_bytes = self._writing_entries = 0
        self.written_bytes += group.size
        self.groups += 1
        self.sync_durations.add((now_s - started_s) * 1000)
        self.add_durations.add((now_s - group.opened_s) * 1000, group.entries)
        self._on_written()
        waiters = group.waiters
        waiters.reverse()
        while waiters:  # who is told is off the list: a mistake in one leaves the others to be told
            waiter, argument = waiters.pop()
            waiter(argument, True)  # noqa: FBT003 a keyword would cost every waiter
        if not self._has_work.is_set():
            self._is_idle.set()

    def _fail(self, group: Group, error: OSError) -> None:
        self.error = error
        log.error(
            "journal failed: the bookie takes no more adds until it is started again",
            extra={"file": layout.file_name(self._file_number), "error": str(error)},
        )
        self._on_failed(error)
        waiters = group.waiters + self.forming.waiters
        group.waiters = []
        self.forming = Group()
        self.writing_bytes = self._writing_entries = 0
        self._is_idle.set()
        for waiter, argument in waiters:
            waiter(argument, False)  # noqa: FBT003 the same

    async def _rotate(self) -> None:
        assert self._file is not None
        # No other file may exist while zeros follow the last group: replay would call it damage.
        await self._file.truncate(self._file.size)
        await self._file.close()
        self._file = None
        self._old_files.append(self._file_number)
        await self._open_next_file()

    async def _open_next_file(self) -> None:
        number = self._file_number + 1
        path = layout.file_name(number)
        file = await self._disk.open(path, reserve_bytes=RESERVE_BYTES, is_reread=False)
        header = layout.encode_file_header(number, self._clock.wall_ms())
        try:
            if file.size:  # a crash tore it while it was made
                await file.truncate(0)
            await file.append_and_sync([header])
        except OSError:
            await file.close()
            raise
        decoded = layout.decode_file_header(path, header)
        assert decoded is not None
        self._file = file
        self._file_number = number
        self._seed = decoded.seed
        self._mark = JournalMark(number, file.size, self._next_group)
        log.info("journal file opened", extra={"file": path})
