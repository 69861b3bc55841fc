"""A lost index is made again from the entry logs: every entry, every key, every fence."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie import memory_disk
from tests.unit.geminga_bookie.fakes import KEY, OTHER_KEY, make_entry
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.disks.directories import Directories
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.errors import EntriesLost
from geminga_bookie.formats.entry_log_v1 import LedgerRecord, cut_blocks, file_name
from geminga_bookie.formats.index_v2 import Counts
from geminga_bookie.index.index import Index
from geminga_bookie.index.memory_store import MemoryStore
from geminga_bookie.storage import rebuild as module
from geminga_bookie.storage.rebuild import rebuild_index
from geminga_simulation.event_loop.clock import SimulatedClock

ENTRIES = {number: b"%010d" % number for number in range(0, 3000, 3)}


async def written_logs(file_bytes_max: int = 1 << 30) -> MemoryDisk:
    disk = MemoryDisk()
    log = EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=file_bytes_max)
    await log.open(None, {})
    await log.append((block, KEY) for block in cut_blocks(1, ENTRIES, 200))
    await log.append_ledgers([LedgerRecord(1, KEY, is_fenced=False, last_entry=2997)])
    await log.append((block, OTHER_KEY) for block in cut_blocks(2, {7: b"x" * 100_000}, 200))
    await log.append_ledgers(
        [
            LedgerRecord(1, KEY, is_fenced=True, last_entry=2997, explicit_lac=b"said"),
            LedgerRecord(3, KEY, is_fenced=True, last_entry=-1),
        ]
    )
    await log.append((block, KEY) for block in cut_blocks(1, {3000: b"last"}, 200))
    await log.close()
    return disk


async def rebuilt(
    disk: MemoryDisk, store: MemoryStore | None = None, *, accepts_loss: bool = False
) -> Index:
    store = store or MemoryStore()
    index = Index(store)
    log = EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=1)
    await rebuild_index(log, index, accepts_loss=accepts_loss)
    store.crash()
    return index


@pytest.mark.parametrize("file_bytes_max", [1 << 30, 1000])
async def test_everything_is_found_again(file_bytes_max: int) -> None:
    disk = await written_logs(file_bytes_max)
    index = await rebuilt(disk)
    log = EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=1)
    await log.open(index.log_end(), index.logs)
    assert log.end == index.log_end()
    for entry_id, entry in ENTRIES.items():
        (location,) = index.blocks(1, entry_id)
        assert (await log.read(location))[entry_id] == entry
    (location,) = index.blocks(2, 7)
    assert (await log.read(location))[7] == b"x" * 100_000
    assert list(index.ledgers()) == [
        LedgerRecord(3, KEY, is_fenced=True, last_entry=-1),
        LedgerRecord(2, OTHER_KEY, is_fenced=False, last_entry=7),
        LedgerRecord(1, KEY, is_fenced=True, last_entry=3000, explicit_lac=b"said"),
    ]
    assert index.counts() == Counts(3, 1002)
    assert index.journal_marks() == ()
    assert index.format_version is not None


async def test_many_blocks_are_told_to_the_index_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCKS_PER_COMMIT", 7)
    index = await rebuilt(await written_logs())
    assert all(list(index.blocks(1, entry_id)) for entry_id in ENTRIES)


async def test_a_torn_end_is_left_out() -> None:
    disk = await written_logs()
    whole = await rebuilt(disk)
    end = whole.log_end()
    assert end is not None
    content = disk.files[file_name(1)].content
    content += content[32:80]
    assert (await rebuilt(disk)).log_end() == end
    disk.files[file_name(2)] = memory_disk.MemoryFile(b"half a header")
    assert (await rebuilt(disk)).log_end() == end


async def test_damage_in_the_middle_is_a_loss_that_names_the_place() -> None:
    disk = await written_logs()
    disk.files[file_name(1)].content[40] ^= 1
    with pytest.raises(EntriesLost, match=f"{file_name(1)}: it is damaged from byte 32 to byte"):
        await rebuilt(disk)
    index = await rebuilt(disk, accepts_loss=True)
    assert list(index.blocks(1, 0)) == []
    for entry_id in list(ENTRIES)[20:]:
        assert list(index.blocks(1, entry_id))


async def test_an_attempt_that_did_not_succeed_leaves_nothing_in_the_index() -> None:
    disk = await written_logs()
    store = MemoryStore()
    disk.files[file_name(1)].content[40] ^= 1
    with pytest.raises(EntriesLost):
        await rebuilt(disk, store)
    disk.files[file_name(1)].content[40] ^= 1
    assert (await rebuilt(disk, store)).logs == (await rebuilt(disk)).logs


@pytest.mark.parametrize("flushes", range(4))
async def test_one_that_was_cut_short_begins_anew(flushes: int) -> None:
    disk = await written_logs(1000)
    store = MemoryStore()
    left = list(range(flushes))

    def stop() -> None:
        if not left:
            raise OSError("killed")
        left.pop()

    store.on_flush = stop
    with pytest.raises(OSError, match="killed"):
        await rebuilt(disk, store)
    store.crash()
    store.on_flush = lambda: None
    whole = MemoryStore()
    assert (await rebuilt(disk, store)).logs == (await rebuilt(disk, whole)).logs
    assert dict(store.flushed()) == dict(whole.flushed())


async def test_a_damaged_file_header_does_not_matter() -> None:
    disk = await written_logs()
    logs = (await rebuilt(disk)).logs
    disk.files[file_name(1)].content[20] ^= 1
    assert (await rebuilt(disk)).logs == logs


async def test_without_a_file_header_a_log_is_lost() -> None:
    disk = await written_logs()
    disk.files[file_name(1)].content[:32] = bytes(32)
    with pytest.raises(EntriesLost, match=f"{file_name(1)}: its header is damaged"):
        await rebuilt(disk)


async def test_a_damaged_block_of_ledgers_is_a_loss() -> None:
    disk = await written_logs()
    content = disk.files[file_name(1)].content
    record = bytes(content).find((3).to_bytes(8, "big") + KEY)
    content[record + 28] ^= 1
    with pytest.raises(EntriesLost, match=file_name(1)):
        await rebuilt(disk)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_log_that_is_missing_is_a_loss_and_its_ledgers_are_named(number: int) -> None:
    disk = await written_logs(1000)
    del disk.files[file_name(number)]
    with pytest.raises(EntriesLost, match=f"{file_name(number)}: it is missing"):
        await rebuilt(disk)
    index = await rebuilt(disk, accepts_loss=True)
    assert index.format_version is not None


async def test_ledgers_that_lack_their_end_are_named_and_end_earlier_if_that_is_accepted() -> None:
    disk = MemoryDisk()
    log = EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=1)
    await log.open(None, {})
    for entry_id in range(3):
        await log.append((block, KEY) for block in cut_blocks(1, {entry_id: b"x"}, 200))
    await log.append_ledgers([LedgerRecord(1, KEY, is_fenced=False, last_entry=2)])
    await log.close()
    del disk.files[file_name(3)]
    with pytest.raises(EntriesLost, match=r"Of 1 ledgers it is known that they lack entries \(1\)"):
        await rebuilt(disk)
    record = (await rebuilt(disk, accepts_loss=True)).ledger(1)
    assert record is not None
    assert record.last_entry == 1


async def log_with_gaps() -> MemoryDisk:
    """One block of ledger 1: entries 0 and 9."""
    disk = MemoryDisk()
    log = EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=1)
    await log.open(None, {})
    entries = {number: make_entry(1, number) for number in (0, 9)}
    await log.append((block, KEY) for block in cut_blocks(1, entries, 200))
    await log.close()
    return disk


async def test_a_damaged_block_ends_with_the_last_entry_that_says_itself_which_it_is() -> None:
    disk = await log_with_gaps()
    content = disk.files[file_name(1)].content
    content[content.find(make_entry(1, 0)) + 30] ^= 8
    index = await rebuilt(disk)
    record = index.ledger(1)
    assert record is not None
    assert record.last_entry == 9
    assert [block.last_entry for block in index.blocks_of(1)] == [9]


async def test_of_a_list_of_ids_that_is_damaged_the_most_is_assumed() -> None:
    disk = await log_with_gaps()
    disk.files[file_name(1)].content[32 + 60 + 7] ^= 8  # 9 becomes 1
    index = await rebuilt(disk)
    assert len(list(index.blocks(1, 9))) == 1
