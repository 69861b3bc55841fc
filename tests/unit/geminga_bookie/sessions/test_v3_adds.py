"""What comes over V3 is as durable, as fenced and as bounded as what comes over V2."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.geminga_bookie.fakes import KEY, OTHER_KEY, make_add, make_entry
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import (
    FENCE,
    RECOVERY,
    V3Client,
    add,
    explicit_lac,
    force,
    read,
    read_lac,
    write_lac,
)

from geminga_bookie.sessions.v3_adds import EXPLICIT_LAC_BYTES_MAX
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v2 import encode_read

DEFERRED_SYNC = 1


async def test_adds_of_both_versions_make_one_ledger() -> None:
    host = Host()
    async with host.bookie():
        v2 = host.network.connect_client()
        client = V3Client(host.network.connect_client())
        await v2.ask(make_add(1, 0))
        assert await client.status(add(1, 1)) == "EOK"
        await v2.ask(make_add(1, 2))
        answers = await v2.ask(*(encode_read(1, number) for number in range(3)))
        assert [answer[4] for answer in answers] == [make_entry(1, number) for number in range(3)]


async def test_nothing_is_answered_before_it_is_durable_then_all_with_one_write() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        host.journal_disk.gate = asyncio.Event()
        asked = [add(1, 0), add(1, 1, write_flags=DEFERRED_SYNC), write_lac(1, 0), add(1, 2)]
        client.send(*asked)
        await asyncio.sleep(1)
        assert client.taken() == []
        host.journal_disk.gate.set()
        answers = await client.answers(4)
        assert [answer.header.txnId for answer in answers] == [0, 1, 7, 2]
        assert len(client.client.transport.written) == 1
        assert bookie.counters.adds == 3


@pytest.mark.parametrize("how", ["kill", "cut_power"])
async def test_what_was_answered_survives_a_crash(how: str) -> None:
    host = Host()
    bookie = host.bookie()
    await bookie.__aenter__()
    client = V3Client(host.network.connect_client())
    await client.ask(add(1, 0))
    await client.ask(write_lac(1, 0))
    await client.ask(write_lac(2, 9))
    getattr(host, how)()
    await bookie.__aexit__(None, None, None)
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        assert (await client.ask(read(1, 0))).readResponse.body == make_entry(1, 0)
        assert (await client.ask(read_lac(1))).readLacResponse.lacBody == explicit_lac(1, 0)
        assert (await client.ask(read_lac(2))).readLacResponse.lacBody == explicit_lac(2, 9)


async def test_an_explicit_lac_survives_a_clean_stop() -> None:
    host = Host()
    async with host.bookie():
        await V3Client(host.network.connect_client()).ask(write_lac(1, 5))
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        assert (await client.ask(read_lac(1))).readLacResponse.lacBody == explicit_lac(1, 5)


async def test_a_fenced_ledger_takes_recovery_adds_only() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        await client.ask(read(1, -1, flag=FENCE, key=KEY))
        assert await client.status(add(1, 1)) == "EFENCED"
        assert await client.status(add(1, 1, flag=RECOVERY)) == "EOK"
        assert await client.status(add(1, 1, flag=RECOVERY, priority=100)) == "EOK"
        assert bookie.counters.adds_refused == 1


async def test_a_wrong_key_may_write_nothing() -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        await client.ask(add(1, 0))
        for key in (OTHER_KEY, b"", KEY + b"x"):
            assert await client.status(add(1, 1, key=key)) == "EUA"
            assert await client.status(write_lac(1, 0, key=key)) == "EUA"


@pytest.mark.parametrize(
    "body", [b"", bytes(15), explicit_lac(2, 0), explicit_lac(1, 0) + bytes(EXPLICIT_LAC_BYTES_MAX)]
)
async def test_an_explicit_lac_that_is_none_is_a_bad_request(body: bytes) -> None:
    host = Host()
    async with host.bookie():
        client = V3Client(host.network.connect_client())
        assert await client.status(write_lac(1, 0, body=body)) == "EBADREQ"
        assert await client.status(read_lac(1)) == "ENOENTRY"


async def test_a_journal_that_fails_fails_adds_and_forces_and_makes_read_only() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        assert await client.status(add(1, 0)) == "EOK"
        assert await client.status(force(1)) == "EOK"
        host.journal_disk.fail("append", errno.ENOSPC)
        answer = await client.ask(add(1, 1))
        assert (answer.status, answer.addResponse.status) == (pb.EIO, pb.EIO)
        assert await client.status(add(1, 2)) == "EREADONLY"
        assert await client.status(write_lac(1, 2)) == "EREADONLY"
        assert await client.status(force(1)) == "EIO"
        assert bookie.counters.adds_failed == 1


async def test_adds_count_against_the_write_cache() -> None:
    host = Host(write_cache_bytes_max=20_000)
    async with host.bookie() as bookie:
        client = V3Client(host.network.connect_client())
        host.ledger_disk.gate = asyncio.Event()
        for number in range(6):
            body = make_entry(1, number, bytes(4000))
            await client.ask(add(1, number, body=body))
        await asyncio.sleep(1)
        assert not client.client.is_read()
        host.ledger_disk.gate.set()
        await asyncio.sleep(1)
        assert client.client.is_read()
        assert bookie.back_pressure.holds == 1
