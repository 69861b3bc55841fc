"""V3 reads: entries with what is confirmed, fences, waits that end, lists of entries."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.geminga_bookie.fakes import KEY, OTHER_KEY, make_add, make_entry
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import (
    FENCE,
    PIGGYBACK,
    V3Client,
    add,
    explicit_lac,
    list_entries,
    poll,
    read,
    read_lac,
    write_lac,
)

from geminga_bookie.sessions import long_polls
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import decode_availability
from geminga_protocol.bookkeeper.v2 import encode_read


async def elapsed_s(client: V3Client, asked: pb.Request) -> tuple[float, pb.ReadResponse]:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    answer = await client.ask(asked)
    return loop.time() - began_s, answer.readResponse


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_read_gives_the_entry_and_what_is_confirmed(is_flushed: bool) -> None:  # noqa: FBT001
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        client.send(*(add(1, number) for number in range(5)))
        await client.answers(5)
        if is_flushed:
            await bookie.checkpointer.run()
        for entry_id, found in ((2, 2), (-1, 4)):
            answer = (await client.ask(read(1, entry_id))).readResponse
            assert answer.body == make_entry(1, found)
            assert (answer.entryId, answer.maxLAC) == (entry_id, 3)
        assert await client.status(read(1, 5)) == "ENOENTRY"
        assert await client.status(read(1, -2)) == "ENOENTRY"
        assert await client.status(read(2, 0)) == "ENOLEDGER"
        assert (bookie.counters.reads, bookie.counters.reads_failed) == (2, 3)


async def test_a_disk_error_is_an_io_error_for_that_read_only() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        await bookie.checkpointer.run()
        host.ledger_disk.fail("read", errno.EIO)
        assert await client.status(read(1, 0)) == "EIO"
        assert await client.status(read(1, 0)) == "EOK"


# Fencing.


async def test_a_fence_is_answered_when_it_is_durable() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        host.journal_disk.gate = asyncio.Event()
        client.send(read(1, -1, flag=FENCE, key=KEY))
        await asyncio.sleep(1)
        assert client.taken() == []
        host.journal_disk.gate.set()
        (answer,) = await client.answers(1)
        assert answer.readResponse.body == make_entry(1, 0)
        assert not answer.readResponse.HasField("maxLAC")
        syncs = host.journal_disk.syncs
        assert await client.status(read(1, 0, flag=FENCE, key=KEY)) == "EOK"
        assert host.journal_disk.syncs == syncs
        assert bookie.counters.fence_reads == 2


async def test_a_fence_without_the_right_key_is_refused() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        for key in (None, b"", OTHER_KEY):
            assert await client.status(read(1, -1, flag=FENCE, key=key)) == "EUA"
        assert await client.status(add(1, 1)) == "EOK"


async def test_a_fence_that_cannot_be_written_is_an_io_error() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        host.journal_disk.fail("sync", errno.EIO)
        assert await client.status(read(1, -1, flag=FENCE, key=KEY)) == "EIO"
        assert await client.status(read(1, -1, flag=FENCE, key=KEY)) == "EIO"


# What is confirmed.


async def test_the_last_entry_and_the_explicit_lac_come_together() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        assert await client.status(read_lac(1)) == "ENOENTRY"
        await client.ask(write_lac(1, 0))
        answer = (await client.ask(read_lac(1))).readLacResponse
        assert (answer.lacBody, answer.HasField("lastEntryBody")) == (explicit_lac(1, 0), False)
        await client.ask(add(1, 0))
        answer = (await client.ask(read_lac(1))).readLacResponse
        assert (answer.lacBody, answer.lastEntryBody) == (explicit_lac(1, 0), make_entry(1, 0))


# Waiting for more.


async def test_a_reader_that_waits_is_woken_by_an_add_of_either_version() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        writer = host.network.connect_client()
        await writer.ask(make_add(1, 0))
        client.send(poll(1, -1))
        await asyncio.sleep(0.1)
        assert client.taken() == []
        await writer.ask(make_add(1, 1))
        (answer,) = await client.answers(1)
        assert answer.readResponse.body == make_entry(1, 0)
        assert (answer.readResponse.entryId, answer.readResponse.maxLAC) == (0, 0)
        assert answer.readResponse.lacUpdateTimestamp > 0
        client.send(poll(1, 0))
        await asyncio.sleep(0.1)
        await V3Client(host.network.connect_client()).ask(add(1, 2))
        (answer,) = await client.answers(1)
        assert (answer.readResponse.entryId, answer.readResponse.maxLAC) == (1, 1)
        assert bookie.counters.reads == 2


async def test_a_reader_that_waits_is_woken_by_an_explicit_lac() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        writer = V3Client(host.network.connect_client())
        await writer.ask(add(1, 0))
        client.send(poll(1, -1))
        await asyncio.sleep(0.1)
        await writer.ask(write_lac(1, 0))
        (answer,) = await client.answers(1)
        assert answer.readResponse.body == make_entry(1, 0)


async def test_a_reader_that_waits_in_vain_is_answered_in_time() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        took_s, answer = await elapsed_s(client, poll(1, 5, timeout_ms=2000))
        assert 2 <= took_s < 2.1
        assert (answer.status, answer.maxLAC, answer.HasField("body")) == (pb.EOK, -1, False)
        took_s, _ = await elapsed_s(client, poll(1, 5, timeout_ms=0))
        assert took_s < 0.1


async def test_no_long_poll_lasts_longer_than_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "LONG_POLL_S_MAX", 3.0)
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        took_s, _ = await elapsed_s(client, poll(1, 5, timeout_ms=2**62))
        assert took_s < 3.1


async def test_too_many_waits_are_refused() -> None:
    host = Host(long_polls_max=2)
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        client.send(poll(1, 5), poll(1, 5), poll(1, 5))
        first, *others = await client.answers(3)
        assert first.status == pb.ETOOMANYREQUESTS
        assert [answer.status for answer in others] == [pb.EOK, pb.EOK]


async def test_a_wait_ends_with_its_connection() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        writer = host.network.connect_client()
        await writer.ask(make_add(1, 0))
        client.send(poll(1, -1))
        await asyncio.sleep(0.1)
        waiting = writer.session._long_polls
        assert waiting.count == 1
        client.client.transport.close()
        await asyncio.sleep(0.1)
        assert waiting.count == 0
        await writer.ask(make_add(1, 1))
        assert client.client.taken_frames() == []


async def test_an_entry_that_another_bookie_has_is_no_fault_of_a_wait() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 5))
        answer = (await client.ask(poll(1, 2))).readResponse
        assert (answer.status, answer.maxLAC, answer.HasField("body")) == (pb.EOK, 4, False)


async def test_a_wait_for_a_ledger_without_entries_or_none_at_all() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        assert await client.status(poll(1, -1)) == "ENOLEDGER"
        await client.ask(read(1, -1, flag=FENCE, key=KEY))
        assert await client.status(poll(1, -1, timeout_ms=100)) == "ENOENTRY"


async def test_a_wait_finds_what_is_confirmed_on_the_disk() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        client.send(add(1, 0), add(1, 1))
        await client.answers(2)
        await bookie.checkpointer.run()
        answer = (await client.ask(poll(1, -1))).readResponse
        assert (answer.body, answer.maxLAC) == (make_entry(1, 0), 0)


async def test_a_wait_may_ask_for_a_plain_read() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        asked = read(1, 0)
        asked.readRequest.previousLAC = 3
        asked.readRequest.timeOut = 500
        took_s, answer = await elapsed_s(client, asked)
        assert took_s >= 0.5
        assert answer.body == make_entry(1, 0)
        asked.readRequest.flag = PIGGYBACK
        assert await client.status(asked) == "EBADREQ"


# Lists of entries.


async def test_the_list_names_what_is_in_memory_and_on_disk() -> None:
    host = Host(block_bytes=200)
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        client.send(*(add(1, number) for number in (0, 1, 2, 4, 5, 9)))
        await client.answers(6)
        await bookie.checkpointer.run()
        client.send(*(add(1, number) for number in (2, 3, 11)))
        await client.answers(3)
        answer = (await client.ask(list_entries(1))).getListOfEntriesOfLedgerResponse
        runs = decode_availability(answer.availabilityOfEntriesOfLedger)
        assert runs == [(0, 5), (9, 9), (11, 11)]
        assert await client.status(list_entries(2)) == "ENOLEDGER"


async def test_v2_reads_are_answered_while_v3_reads_wait_for_the_client() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        client.client.session.pause_writing()
        client.send(*(read(1, 0) for _ in range(3)))
        await asyncio.sleep(0.1)
        assert client.taken() == []
        assert len(await host.network.connect_client().ask(encode_read(1, 0))) == 1
        client.client.session.resume_writing()
        assert len(await client.answers(3)) == 3


async def test_too_many_waiting_reads_stop_the_reading_of_the_socket() -> None:
    host = Host(reads_queued_max=10)
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        client.send(*(read(1, 0) for _ in range(30)))
        assert not client.client.is_read()
        assert len(await client.answers(30)) == 30
        assert client.client.is_read()
