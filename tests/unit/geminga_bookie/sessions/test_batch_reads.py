"""One V2 request for several entries gets as many neighbours as there are and fit."""

from __future__ import annotations

import errno
from struct import Struct

import pytest
from tests.unit.geminga_bookie.fakes import (
    KEY,
    OTHER_KEY,
    Client,
    batch_read,
    make_add,
    make_entry,
)
from tests.unit.geminga_bookie.host import Host

from geminga_bookie.sessions import batch_reads
from geminga_protocol.bookkeeper.v2 import ReturnCode

ENTRY_BYTES = len(make_entry(1, 0))
# What comes after the ids: the request's id, then each entry behind its size.
_REQUEST_ID = Struct(">q")


async def asked(client: Client, request: bytes) -> tuple[int, list[bytes]]:
    """The return code and the entries of the answer."""
    ((operation, code, _, _, body),) = await client.ask(request)
    assert operation == 7
    assert _REQUEST_ID.unpack_from(body) == (77,)
    entries: list[bytes] = []
    position = _REQUEST_ID.size
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        entries.append(body[position + 4 : position + 4 + size])
        position += 4 + size
    return code, entries


async def filled(host: Host) -> Client:
    client = host.network.connect_client()
    await client.ask(*(make_add(1, number) for number in (0, 1, 2, 3, 5)))
    return client


async def test_it_gives_neighbours_up_to_the_first_hole() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = await filled(host)
        entries = [make_entry(1, number) for number in range(4)]
        assert await asked(client, batch_read(1, 0)) == (0, entries)
        assert await asked(client, batch_read(1, 1, count_max=2)) == (0, entries[1:3])
        await bookie.checkpointer.run()
        assert await asked(client, batch_read(1, 0)) == (0, entries)
        assert bookie.counters.reads == 10


@pytest.mark.parametrize(("bytes_max", "count"), [(-1, 1), (0, 1), (ENTRY_BYTES, 1)])
async def test_one_entry_comes_however_little_is_wanted(bytes_max: int, count: int) -> None:
    host = Host()
    async with host.bookie():
        client = await filled(host)
        _, entries = await asked(client, batch_read(1, 0, bytes_max=bytes_max))
        assert len(entries) == count


async def test_the_answer_is_not_longer_than_wanted() -> None:
    host = Host()
    async with host.bookie():
        client = await filled(host)
        whole = 36 + 2 * (ENTRY_BYTES + 4)
        assert len((await asked(client, batch_read(1, 0, bytes_max=whole)))[1]) == 2
        assert len((await asked(client, batch_read(1, 0, bytes_max=whole - 1)))[1]) == 1


async def test_an_answer_is_bounded_whatever_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reads, "BATCH_ENTRIES_MAX", 3)
    host = Host(frame_bytes_max=300)
    async with host.bookie():
        client = await filled(host)
        assert len((await asked(client, batch_read(1, 0, count_max=1000)))[1]) == 3
        await client.ask(make_add(2, 0, bytes(200)), make_add(2, 1, bytes(200)))
        assert len((await asked(client, batch_read(2, 0)))[1]) == 1


async def test_missing_entries_and_ledgers_and_failing_disks_have_codes_of_their_own() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = await filled(host)
        assert await asked(client, batch_read(1, 4)) == (ReturnCode.ENOENTRY, [])
        assert await asked(client, batch_read(2, 0)) == (ReturnCode.ENOLEDGER, [])
        await bookie.checkpointer.run()
        host.ledger_disk.fail("read", errno.EIO)
        assert await asked(client, batch_read(1, 0)) == (ReturnCode.EIO, [])
        assert bookie.counters.reads_failed == 3


async def test_a_fencing_one_fences_first() -> None:
    host = Host()
    async with host.bookie():
        client = await filled(host)
        assert await asked(client, batch_read(1, 0, key=OTHER_KEY)) == (ReturnCode.EUA, [])
        for _ in range(2):
            assert len((await asked(client, batch_read(1, 0, key=KEY)))[1]) == 4
        ((_, code, _, _, _),) = await client.ask(make_add(1, 4))
        assert code == ReturnCode.EFENCED


async def test_a_fence_that_cannot_be_written_is_an_io_error() -> None:
    host = Host()
    async with host.bookie():
        client = await filled(host)
        host.journal_disk.fail("sync", errno.EIO)
        assert await asked(client, batch_read(1, 0, key=KEY)) == (ReturnCode.EIO, [])
