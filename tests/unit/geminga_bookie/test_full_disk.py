"""A full disk gets room from what was deleted, whatever shares its files, and is said in a line."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import replace

import pytest
from tests.unit.geminga_bookie.fakes import Client, make_add
from tests.unit.geminga_bookie.garbage_rig import (
    NEVER,
    add,
    code_of,
    register,
    require,
    settle,
    unregister,
)
from tests.unit.geminga_bookie.host import CONFIG, Host

from geminga_bookie.bookie import Bookie
from geminga_bookie.config import MIB, GarbageConfig, SpaceConfig
from geminga_bookie.formats.entry_log_v1 import file_name
from geminga_protocol.bookkeeper.v2 import ReturnCode, encode_read

CAPACITY_BYTES = 4 * MIB
BIG = b"x" * (64 * 1024)
# Nothing is recovered to this bookie, and ten seconds between two looks are short enough.
SPACE = SpaceConfig(
    disk_usage_threshold=0.8, disk_usage_warn_threshold=0.7, disk_usage_lwm_threshold=0.7
)


def make_host(**changes: object) -> Host:
    values: dict[str, object] = {
        "space": SPACE,
        "garbage": NEVER,
        "compaction_bytes_per_s": 0.0,
        **changes,
    }
    host = Host(CONFIG, **values)
    host.ledger_disk.capacity = CAPACITY_BYTES
    return host


async def add_big(client: Client, ledger_id: int, count: int) -> None:
    answers = await client.ask(*(make_add(ledger_id, number, BIG) for number in range(count)))
    assert {answer[1] for answer in answers} == {0}


def used_bytes(host: Host) -> int:
    return CAPACITY_BYTES - host.ledger_disk.free_bytes()


async def look_at_disks() -> None:
    await asyncio.sleep(SPACE.disk_check_interval_s + 1)
    await settle()


async def fill(host: Host, bookie: Bookie, *, kept: int = 3) -> None:
    """Let deleted ledger 1 and small ledger 2 share the one log, and fill the disk."""
    client = host.network.connect_client()
    register(host.coordination, 1)
    register(host.coordination, 2)
    await add_big(client, 1, 54)
    if kept:
        await add(bookie, client, 2, 0, kept)
    await bookie.checkpointer.run()
    assert bookie.entry_log.numbers == [1]
    unregister(host.coordination, 1)


@pytest.mark.parametrize("compacts_when_full", [False, True])
async def test_a_log_of_next_to_no_use_goes_also_while_it_is_written_to(
    *, compacts_when_full: bool
) -> None:
    host = make_host(space=replace(SPACE, compacts_when_full=compacts_when_full))
    async with host.bookie() as bookie:
        await fill(host, bookie)
        await look_at_disks()
        client = host.network.connect_client()
        await require(client, 2, range(3))
        assert file_name(1) not in host.ledger_disk.files
        assert used_bytes(host) < MIB
        await look_at_disks()
        await add(bookie, client, 2, 3, 3)
    host.cut_power()
    async with host.bookie():
        await require(host.network.connect_client(), 2, range(6))


async def test_nothing_of_use_in_the_log_that_is_written_to_needs_no_room_at_all() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie, kept=0)
        host.ledger_disk.capacity = used_bytes(host)
        await look_at_disks()
        assert file_name(1) not in host.ledger_disk.files
    host.cut_power()
    async with host.bookie():
        client = host.network.connect_client()
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


async def test_a_log_whose_copies_do_not_easily_find_room_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie)
        host.ledger_disk.capacity = used_bytes(host) + 20_000
        await look_at_disks()
        await require(host.network.connect_client(), 2, range(3))
        assert file_name(1) in host.ledger_disk.files
    assert "no room for copies" in caplog.text


async def test_a_checkpoint_without_room_leaves_nothing_behind_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await add(bookie, client, 1, 0, 3)
        before = {name: len(held) for name, held in host.ledger_disk.contents().items()}
        await add_big(client, 1, 80)
        bookie.checkpointer.request()
        await asyncio.sleep(host.config.checkpoint_retry_s * 5.5)
        assert bookie.checkpointer.failures > 3
        after = {name: len(held) for name, held in host.ledger_disk.contents().items()}
        assert after.keys() == before.keys()
        assert after[file_name(1)] == before[file_name(1)]
        host.ledger_disk.capacity = 4 * CAPACITY_BYTES
        await asyncio.sleep(host.config.checkpoint_retry_s * 2)
        assert not bookie.storage.is_read_only
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.message.partition(":")[0] for record in said] == ["no room for a checkpoint"]
    assert said[0].exc_info is None
    assert said[0].__dict__["file"].startswith("ledgers/")


async def test_a_disk_smaller_than_the_journal_gets_nothing_of_what_was_deleted() -> None:
    host = make_host(write_cache_bytes_max=16 * MIB)
    async with host.bookie():
        client = host.network.connect_client()
        register(host.coordination, 2)
        await add_big(client, 1, 100)
        await client.ask(make_add(2, 0, b"payload" * 20))
        host.kill()  # before there was a checkpoint
    host.config = CONFIG.__class__(
        bookie_id="bookie-1", space=SPACE, garbage=NEVER, write_cache_bytes_max=2 * MIB
    )
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await require(client, 2, range(1))
        await asyncio.sleep(host.config.checkpoint_retry_s * 2)
        assert not bookie.storage.is_read_only
        assert used_bytes(host) < MIB
        assert len(host.journal_disk.contents()) == 2, "the old journal file stays"
        await require(client, 2, range(1))
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


async def test_garbage_can_be_collected_by_order_while_no_checkpoint_succeeds() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        register(host.coordination, 2)
        await add_big(client, 1, 80)
        await client.ask(make_add(2, 0, b"payload" * 20))
        bookie.checkpointer.request()
        await asyncio.sleep(1)
        assert bookie.storage.read_only_reasons
        unregister(host.coordination, 1)
        await bookie.force_gc()
        await asyncio.sleep(host.config.checkpoint_retry_s * 2)
        assert not bookie.storage.is_read_only
        await require(client, 2, range(1))


async def test_another_failure_of_a_checkpoint_keeps_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await host.network.connect_client().ask(make_add(1, 0))
        host.ledger_disk.fail("append", errno.EIO)
        bookie.checkpointer.request()
        await settle()
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.exc_info is not None for record in said] == [True]


def told_of(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.message.startswith(event)]


@pytest.mark.parametrize("garbage", [NEVER, GarbageConfig()])
async def test_what_is_deleted_makes_room_within_a_minute(
    garbage: GarbageConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is set for other times, and without an order."""
    caplog.set_level(logging.INFO)
    host = make_host(garbage=garbage)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        register(host.coordination, 2)
        await add(bookie, client, 2, 0, 3)
        await bookie.checkpointer.run()
        await add_big(client, 1, 80)
        bookie.checkpointer.request()
        await asyncio.sleep(630)
        assert bookie.storage.read_only_reasons
        (command,) = {each.__dict__["command"] for each in told_of(caplog, "the disk is full")}
        assert command == "geminga bookie-admin force-gc bookie-1"
        told = len(told_of(caplog, "the disk is full"))
        assert 10 <= told <= 11, "once a minute"
        assert len(told_of(caplog, "entry log opened")) == 1, "not each that takes nothing"
        assert len(caplog.records) < 3 * told, "nor is anything else said at every attempt"
        unregister(host.coordination, 1)
        await asyncio.sleep(60 + host.config.checkpoint_retry_s)
        assert not bookie.storage.is_read_only
        await add(bookie, client, 2, 3, 3)
        await require(client, 2, range(6))
        await asyncio.sleep(600)
        assert len(told_of(caplog, "the disk is full")) <= told + 1
        opened = [each.__dict__["file"] for each in told_of(caplog, "entry log opened")]
        assert len(opened) == len(set(opened)) < 5


async def test_a_disk_that_is_full_by_its_measure_is_collected_every_minute_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host()
    async with host.bookie() as bookie:
        await fill(host, bookie, kept=0)
        register(host.coordination, 1)
        await look_at_disks()
        assert bookie.storage.read_only_reasons
        await asyncio.sleep(600)
        assert 10 <= len(told_of(caplog, "the disk is full")) <= 11
        unregister(host.coordination, 1)
        await asyncio.sleep(60 + SPACE.disk_check_interval_s + 1)
        assert file_name(1) not in host.ledger_disk.files
        assert not bookie.storage.is_read_only


async def test_logs_that_find_no_room_are_said_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(entry_log_bytes_max=MIB)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        for number in range(3):  # of each log half is soon of no use
            register(host.coordination, 2 * number)
            register(host.coordination, 2 * number + 1)
            await add_big(client, 2 * number, 10)
            await add_big(client, 2 * number + 1, 8)
            await bookie.checkpointer.run()
            unregister(host.coordination, 2 * number)
        await add(bookie, client, 1, 8, 3)
        await bookie.checkpointer.run()
        host.ledger_disk.capacity = used_bytes(host) + 20_000
        await look_at_disks()
    (told,) = told_of(caplog, "entry logs stay for now")
    assert told.__dict__["count"] == 3
