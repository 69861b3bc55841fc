"""Checkpoints bring everything to the entry log before the journal lets go of it, or try again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest
from tests.unit.geminga_bookie.fakes import KEY
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.config import BookieConfig
from geminga_bookie.disks.directories import Directories
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.formats.index_v2 import Counts
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_bookie.index.index import Change, Index
from geminga_bookie.index.memory_store import MemoryStore
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.storage import Storage
from geminga_protocol.bookkeeper.errors import BookieReadOnly
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY
from geminga_simulation.event_loop.clock import SimulatedClock

CONFIG = replace(BookieConfig(), write_cache_bytes_max=1000, checkpoint_interval_s=60.0)


class Rig:
    """A checkpointer with all it works on; ``position`` is where the journal is."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.disk = MemoryDisk()
        self.store = store or MemoryStore()
        entry_log = EntryLog(
            Directories([("", self.disk)]), SimulatedClock(), file_bytes_max=1 << 30
        )
        self.storage = Storage(
            CONFIG, Index(self.store), entry_log, on_read_only=self._note_read_only
        )
        self.read_only: list[bool] = []
        self.position = JournalMark(1, 32, 1)
        self.trimmed: list[JournalMark] = []
        self.done = 0
        self.checkpointer = Checkpointer(
            CONFIG,
            self.storage,
            marks=lambda: [self.position],
            trim=self._trim,
            on_done=self._note_done,
        )

    def add(self, ledger_id: int, entry_id: int, entry: bytes = b"x") -> None:
        self.storage.admit(ledger_id, KEY, 0)[entry_id] = entry
        self.storage.write_cache.active_bytes += len(entry)
        group = self.position.next_group + 1
        self.position = JournalMark(1, self.position.offset + len(entry), group)

    async def settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    def _trim(self, marks: Sequence[JournalMark]) -> Awaitable[None]:
        self.trimmed += marks
        return asyncio.sleep(0)

    def _note_done(self) -> None:
        self.done += 1

    def _note_read_only(self) -> None:
        self.read_only.append(self.storage.is_read_only)


async def test_everything_is_in_the_entry_log_afterwards() -> None:
    rig = Rig()
    rig.add(1, 0, b"zero")
    rig.add(1, 1, b"one")
    rig.add(7, 3, b"three")
    await rig.checkpointer.run()
    assert rig.storage.write_cache.used_bytes == 0
    assert await rig.storage.fetch(1, 0) == b"zero"
    assert await rig.storage.fetch(1, LAST_ENTRY) == b"one"
    assert await rig.storage.fetch(7, 3) == b"three"
    assert rig.storage.index.journal_marks() == (rig.position,)
    assert rig.storage.index.log_end() == rig.storage.entry_log.end
    assert rig.trimmed == [rig.position]
    assert rig.storage.counts == rig.storage.index.counts() == Counts(2, 3)
    assert (rig.done, rig.checkpointer.done) == (1, 1)


async def test_it_was_durable_before_the_journal_was_trimmed() -> None:
    rig = Rig()
    rig.add(1, 0, b"zero")
    seen: list[tuple[bytes, tuple[JournalMark, ...]]] = []
    trim = rig.checkpointer._trim

    async def look_then_trim(marks: Sequence[JournalMark]) -> None:
        store = MemoryStore()
        store.write(list(rig.store.flushed()))
        after = rig.disk.after_crash()
        entry_log = EntryLog(Directories([("", after)]), SimulatedClock(), file_bytes_max=1)
        index = Index(store)
        await entry_log.open(index.log_end(), index.logs)
        storage = Storage(CONFIG, index, entry_log, on_read_only=rig._note_done)
        seen.append((await storage.fetch(1, 0), storage.index.journal_marks()))
        await trim(marks)

    rig.checkpointer._trim = look_then_trim
    await rig.checkpointer.run()
    assert seen == [(b"zero", (rig.position,))]


async def test_a_second_generation_counts_its_ledgers_once() -> None:
    rig = Rig()
    rig.add(1, 0)
    await rig.checkpointer.run()
    rig.add(1, 1)
    rig.add(2, 0)
    await rig.checkpointer.run()
    assert rig.storage.counts == Counts(2, 3)


async def test_with_nothing_to_write_nothing_is_written() -> None:
    rig = Rig()
    await rig.checkpointer.run()
    assert (rig.disk.files, rig.done) == ({}, 0)


async def test_a_journal_that_went_on_without_any_change_is_trimmed() -> None:
    rig = Rig()
    rig.add(1, 0, b"zero")
    await rig.checkpointer.run()
    written = rig.disk.contents()
    await rig.checkpointer.run()
    assert rig.done == 1
    rig.position = JournalMark(2, 32, 9)
    await rig.checkpointer.run()
    assert rig.trimmed[-1] == rig.position
    assert rig.storage.index.journal_marks() == (rig.position,)
    assert rig.disk.contents() == written


async def test_a_fence_alone_is_written() -> None:
    rig = Rig()
    rig.storage.fence(5, KEY)
    await rig.checkpointer.run()
    record = rig.storage.index.ledger(5)
    assert record is not None
    assert (record.is_fenced, record.last_entry) == (True, -1)


async def test_what_is_added_meanwhile_belongs_to_the_next() -> None:
    rig = Rig()
    rig.add(1, 0, b"zero")
    mark = rig.position
    rig.disk.gate = asyncio.Event()
    running = asyncio.ensure_future(rig.checkpointer.run())
    await rig.settle()
    rig.add(1, 1, b"one")
    rig.storage.fence(1, KEY)
    rig.disk.gate.set()
    await running
    assert rig.storage.index.journal_marks() == (mark,)
    assert rig.storage.write_cache.find(1, 0) is None
    assert rig.storage.find(1, 1) == b"one"
    assert rig.storage.ledgers.changed
    await rig.checkpointer.run()
    assert await rig.storage.fetch(1, 1) == b"one"
    record = rig.storage.index.ledger(1)
    assert record is not None
    assert (record.is_fenced, record.last_entry) == (True, 1)


async def test_half_a_write_cache_begins_one() -> None:
    rig = Rig()
    async with rig.checkpointer:
        rig.add(1, 0, bytes(499))
        rig.checkpointer.review()
        await rig.settle()
        assert not rig.checkpointer.is_due
        assert rig.done == 0
        rig.add(1, 1, bytes(1))
        rig.checkpointer.review()
        await rig.settle()
        assert rig.done == 1


async def test_time_begins_one() -> None:
    rig = Rig()
    async with rig.checkpointer:
        rig.add(1, 0)
        await asyncio.sleep(CONFIG.checkpoint_interval_s - 1)
        assert rig.done == 0
        await asyncio.sleep(2)
        assert rig.done == 1
        await asyncio.sleep(CONFIG.checkpoint_interval_s * 3)
        assert rig.done == 1


async def test_closing_makes_a_last_one() -> None:
    rig = Rig()
    async with rig.checkpointer:
        rig.add(1, 0)
    assert rig.done == 1
    assert rig.storage.write_cache.used_bytes == 0


async def test_closing_gives_up_on_a_disk_that_hangs() -> None:
    rig = Rig()
    async with rig.checkpointer:
        rig.add(1, 0)
        rig.disk.gate = asyncio.Event()
    assert rig.done == 0


@pytest.mark.parametrize("operation", ["append", "sync", "open"])
async def test_a_failed_one_refuses_adds_loses_nothing_and_is_tried_again(operation: str) -> None:
    rig = Rig()
    async with rig.checkpointer:
        rig.add(1, 0, b"zero")
        rig.disk.fail(operation, errno.ENOSPC)
        rig.checkpointer.request()
        await rig.settle()
        assert rig.checkpointer.failures == 1
        assert rig.storage.find(1, 0) == b"zero"
        assert rig.trimmed == []
        assert rig.storage.index.journal_marks() == ()
        with pytest.raises(BookieReadOnly):
            rig.storage.admit(1, KEY, 0)
        for file in rig.disk.files.values():
            file.broken = None
        await asyncio.sleep(CONFIG.checkpoint_retry_s + 1)
        assert rig.read_only == [True, False]
        assert await rig.storage.fetch(1, 0) == b"zero"
        assert len(rig.trimmed) == 1
        assert rig.storage.counts == Counts(1, 1)


async def test_after_an_unforeseen_error_adds_are_refused_until_a_checkpoint_succeeds() -> None:
    rig = Rig()
    async with rig.checkpointer:
        rig.add(1, 0, b"zero")
        rig.store.on_flush = raise_unforeseen
        rig.checkpointer.request()
        await rig.settle()
        assert (rig.checkpointer.failures, rig.checkpointer.faults) == (1, 1)
        with pytest.raises(BookieReadOnly):
            rig.storage.admit(1, KEY, 0)
        rig.store.on_flush = lambda: None
        await asyncio.sleep(CONFIG.checkpoint_retry_s + 1)
        assert rig.read_only == [True, False]
        assert rig.done == 1


def raise_unforeseen() -> None:
    raise IndexError("a bug")


def fail_flushes(rig: Rig, times: int) -> None:
    """Let the index's next flushes fail."""
    left = list(range(times))

    def fail() -> None:
        if left:
            left.pop()
            raise OSError(errno.EIO, "index")

    rig.store.on_flush = fail


async def test_an_index_that_cannot_be_flushed_is_a_failed_one() -> None:
    rig = Rig()
    rig.add(1, 0, b"zero")
    fail_flushes(rig, 1)
    with pytest.raises(OSError, match="index"):
        await rig.checkpointer.run()
    assert rig.trimmed == []
    rig.add(1, 1, b"one")
    await rig.checkpointer.run()
    await rig.checkpointer.run()
    assert await rig.storage.fetch(1, 0) == b"zero"
    assert await rig.storage.fetch(1, 1) == b"one"
    assert rig.storage.counts == Counts(1, 2)


async def test_an_index_that_cannot_be_flushed_is_told_of_everything_once() -> None:
    rig = Rig()
    rig.add(1, 0, b"zero")
    mark = rig.position
    fail_flushes(rig, 2)
    for _ in range(2):
        with pytest.raises(OSError, match="index"):
            await rig.checkpointer.run()
        assert len(rig.storage.ledgers.new_ids()) + rig.storage.counts.ledgers == 1
    rig.add(1, 1, b"one")
    await rig.checkpointer.run()
    index = rig.storage.index
    assert rig.trimmed == [mark]
    (block,) = index.blocks_of(1)
    assert index.logs[block.log_number].live_bytes == block.size
    assert rig.storage.counts == index.counts() == Counts(1, 1)
    assert rig.storage.find(1, 1) == b"one"


async def test_a_ledger_deleted_while_the_index_cannot_be_flushed_stays_deleted() -> None:
    rig = Rig()
    rig.add(1, 0)
    rig.add(2, 0, b"zero")
    fail_flushes(rig, 1)
    with pytest.raises(OSError, match="index"):
        await rig.checkpointer.run()
    index = rig.storage.index
    rig.storage.forget(1, KEY)
    rig.checkpointer.forget(1)
    index.note(Change(removed_blocks=list(index.blocks_of(1)), removed_ledgers=[1]))
    await rig.checkpointer.run()
    assert index.ledger(1) is None
    assert await rig.storage.fetch(2, 0) == b"zero"
