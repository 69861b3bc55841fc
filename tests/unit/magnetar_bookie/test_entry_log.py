"""Entry logs give back what was appended, go on where a checkpoint ended, and name damage."""

from __future__ import annotations

import errno

import pytest
from tests.unit.magnetar_bookie.fakes import KEY
from tests.unit.magnetar_bookie.memory_disk import MemoryDisk
from tests.unit.magnetar_ledger.virtual_time import LoopClock

from magnetar_bookie import entry_log as module
from magnetar_bookie.entry_log import EntryLog
from magnetar_bookie.errors import CorruptFile
from magnetar_bookie.formats.entry_log_v1 import Block, LedgerRecord, cut_blocks, file_name
from magnetar_bookie.index import LogEnd


def blocks(ledger_id: int, entries: dict[int, bytes], size: int = 100) -> list[tuple[Block, bytes]]:
    return [(block, KEY) for block in cut_blocks(ledger_id, entries, size)]


def entry_log(disk: MemoryDisk, file_bytes_max: int = 1 << 30) -> EntryLog:
    return EntryLog(disk, LoopClock(), file_bytes_max=file_bytes_max)


ENTRIES = {number: b"%020d" % number for number in range(30)}


async def test_blocks_come_back_from_where_they_were_put() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    begin = log.end
    assert begin is None
    locations = await log.append(blocks(5, ENTRIES))
    found: dict[int, bytes] = {}
    for location in locations:
        entries = await log.read(location)
        assert (min(entries), max(entries)) == (location.first_entry, location.last_entry)
        found |= entries
    assert found == ENTRIES
    assert len(locations) > 3
    end = locations[-1].offset + locations[-1].size
    assert log.end == LogEnd(1, end)
    assert disk.files[file_name(1)].synced == end
    await log.close()


async def test_files_follow_each_other_at_the_size_limit_and_are_all_read() -> None:
    disk = MemoryDisk()
    log = entry_log(disk, file_bytes_max=200)
    await log.open(None)
    locations = [
        location
        for entry_id, entry in ENTRIES.items()
        for location in await log.append(blocks(5, {entry_id: entry}))
    ]
    numbers = [location.log_number for location in locations]
    assert await log.numbers() == list(range(1, numbers[-1] + 1))
    assert numbers[-1] > 5
    for location in locations:
        assert await log.read(location) == {location.first_entry: ENTRIES[location.first_entry]}
    await log.close()


async def test_only_so_many_files_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_FILES_MAX", 3)
    log = entry_log(MemoryDisk(), file_bytes_max=1)
    await log.open(None)
    locations = [(await log.append(blocks(5, {number: b"x"})))[0] for number in range(10)]
    for location in locations * 2:
        assert await log.read(location) == {location.first_entry: b"x"}
        assert len(log._open_files) <= 3
    await log.append(blocks(5, {99: b"y"}))
    await log.close()


async def test_a_new_life_goes_on_where_the_last_checkpoint_ended() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    first = await log.append(blocks(5, {0: b"kept"}))
    end = log.end
    await log.append(blocks(5, {1: b"in no index"}))
    disk = disk.after_crash()
    disk.files[file_name(2)] = type(disk.files[file_name(1)])(b"begun by a checkpoint that died")

    log = entry_log(disk)
    await log.open(end)
    assert log.end == end
    assert disk.removed == [file_name(2)]
    again = await log.append(blocks(5, {1: b"again"}))
    assert end == LogEnd(1, again[0].offset)
    assert await log.read(first[0]) == {0: b"kept"}
    assert await log.read(again[0]) == {1: b"again"}


async def test_a_file_shorter_than_the_index_says_is_named() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    await log.append(blocks(5, ENTRIES))
    end = log.end
    del disk.files[file_name(1)].content[-10:]
    with pytest.raises(CorruptFile, match=f"{file_name(1)} .* 10 bytes are missing"):
        await entry_log(disk).open(end)


async def test_a_flipped_bit_is_found_when_its_block_is_read() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    one, two = await log.append(blocks(5, {0: b"x" * 100, 1: b"y" * 100}))
    disk.files[file_name(1)].content[two.offset + two.size - 1] ^= 1
    assert await log.read(one) == {0: b"x" * 100}
    with pytest.raises(CorruptFile, match=file_name(1)):
        await log.read(two)


async def test_a_missing_file_is_named() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    (location,) = await log.append(blocks(5, {0: b"x"}))
    await log.close()
    del disk.files[file_name(1)]
    with pytest.raises(CorruptFile, match=file_name(1)):
        await entry_log(disk).read(location)


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_after_a_failed_write_a_new_file_is_begun(operation: str) -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    (before,) = await log.append(blocks(5, {0: b"before"}))
    disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        await log.append(blocks(5, {1: b"lost"}))
    (after,) = await log.append(blocks(5, {1: b"after"}))
    assert after.log_number == 2
    assert await log.read(before) == {0: b"before"}
    assert await log.read(after) == {1: b"after"}


async def test_a_file_that_cannot_be_begun_is_begun_again() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    disk.fail("sync", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        await log.append(blocks(5, {0: b"x"}))
    disk.files[file_name(1)].broken = None
    (location,) = await log.append(blocks(5, {0: b"x"}))
    assert await log.read(location) == {0: b"x"}


async def test_ledger_records_are_written_and_counted() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None)
    await log.append_ledgers([LedgerRecord(5, KEY, is_fenced=True, last_entry=3)])
    assert log.end == LogEnd(1, 32 + 60 + 37)
    assert log.written_bytes == 60 + 37
