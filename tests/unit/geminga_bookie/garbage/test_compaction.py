"""Compaction gives back what is of no use, and takes nothing else, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.geminga_bookie.fakes import make_add, make_entry
from tests.unit.geminga_bookie.garbage_rig import (
    PAYLOAD,
    add,
    fence,
    make_unknown,
    register,
    require,
    require_fenced,
    unregister,
)
from tests.unit.geminga_bookie.host import CONFIG, Host
from tests.unit.geminga_bookie.memory_disk import OpenMemoryFile

from geminga_bookie.bookie import Bookie
from geminga_bookie.config import GarbageConfig
from geminga_bookie.errors import DamagedBlock
from geminga_bookie.formats.entry_log_v1 import file_name
from geminga_bookie.index.index import Change
from geminga_bookie.index.memory_store import MemoryStore
from geminga_protocol.bookkeeper.v2 import ReturnCode, encode_read

LOG = 1


def make_host(**changes: object) -> Host:
    values: dict[str, object] = {
        "garbage": GarbageConfig(gc_interval_s=0),
        "entry_log_bytes_max": 9500,
        "block_bytes": 300,
        "compaction_bytes_per_s": 0.0,
        **changes,
    }
    return Host(CONFIG, **values)


async def fill(host: Host, bookie: Bookie, *, gone: int = 30, kept: int = 10) -> None:
    """Log 1 gets entries of ledger 1, which is gone, and of 2, which stays; then log 2 begins."""
    client = host.network.connect_client()
    register(host.coordination, 2)
    register(host.coordination, 3)
    await client.ask(*(make_add(1, number, PAYLOAD) for number in range(gone)))
    await client.ask(*(make_add(2, number, PAYLOAD) for number in range(kept)))
    await bookie.checkpointer.run()
    assert bookie.entry_log.numbers == [LOG]
    number = 0
    while bookie.entry_log.numbers == [LOG]:
        await add(bookie, client, 3, number, 1)
        number += 1
    await require(client, 2, range(kept))


async def test_blocks_in_use_are_moved_and_their_log_is_removed() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie)
        used = bookie.storage.index.logs[LOG]
        await bookie.force_gc()
        assert file_name(LOG) not in host.ledger_disk.files
        client = host.network.connect_client()
        await require(client, 2, range(10))
        collected = bookie.collector.collected if bookie.collector else None
        assert collected is not None
        assert collected.major_compactions == 1
        assert collected.reclaimed_by_compaction_bytes == used.end - bookie.compactor.moved_bytes
        assert bookie.compactor.moved_bytes > 1000
    async with host.bookie():
        await require(host.network.connect_client(), 2, range(10))


async def test_a_log_of_which_too_much_was_counted_goes_all_the_same() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie)
        index = bookie.storage.index
        (block, *_) = index.blocks_of(2)
        assert block.log_number == LOG
        index.note(Change(blocks=[block]))
        await bookie.force_gc()
        assert file_name(LOG) not in host.ledger_disk.files
        assert LOG not in index.logs
        await require(host.network.connect_client(), 2, range(10))


async def test_a_log_that_is_mostly_of_use_stays() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie, gone=10, kept=20)
        await bookie.force_gc()
        assert file_name(LOG) in host.ledger_disk.files
        assert bookie.compactor.moved_bytes == 0


async def test_minor_and_major_have_their_thresholds_and_times() -> None:
    limits = GarbageConfig(
        gc_interval_s=10,
        minor_compaction_interval_s=100,
        minor_compaction_threshold=0.01,
        major_compaction_interval_s=1000,
        major_compaction_threshold=0.6,
    )
    host = make_host(garbage=limits)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        assert bookie.collector is not None
        collected = bookie.collector.collected
        await asyncio.sleep(950)
        assert (collected.minor_compactions, collected.major_compactions) == (9, 0)
        assert file_name(LOG) in host.ledger_disk.files
        await asyncio.sleep(100)
        assert collected.major_compactions == 1
        assert file_name(LOG) not in host.ledger_disk.files


async def test_copies_are_made_no_faster_than_allowed() -> None:
    host = make_host(compaction_bytes_per_s=100.0)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        started_s = asyncio.get_running_loop().time()
        await bookie.force_gc()
        took_s = asyncio.get_running_loop().time() - started_s
        assert took_s == pytest.approx(bookie.compactor.moved_bytes / 100, rel=0.1)


async def test_reads_under_way_when_their_log_goes_are_answered_from_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = make_host(read_cache_bytes_max=1)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        client = host.network.connect_client()
        asked = asyncio.Event()
        go_on = asyncio.Event()
        read = OpenMemoryFile.read

        async def slow_read(self: OpenMemoryFile, offset: int, length: int) -> bytes:
            asked.set()
            await go_on.wait()
            return await read(self, offset, length)

        bookie.entry_log.open_files._files.pop(LOG)
        with monkeypatch.context() as patched:
            patched.setattr(OpenMemoryFile, "read", slow_read)
            client.send(encode_read(2, 0))
            await asked.wait()
        collecting = asyncio.ensure_future(bookie.force_gc())
        await asyncio.sleep(1)
        go_on.set()
        await collecting
        ((_, code, _, _, body),) = await client.answers(1)
        assert (code, len(body) > 0) == (0, True)
        assert file_name(LOG) not in host.ledger_disk.files


async def test_a_ledger_deleted_while_its_blocks_are_copied_does_not_come_back() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie)
        storage = bookie.storage
        read_whole = bookie.entry_log.read_whole
        assert bookie.collector is not None
        collector = bookie.collector

        async def delete_then_read(location: object) -> object:
            if storage.index.ledger(2) is not None:
                await collector._deletion.forget([2], "in this test")
            return await read_whole(location)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bookie.entry_log, "read_whole", delete_then_read)
            await bookie.force_gc()
        assert list(storage.index.blocks_of(2)) == []
        assert storage.counts == storage.index.counts()
        assert file_name(LOG) not in host.ledger_disk.files


@pytest.mark.parametrize("place", ["payload", "entry header", "block header"])
async def test_a_damaged_block_moves_as_it_is_and_is_still_known_to_be_damaged(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(read_cache_bytes_max=1)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        at = next(iter(bookie.storage.index.blocks(2, 9)))
        entry = make_entry(2, 9, PAYLOAD)
        offset = {
            "payload": at.end - 1,
            "entry header": at.end - len(entry) + 15,
            "block header": at.offset + 30,
        }[place]
        host.ledger_disk.files[file_name(LOG)].content[offset] ^= 1
        client = host.network.connect_client()
        await require(client, 2, range(1))  # takes the place of the other block in the cache
        before = await client.ask(encode_read(2, 9))
        expected = {"payload": 0, "entry header": ReturnCode.EIO, "block header": 0}[place]
        assert before[0][1] == expected
        await bookie.force_gc()
        assert file_name(LOG) not in host.ledger_disk.files
        await require(client, 2, range(9))
        assert await client.ask(encode_read(2, 9)) == before
        moved = next(iter(bookie.storage.index.blocks(2, 9)))
        assert moved.log_number != LOG
        if place == "block header":  # which is all that was wrong, and is made again
            assert await bookie.entry_log.read(moved)
        else:
            with pytest.raises(DamagedBlock, match=file_name(moved.log_number)):
                await bookie.entry_log.read(moved)
        assert bookie.storage.index.logs[moved.log_number].live_bytes >= moved.size
    said = [record for record in caplog.records if record.message == "damaged block"]
    assert len(said) == (1 if place == "block header" else 2)
    assert file_name(LOG) in said[0].__dict__["error"]


async def test_a_log_that_lacks_bytes_stays_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(read_cache_bytes_max=1)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        at = next(iter(bookie.storage.index.blocks(2, 9)))
        del host.ledger_disk.files[file_name(LOG)].content[at.end - 1 :]
        await bookie.force_gc()
        await bookie.force_gc()
        assert file_name(LOG) in host.ledger_disk.files
        client = host.network.connect_client()
        await require(client, 2, range(9))
        assert (await client.ask(encode_read(2, 9)))[0][1] == ReturnCode.EIO
    said = [record for record in caplog.records if "entry log is damaged" in record.message]
    assert len(said) == 1
    assert file_name(LOG) in said[0].__dict__["error"]


async def test_a_log_with_a_block_of_an_unknown_kind_stays_and_the_others_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(entry_log_bytes_max=1)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        for number in range(4):
            await client.ask(make_add(1, number, PAYLOAD), make_add(2, number, PAYLOAD * 9))
            await bookie.checkpointer.run()
        *_, other, at = bookie.storage.index.blocks_of(1)
        assert (at.log_number, other.first_entry) == (LOG, 1)
        make_unknown(host.ledger_disk, file_name(LOG), at.offset)
        await bookie.force_gc()
        await bookie.force_gc()
        assert bookie.entry_log.numbers[0] == LOG
        assert other.log_number not in bookie.entry_log.numbers
        await require(client, 1, range(1, 4))
    said = [record for record in caplog.records if "newer version" in record.message]
    assert len(said) == 1
    assert file_name(LOG) in said[0].__dict__["error"]


async def test_what_was_moved_before_damage_was_found_does_not_count_as_freed() -> None:
    host = make_host(entry_log_batch_bytes=1)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        used = bookie.storage.index.logs[LOG]
        at = next(iter(bookie.storage.index.blocks(2, 9)))
        host.ledger_disk.files[file_name(LOG)].content[at.offset + 30] ^= 1
        await bookie.force_gc()
        assert file_name(LOG) not in host.ledger_disk.files
        assert bookie.compactor.moved_bytes > at.size
        assert bookie.collector is not None
        collected = bookie.collector.collected
        assert collected.reclaimed_by_compaction_bytes == used.end - bookie.compactor.moved_bytes


async def test_a_damaged_log_of_no_use_goes_and_no_fence_with_it() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 5)
        await fence(client, 5)
        await fill(host, bookie, kept=0)
        unregister(host.coordination, 3)
        host.ledger_disk.files[file_name(LOG)].content[40] ^= 1
        await bookie.force_gc()
        assert file_name(LOG) not in host.ledger_disk.files
    host.kill()
    host.store = MemoryStore()
    async with host.bookie():
        await require_fenced(host.network.connect_client(), 5)


@pytest.mark.parametrize("operation", ["append", "sync", "open", "read"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_disk_that_fails_meanwhile_loses_nothing(operation: str, number: int) -> None:
    host = make_host(read_cache_bytes_max=1)
    async with host.bookie() as bookie:
        await fill(host, bookie)
        bookie.entry_log.open_files._files.pop(LOG)
        host.ledger_disk.fail(operation, number)
        with pytest.raises(OSError, match=r"space|Input"):
            await bookie.force_gc()
        client = host.network.connect_client()
        await require(client, 2, range(10))
        await bookie.force_gc()
        await require(client, 2, range(10))
        assert file_name(LOG) not in host.ledger_disk.files
        unregister(host.coordination, 3)
        await bookie.force_gc()
        await require(client, 2, range(10))
        assert bookie.storage.counts == bookie.storage.index.counts()


async def test_a_log_that_cannot_be_read_does_not_keep_the_others() -> None:
    host = make_host(entry_log_bytes_max=1)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        for number in range(4):
            await add(bookie, client, 1, number, 1)
        count = len(bookie.entry_log.numbers)
        bookie.entry_log.open_files._files.clear()
        host.ledger_disk.fail("read", errno.EIO)
        with pytest.raises(OSError, match="Input"):
            await bookie.force_gc()
        assert bookie.entry_log.numbers[0] == LOG
        assert len(bookie.entry_log.numbers) < count / 2
