"""Storage decides who may add, what is fenced, and where an entry is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY, OTHER_KEY, make_add
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.config import BookieConfig
from geminga_bookie.disks.directories import Directories
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.formats.entry_log_v1 import LedgerRecord, cut_blocks
from geminga_bookie.formats.journal_v1 import ExplicitLac, Fence
from geminga_bookie.index.index import Change, Index
from geminga_bookie.index.memory_store import MemoryStore
from geminga_bookie.storage.storage import ADMISSION_BYTES, Storage, admission_prefix
from geminga_protocol.bookkeeper.availability import runs_of
from geminga_protocol.bookkeeper.errors import (
    BookieFailed,
    BookieReadOnly,
    BookieRefusal,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    WrongMasterKey,
)
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY, Flag
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

RECOVERY = int(Flag.RECOVERY_ADD)


def nothing() -> None:
    """Ignore it."""


def make_storage(
    disk: MemoryDisk | None = None, on_read_only: Callable[[], None] = nothing
) -> Storage:
    disk = disk or MemoryDisk()
    entry_log = EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=1 << 30)
    return Storage(BookieConfig(), Index(MemoryStore()), entry_log, on_read_only=on_read_only)


def add(storage: Storage, ledger_id: int, entry_id: int, entry: bytes, flags: int = 0) -> None:
    storage.admit(ledger_id, KEY, flags)[entry_id] = entry


async def flush(storage: Storage, ledger_id: int, entries: dict[int, bytes]) -> None:
    """Put entries into the entry log, as a checkpoint would."""
    blocks = [(block, KEY) for block in cut_blocks(ledger_id, entries, 60)]
    locations = await storage.entry_log.append(blocks)
    record = LedgerRecord(ledger_id, KEY, is_fenced=False, last_entry=max(entries))
    await storage.index.commit(Change(blocks=locations, ledgers=[record]))


def test_the_admission_prefix_is_how_an_add_begins() -> None:
    for flags in (0, 2, 4):
        prefix = admission_prefix(9, KEY, flags)
        assert len(prefix) == ADMISSION_BYTES
        assert make_add(9, 3, flags=flags)[4:].startswith(prefix)


def test_an_admitted_ledger_is_writable_by_the_same_bytes_only() -> None:
    storage = make_storage()
    entries = storage.admit(1, KEY, 0)
    assert storage.write_cache.writable == {admission_prefix(1, KEY, 0): entries}
    assert storage.admit(1, KEY, RECOVERY) is entries


def test_a_ledger_belongs_to_the_key_it_began_with() -> None:
    storage = make_storage()
    storage.admit(1, KEY, 0)
    for flags in (0, RECOVERY):
        with pytest.raises(WrongMasterKey):
            storage.admit(1, OTHER_KEY, flags)
    with pytest.raises(WrongMasterKey):
        storage.fence(1, OTHER_KEY)


def test_a_fence_refuses_adds_but_those_of_recovery() -> None:
    storage = make_storage()
    for flags in (0, 4, RECOVERY):
        storage.admit(1, KEY, flags)
    storage.admit(2, KEY, 0)
    ledger = storage.fence(1, KEY)
    assert ledger.is_fenced
    assert not ledger.is_fence_durable
    assert set(storage.write_cache.writable) == {
        admission_prefix(1, KEY, RECOVERY),
        admission_prefix(2, KEY, 0),
    }
    for flags in (0, 4):
        with pytest.raises(LedgerFenced):
            storage.admit(1, KEY, flags)
    storage.admit(1, KEY, RECOVERY)
    assert storage.fence(1, KEY) is ledger


@pytest.mark.parametrize("flags", [8, 0x100, 0xFFFD])
def test_adds_with_unknown_flags_are_decided_one_by_one(flags: int) -> None:
    storage = make_storage()
    storage.admit(1, KEY, flags)
    assert storage.write_cache.writable == {}
    storage.fence(1, KEY)
    with pytest.raises(LedgerFenced):
        storage.admit(1, KEY, flags)
    storage.admit(1, KEY, flags | RECOVERY)
    assert storage.write_cache.writable == {}


def test_a_ledger_can_be_fenced_before_anything_was_added() -> None:
    storage = make_storage()
    storage.fence(1, KEY)
    with pytest.raises(LedgerFenced):
        storage.admit(1, KEY, 0)
    with pytest.raises(NoSuchEntry):
        storage.find(1, LAST_ENTRY)


def test_no_adds_are_taken_while_there_is_a_reason() -> None:
    changes: list[bool] = []
    storage = make_storage(on_read_only=lambda: changes.append(storage.is_read_only))
    storage.admit(1, KEY, 0)
    storage.refuse_adds("one")
    storage.refuse_adds("two")
    assert storage.write_cache.writable == {}
    for flags in (0, RECOVERY):
        with pytest.raises(BookieReadOnly):
            storage.admit(1, KEY, flags)
    storage.fence(1, KEY)
    storage.allow_adds("one")
    assert storage.is_read_only
    storage.allow_adds("two")
    storage.allow_adds("two")
    storage.admit(2, KEY, 0)
    assert changes == [True, False]


def test_entries_in_memory_are_found_at_once() -> None:
    storage = make_storage()
    add(storage, 1, 0, b"zero")
    add(storage, 1, 5, b"five")
    assert storage.find(1, 0) == b"zero"
    assert storage.find(1, LAST_ENTRY) == b"five"


def test_what_does_not_exist_is_told_apart() -> None:
    storage = make_storage()
    with pytest.raises(NoSuchLedger):
        storage.find(1, 0)
    with pytest.raises(NoSuchLedger):
        storage.find(1, LAST_ENTRY)
    add(storage, 1, 5, b"five")
    with pytest.raises(NoSuchEntry):
        storage.find(1, 6)
    with pytest.raises(NoSuchEntry):
        storage.find(1, 4)


async def test_entries_in_the_entry_log_are_fetched_with_their_neighbours() -> None:
    disk = MemoryDisk()
    storage = make_storage(disk)
    await flush(storage, 1, {number: b"%010d" % number for number in range(20)})
    assert storage.find(1, 7) is None
    assert await storage.fetch(1, 7) == b"%010d" % 7
    reads = disk.reads
    assert storage.find(1, 8) == b"%010d" % 8
    assert await storage.fetch(1, 8) == b"%010d" % 8
    assert disk.reads == reads
    assert await storage.fetch(1, LAST_ENTRY) == b"%010d" % 19
    with pytest.raises(NoSuchEntry):
        storage.find(1, 20)


async def test_the_last_entry_may_be_in_memory_or_on_disk() -> None:
    storage = make_storage()
    await flush(storage, 1, {number: b"%d" % number for number in range(20)})
    add(storage, 1, 12, b"again", RECOVERY)
    assert await storage.fetch(1, LAST_ENTRY) == b"19"
    add(storage, 1, 20, b"twenty")
    assert storage.find(1, LAST_ENTRY) == b"twenty"


async def test_a_hole_in_a_block_is_no_entry() -> None:
    storage = make_storage()
    await flush(storage, 1, {0: b"zero", 3: b"three"})
    for entry_id in (1, 2):
        with pytest.raises(NoSuchEntry):
            await storage.fetch(1, entry_id)
    await flush(storage, 1, {2: b"two"})
    assert await storage.fetch(1, 2) == b"two"
    assert await storage.fetch(1, 3) == b"three"


async def test_entries_keys_and_fences_are_known_after_a_restart() -> None:
    disk = MemoryDisk()
    storage = make_storage(disk)
    await flush(storage, 1, {0: b"zero"})
    record = LedgerRecord(2, KEY, is_fenced=True, last_entry=-1)
    await storage.index.commit(Change(ledgers=[record]))
    again = Storage(BookieConfig(), storage.index, storage.entry_log, on_read_only=nothing)
    assert await again.fetch(1, 0) == b"zero"
    with pytest.raises(WrongMasterKey):
        again.admit(1, OTHER_KEY, 0)
    with pytest.raises(LedgerFenced):
        again.admit(2, KEY, 0)
    assert again.fence(2, KEY).is_fence_durable


def test_what_a_writer_says_is_confirmed_is_kept_for_the_checkpoint() -> None:
    storage = make_storage()
    storage.set_explicit_lac(1, KEY, b"said")
    storage.set_explicit_lac(1, KEY, b"said later")
    (ledger,) = storage.ledgers.take_changed().values()
    assert ledger.explicit_lac == b"said later"
    with pytest.raises(WrongMasterKey):
        storage.set_explicit_lac(1, OTHER_KEY, b"said by another")
    storage.refuse_adds("no reason")
    with pytest.raises(BookieReadOnly):
        storage.set_explicit_lac(1, KEY, b"said too late")


async def test_what_a_writer_said_is_known_after_a_restart() -> None:
    storage = make_storage()
    record = LedgerRecord(2, KEY, is_fenced=False, last_entry=-1, explicit_lac=b"said")
    await storage.index.commit(Change(ledgers=[record]))
    ledger = storage.ledgers.find(2)
    assert ledger is not None
    assert ledger.explicit_lac == b"said"
    storage.restore_mark(ExplicitLac(2, KEY, b"said later"))
    assert ledger.explicit_lac == b"said later"


def test_what_the_journal_says_is_restored_without_asking() -> None:
    storage = make_storage()
    storage.restore_mark(Fence(1, KEY))
    storage.restore_add(1, 0, KEY, b"zero")
    assert storage.find(1, 0) == b"zero"
    assert storage.fence(1, KEY).is_fence_durable
    assert storage.ledgers.changed
    assert storage.write_cache.active_bytes > 4
    with pytest.raises(LedgerFenced):
        storage.admit(1, KEY, 0)


def test_an_index_that_cannot_be_read_is_the_bookies_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = make_storage()

    def broken(_index: Index, ledger_id: int) -> None:
        raise OSError(5, str(ledger_id))

    monkeypatch.setattr(Index, "ledger", broken)
    tries: list[Callable[[], object]] = [
        lambda: storage.find(1, 0),
        lambda: storage.admit(1, KEY, 0),
        lambda: storage.fence(1, KEY),
    ]
    for attempt in tries:
        with pytest.raises(BookieRefusal) as caught:
            attempt()
        assert type(caught.value) is BookieFailed


def test_settings_reach_the_caches() -> None:
    settings = replace(BookieConfig(), read_cache_bytes_max=5)
    entry_log = EntryLog(Directories([("", MemoryDisk())]), SimulatedClock(), file_bytes_max=1)
    storage = Storage(settings, Index(MemoryStore()), entry_log, on_read_only=nothing)
    storage.read_cache.put(1, {0: b"12345"})
    storage.read_cache.put(1, {1: b"1"})
    assert storage.read_cache.find(1, 0) is None


@given(st.lists(st.sets(st.integers(0, 60), max_size=30), min_size=1, max_size=4), st.booleans())
@settings(max_examples=40)
def test_entry_runs_are_the_union_of_all_adds(batches: list[set[int]], is_flushed: bool) -> None:  # noqa: FBT001
    async def run() -> None:
        host = Host(block_bytes=300)
        async with host.bookie() as bookie:
            client = host.network.connect_client()
            await client.ask(make_add(1, 0))
            for batch in batches:
                if batch:
                    await client.ask(*(make_add(1, number) for number in batch))
                if is_flushed:
                    await bookie.checkpointer.run()
            wanted = runs_of(sorted({0}.union(*batches)))
            assert await bookie.storage.entry_runs(1) == wanted

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())


async def test_a_ledger_without_entries_has_no_runs() -> None:
    async with Host().bookie() as bookie:
        with pytest.raises(NoSuchLedger):
            await bookie.storage.entry_runs(1)
        bookie.storage.fence(1, KEY)
        assert await bookie.storage.entry_runs(1) == []
