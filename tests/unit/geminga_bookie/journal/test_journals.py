"""Several journals answer as one does: each ledger in its own, in order, none told too early."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from tests.unit.geminga_bookie.fakes import KEY, Client, make_add, make_entry
from tests.unit.geminga_bookie.garbage_rig import code_of, require_fenced
from tests.unit.geminga_bookie.host import CONFIG, Host
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.disks.directories import Directories
from geminga_bookie.errors import CorruptFile, JournalFileMissing, JournalsChanged
from geminga_bookie.formats.journal_v1 import file_number
from geminga_bookie.journal.journals import NUMBER_FILE_NAME, ordered_directories
from geminga_bookie.journal.replay import Replay
from geminga_protocol.bookkeeper.v2 import Flag, ReturnCode, encode_read

JOURNALS = ("/j0", "/j1", "/j2")
LEDGERS = range(7)


def make_host(**changes: object) -> Host:
    return Host(CONFIG, journal_directories=tuple(map(Path, JOURNALS)), **changes)


async def require_all(client: Client, count: int) -> None:
    for ledger_id in LEDGERS:
        answers = await client.ask(*(encode_read(ledger_id, number) for number in range(count)))
        assert [answer[4] for answer in answers] == [
            make_entry(ledger_id, number) for number in range(count)
        ]


async def ledgers_in(disk: MemoryDisk) -> set[int]:
    """Which ledgers have adds or fences in a journal."""
    from geminga_bookie.formats.journal_v1 import decode_body

    found: set[int] = set()
    async for group in Replay(disk, None).groups():
        for adds, mark in decode_body(group.path, group.body):
            found.update(one[0] for one in adds)
            if mark is not None:
                found.add(mark[0])
    return found


async def test_each_ledger_has_its_journal_and_all_come_back() -> None:
    host = make_host()
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    for number in range(5):
        answers = await client.ask(*(make_add(ledger_id, number) for ledger_id in LEDGERS))
        assert {answer[1] for answer in answers} == {0}
    await client.ask(encode_read(11, 0, int(Flag.FENCING), KEY))
    host.kill()
    await bookie.__aexit__(None, None, None)
    found = [await ledgers_in(disk) for disk in host.journal_disks]
    assert found == [{0, 3, 6}, {1, 4}, {2, 5, 11}]
    async with host.bookie():
        client = host.network.connect_client()
        await require_all(client, 5)
        await require_fenced(client, 11)


async def test_adds_are_answered_in_order_when_all_they_came_with_is_durable() -> None:
    host = make_host()
    async with host.bookie():
        client = host.network.connect_client()
        slow = host.journal_disks[1]
        slow.gate = asyncio.Event()
        client.send(make_add(0, 0), make_add(1, 0), make_add(0, 1))
        await asyncio.sleep(1)
        client.send(make_add(0, 2))
        await asyncio.sleep(1)
        assert client.taken() == []
        slow.gate.set()
        answers = await client.answers(4)
        assert [answer[2:4] for answer in answers] == [(0, 0), (1, 0), (0, 1), (0, 2)]
        assert {answer[1] for answer in answers} == {0}


async def test_a_journal_that_fails_fails_what_came_with_its_adds_and_then_everything() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        host.journal_disks[1].fail("sync", errno.EIO)
        answers = await client.ask(make_add(0, 0), make_add(1, 0))
        assert [answer[1] for answer in answers] == [ReturnCode.EIO] * 2
        assert await code_of(client, make_add(0, 1)) == ReturnCode.EREADONLY
        assert bookie.failed.is_set()
        fencing = encode_read(0, 0, int(Flag.FENCING), KEY)
        assert await code_of(client, fencing) == ReturnCode.EIO


@pytest.mark.parametrize("checkpoints", [0, 1])
async def test_directories_may_be_named_in_another_order(checkpoints: int) -> None:
    host = make_host(journal_file_bytes_max=300)
    bookie = host.bookie()
    await bookie.__aenter__()
    client = host.network.connect_client()
    for number in range(4):
        for ledger_id in LEDGERS:
            await client.ask(make_add(ledger_id, number))
        if checkpoints and number == 2:
            await bookie.checkpointer.run()
    host.kill()
    await bookie.__aexit__(None, None, None)
    host.journal_disks.reverse()
    async with host.bookie():
        await require_all(host.network.connect_client(), 4)


async def test_a_journal_file_that_is_missing_stops_the_start_before_anything_is_changed() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await client.ask(make_add(1, 0))
        await bookie.checkpointer.run()
    disk = host.journal_disks[1]
    for name in list(disk.files):
        if file_number(name) is not None:
            del disk.files[name]
    before = [each.contents() for each in (*host.journal_disks, *host.ledger_disks)]
    with pytest.raises(JournalFileMissing):
        async with host.bookie():
            pass
    assert [each.contents() for each in (*host.journal_disks, *host.ledger_disks)] == before


async def test_numbers_are_given_once_and_then_kept() -> None:
    disks = [MemoryDisk(), MemoryDisk()]
    there = Directories(zip(("/a", "/b"), disks, strict=True))
    assert [each.path for each in await ordered_directories(there)] == ["/a", "/b"]
    back = Directories(zip(("/b", "/a"), reversed(disks), strict=True))
    assert [each.path for each in await ordered_directories(back)] == ["/a", "/b"]


async def test_one_journal_needs_no_number() -> None:
    disk = MemoryDisk()
    await ordered_directories(Directories([("/a", disk)]))
    assert disk.files == {}


async def test_the_same_journal_twice_is_refused() -> None:
    disks = [MemoryDisk({NUMBER_FILE_NAME: b"1\n"}), MemoryDisk({NUMBER_FILE_NAME: b"1\n"})]
    with pytest.raises(JournalsChanged, match="/a holds journal 1, /b holds journal 1"):
        await ordered_directories(Directories(zip(("/a", "/b"), disks, strict=True)))


async def test_a_damaged_number_names_its_file() -> None:
    disks = [MemoryDisk({NUMBER_FILE_NAME: b"one\n"}), MemoryDisk()]
    with pytest.raises(CorruptFile, match=f"/a/{NUMBER_FILE_NAME}"):
        await ordered_directories(Directories(zip(("/a", "/b"), disks, strict=True)))
