"""A lost index is made again from the entry logs: every entry, every key, every fence."""

from __future__ import annotations

import pytest
from tests.unit.magnetar_bookie import memory_disk
from tests.unit.magnetar_bookie.fakes import KEY, OTHER_KEY
from tests.unit.magnetar_bookie.memory_disk import MemoryDisk
from tests.unit.magnetar_ledger.virtual_time import LoopClock

from magnetar_bookie.disks.directories import Directories
from magnetar_bookie.errors import CorruptFile
from magnetar_bookie.formats.entry_log_v1 import LedgerRecord, cut_blocks, file_name
from magnetar_bookie.storage import rebuild as module
from magnetar_bookie.storage.entry_log import EntryLog
from magnetar_bookie.storage.index import Counts, Index
from magnetar_bookie.storage.memory_store import MemoryStore
from magnetar_bookie.storage.rebuild import rebuild_index

ENTRIES = {number: b"%010d" % number for number in range(0, 3000, 3)}


async def written_logs(file_bytes_max: int = 1 << 30) -> MemoryDisk:
    disk = MemoryDisk()
    log = EntryLog(Directories([("", disk)]), LoopClock(), file_bytes_max=file_bytes_max)
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


async def rebuilt(disk: MemoryDisk) -> Index:
    store = MemoryStore()
    index = Index(store)
    log = EntryLog(Directories([("", disk)]), LoopClock(), file_bytes_max=1)
    await rebuild_index(log, index)
    store.crash()
    return index


@pytest.mark.parametrize("file_bytes_max", [1 << 30, 1000])
async def test_everything_is_found_again(file_bytes_max: int) -> None:
    disk = await written_logs(file_bytes_max)
    index = await rebuilt(disk)
    log = EntryLog(Directories([("", disk)]), LoopClock(), file_bytes_max=1)
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


async def test_damage_in_the_middle_names_the_file() -> None:
    disk = await written_logs()
    disk.files[file_name(1)].content[40] ^= 1
    with pytest.raises(CorruptFile, match=file_name(1)):
        await rebuilt(disk)


async def test_a_damaged_file_header_names_the_file() -> None:
    disk = await written_logs()
    disk.files[file_name(1)].content[20] ^= 1
    with pytest.raises(CorruptFile, match=file_name(1)):
        await rebuilt(disk)


async def test_a_damaged_block_of_ledgers_names_the_file() -> None:
    disk = await written_logs()
    content = disk.files[file_name(1)].content
    record = bytes(content).find((3).to_bytes(8, "big") + KEY)
    content[record + 28] ^= 1
    with pytest.raises(CorruptFile, match="block of ledgers"):
        await rebuilt(disk)
