"""Entry logs give back what was appended, go on where a checkpoint ended, and name damage."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.geminga_bookie.fakes import KEY
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.config import BookieConfig
from geminga_bookie.disks.directories import Directories
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.errors import CorruptFile, EntryLogMissing, EntryLogTwice, LogRemoved
from geminga_bookie.formats import log_list_v1
from geminga_bookie.formats.entry_log_v1 import (
    FILE_HEADER_BYTES,
    SUFFIX,
    Block,
    LedgerRecord,
    cut_blocks,
    file_name,
)
from geminga_bookie.formats.index_v2 import LogEnd, LogUsage
from geminga_simulation.event_loop.clock import SimulatedClock


def blocks(ledger_id: int, entries: dict[int, bytes], size: int = 100) -> list[tuple[Block, bytes]]:
    return [(block, KEY) for block in cut_blocks(ledger_id, entries, size)]


def logs_on(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.files if name.endswith(SUFFIX)]


def entry_log(disk: MemoryDisk, file_bytes_max: int = 1 << 30) -> EntryLog:
    return EntryLog(Directories([("", disk)]), SimulatedClock(), file_bytes_max=file_bytes_max)


ENTRIES = {number: b"%020d" % number for number in range(30)}


async def test_blocks_come_back_from_where_they_were_put() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
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
    await log.open(None, {})
    locations = [
        location
        for entry_id, entry in ENTRIES.items()
        for location in await log.append(blocks(5, {entry_id: entry}))
    ]
    numbers = [location.log_number for location in locations]
    assert log.numbers == list(range(1, numbers[-1] + 1))
    assert numbers[-1] > 5
    for location in locations:
        assert await log.read(location) == {location.first_entry: ENTRIES[location.first_entry]}
    await log.close()


async def test_only_so_many_files_stay_open() -> None:
    log = EntryLog(
        Directories([("", MemoryDisk())]),
        SimulatedClock(),
        file_bytes_max=1,
        config=BookieConfig(entry_logs_open_max=3),
    )
    await log.open(None, {})
    locations = [(await log.append(blocks(5, {number: b"x"})))[0] for number in range(10)]
    for location in locations * 2:
        assert await log.read(location) == {location.first_entry: b"x"}
        assert len(log.open_files._files) <= 3
    await log.append(blocks(5, {99: b"y"}))
    await log.close()


async def test_a_new_life_goes_on_where_the_last_checkpoint_ended() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
    first = await log.append(blocks(5, {0: b"kept"}))
    end = log.end
    await log.append(blocks(5, {1: b"in no index"}))
    disk = disk.after_crash()
    disk.files[file_name(2)] = type(disk.files[file_name(1)])(b"begun by a checkpoint that died")

    log = entry_log(disk)
    await log.open(end, {1: LogUsage(1, 32)})
    assert log.end == end
    assert disk.removed == [file_name(2)]
    again = await log.append(blocks(5, {1: b"again"}))
    assert end == LogEnd(1, again[0].offset)
    assert await log.read(first[0]) == {0: b"kept"}
    assert await log.read(again[0]) == {1: b"again"}


async def test_a_file_shorter_than_the_index_says_is_named() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
    await log.append(blocks(5, ENTRIES))
    end = log.end
    assert end is not None
    del disk.files[file_name(1)].content[-10:]
    with pytest.raises(CorruptFile, match=f"{file_name(1)} .* 10 bytes are missing"):
        await entry_log(disk).open(end, {1: LogUsage(1, end.offset)})


async def test_a_flipped_bit_is_found_when_its_block_is_read() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
    one, two = await log.append(blocks(5, {0: b"x" * 100, 1: b"y" * 100}))
    disk.files[file_name(1)].content[two.offset + two.size - 1] ^= 1
    assert await log.read(one) == {0: b"x" * 100}
    with pytest.raises(CorruptFile, match=file_name(1)):
        await log.read(two)


async def test_a_missing_file_is_named() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
    (location,) = await log.append(blocks(5, {0: b"x"}))
    end = log.end
    await log.close()
    del disk.files[file_name(1)]
    with pytest.raises(EntryLogMissing, match=f"{file_name(1)} is missing from .* Put it back"):
        await entry_log(disk).open(end, {1: LogUsage(location.size, location.end)})


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_after_a_failed_write_a_new_file_is_begun(operation: str) -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
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
    await log.open(None, {})
    disk.fail("sync", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        await log.append(blocks(5, {0: b"x"}))
    disk.files[file_name(1)].broken = None
    (location,) = await log.append(blocks(5, {0: b"x"}))
    assert await log.read(location) == {0: b"x"}


async def test_ledger_records_are_written_and_counted() -> None:
    disk = MemoryDisk()
    log = entry_log(disk)
    await log.open(None, {})
    await log.append_ledgers([LedgerRecord(5, KEY, is_fenced=True, last_entry=3)])
    assert log.end == LogEnd(1, 32 + 60 + 37)
    assert log.written_bytes == 60 + 37


def spread(*disks: MemoryDisk, file_bytes_max: int = 1) -> EntryLog:
    directories = Directories((f"/l{number}", disk) for number, disk in enumerate(disks))
    return EntryLog(directories, SimulatedClock(), file_bytes_max=file_bytes_max)


async def test_a_new_file_goes_where_most_is_free_and_is_found_there_again() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    log = spread(one, two)
    await log.open(None, {})
    locations = await log.append(blocks(5, {0: b"x"}))
    one.free -= 1
    locations += await log.append(blocks(5, {1: b"y"}))
    two.free -= 2
    locations += await log.append(blocks(5, {2: b"z"}))
    assert (logs_on(one), logs_on(two)) == (
        [file_name(1), file_name(3)],
        [file_name(2)],
    )
    end = log.end
    await log.close()
    again = spread(two, one)
    await again.open(end, {at.log_number: LogUsage(at.size, at.end) for at in locations})
    found = [await again.read(location) for location in locations]
    assert found == [{0: b"x"}, {1: b"y"}, {2: b"z"}]
    assert again.path(2) == f"/l0/{file_name(2)}"


async def test_a_full_directory_gets_no_new_file_while_another_takes_it() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    directories = Directories([("/one", one), ("/two", two)])
    log = EntryLog(directories, SimulatedClock(), file_bytes_max=1 << 30)
    await log.open(None, {})
    await log.append(blocks(5, {0: b"x"}))
    first, second = directories
    first.is_full = True
    await log.append(blocks(5, {1: b"y"}))
    assert logs_on(two) == [file_name(2)]
    second.is_full = True
    await log.append(blocks(5, {2: b"z"}))
    assert logs_on(two) == [file_name(2)]


async def test_a_directory_that_failed_is_avoided_where_another_takes_it() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    two.free -= 1
    log = spread(one, two, file_bytes_max=1 << 30)
    await log.open(None, {})
    await log.append(blocks(5, {0: b"x"}))
    one.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        await log.append(blocks(5, {1: b"y"}))
    await log.append(blocks(5, {1: b"y"}))
    assert logs_on(two) == [file_name(2)]


async def test_the_same_log_in_two_directories_is_refused() -> None:
    content = {file_name(1): b""}
    log = spread(MemoryDisk(content), MemoryDisk(content))
    with pytest.raises(EntryLogTwice, match=f"{file_name(1)} is in /l0 and in /l1.*Take"):
        await log.find()


async def test_a_removed_log_is_read_to_the_end_by_its_readers_and_not_by_later_reads() -> None:
    disk = MemoryDisk()
    log = entry_log(disk, file_bytes_max=1)
    await log.open(None, {})
    (location,) = await log.append(blocks(5, {0: b"x"}))
    await log.append(blocks(5, {1: b"y"}))
    async with log.open_files.reading(1) as (file, _):
        await log.remove(1)
        assert disk.removed == [file_name(1)]
        assert len(await file.read(0, 1 << 20)) == location.end
    with pytest.raises(LogRemoved):
        await log.read(location)
    assert log.numbers == [2]
    assert logs_on(disk) == [file_name(2)]


async def test_a_log_removed_while_it_is_opened_does_not_come_back() -> None:
    disk = MemoryDisk()
    log = entry_log(disk, file_bytes_max=1)
    await log.open(None, {})
    (location,) = await log.append(blocks(5, {0: b"x"}))
    await log.append(blocks(5, {1: b"y"}))
    log.open_files._files.pop(1)
    reading = asyncio.ensure_future(log.read(location))
    await asyncio.sleep(0)
    await log.remove(1)
    with pytest.raises(LogRemoved):
        await reading
    assert logs_on(disk) == [file_name(2)]


async def test_logs_of_which_the_index_knows_nothing_are_removed_at_the_start() -> None:
    disk = MemoryDisk()
    log = entry_log(disk, file_bytes_max=1)
    await log.open(None, {})
    for number in range(3):
        await log.append(blocks(5, {number: b"x"}))
    end = log.end
    await log.close()
    again = entry_log(disk)
    await again.open(end, {1: LogUsage(1, 32), 3: LogUsage(1, 32)})
    assert again.numbers == [1, 3]


async def test_a_log_that_is_lost_is_missed_without_an_index_too() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    log = spread(one, two)
    await log.open(None, {})
    for number in range(4):
        one.free -= 1 - 2 * (number % 2)
        await log.append(blocks(5, {number: b"x"}))
    await log.remove(2)
    await log.close()
    again = spread(one, two)
    assert await again.find() == [1, 3, 4]
    assert await again.losses() == []
    del two.files[file_name(3)], two.files[file_name(1)].content[-1:]
    await again.find()
    assert [(each.path, each.what) for each in await again.losses()] == [
        (f"/l1/{file_name(1)}", "1 bytes are missing"),
        (f"/l1/{file_name(3)}", "it is missing"),
    ]
    two.files[log_list_v1.NAME].content[-2] ^= 1
    assert [each.path for each in await again.losses()] == ["/l1/entry-logs"]


async def test_a_damaged_file_header_costs_nothing() -> None:
    for offset in range(FILE_HEADER_BYTES):
        disk = MemoryDisk()
        log = entry_log(disk)
        await log.open(None, {})
        (location,) = await log.append(blocks(5, {0: b"x"}))
        end = log.end
        await log.close()
        disk.files[file_name(1)].content[offset] ^= 0x10
        log = entry_log(disk)
        await log.open(end, {1: LogUsage(location.size, location.end)})
        assert await log.read(location) == {0: b"x"}


async def test_a_full_disk_gets_its_room_back_before_it_takes_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log = entry_log(disk, file_bytes_max=1)
    await log.open(None, {})
    for number in range(2):
        await log.append(blocks(5, {number: b"x"}))
    write_file = disk.write_file

    async def write_if_there_is_room(path: str, content: bytes) -> None:
        if file_name(1) in disk.files:
            raise OSError(errno.ENOSPC, "No space left on device")
        await write_file(path, content)

    monkeypatch.setattr(disk, "write_file", write_if_there_is_room)
    await log.remove(1)
    assert logs_on(disk) == [file_name(2)]
    assert await log.losses() == []
