"""A session answers what is durable, refuses what it must, and outlives any bytes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import (
    KEY,
    OTHER_KEY,
    Answer,
    Client,
    batch_read,
    make_add,
    make_entry,
)
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import add as v3_add
from tests.unit.geminga_bookie.v3_requests import list_entries, poll, write_lac
from tests.unit.geminga_bookie.v3_requests import read as v3_read

from geminga_bookie.bookie import Bookie
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY, Flag, Operation, ReturnCode, encode_read
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_protocol.framing import FRAME_SIZE
from geminga_simulation.event_loop.loop import SimulatedLoop

ADD, READ = int(Operation.ADD), int(Operation.READ)
FENCING = int(Flag.FENCING)
RECOVERY = int(Flag.RECOVERY_ADD)


@asynccontextmanager
async def serving(host: Host) -> AsyncGenerator[tuple[Bookie, Client], None]:
    async with host.bookie() as bookie:
        yield bookie, await host.network.connect_client().authorized()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def added(ledger_id: int, entry_id: int, code: int = ReturnCode.EOK) -> Answer:
    return ADD, int(code), ledger_id, entry_id, b""


def read(ledger_id: int, entry_id: int, entry: bytes) -> Answer:
    return READ, 0, ledger_id, entry_id, entry


def refused_read(ledger_id: int, entry_id: int, code: int) -> Answer:
    return READ, int(code), ledger_id, entry_id, b""


def fence(ledger_id: int, entry_id: int = LAST_ENTRY, key: bytes = KEY) -> bytes:
    return encode_read(ledger_id, entry_id, FENCING, key)


async def test_adds_are_answered_in_order_and_read_back() -> None:
    async with serving(Host()) as (_, client):
        adds = [make_add(1, 0), make_add(1, 1), make_add(2, 0), make_add(1, 2)]
        assert await client.ask(*adds) == [added(1, 0), added(1, 1), added(2, 0), added(1, 2)]
        answers = await client.ask(encode_read(1, 1), encode_read(2, 0))
        assert answers == [read(1, 1, make_entry(1, 1)), read(2, 0, make_entry(2, 0))]


async def test_all_that_one_sync_made_durable_is_answered_with_one_write() -> None:
    async with serving(Host()) as (_, client):
        client.send(*(make_add(1, number) for number in range(10)))
        client.send(*(make_add(2, number) for number in range(10)))
        assert len(await client.answers(20)) == 20
        assert len(client.transport.written) == 1


async def test_nothing_is_answered_before_it_is_durable() -> None:
    host = Host()
    async with serving(host) as (_, client):
        host.journal_disk.gate = asyncio.Event()
        client.send(make_add(1, 0))
        await settle()
        assert client.taken() == []
        host.journal_disk.gate.set()
        assert await client.answers(1) == [added(1, 0)]


async def test_requests_may_be_cut_at_every_byte() -> None:
    requests = b"".join(
        [make_add(1, 0), make_add(1, 1), encode_read(9, 0), make_add(1, 2), fence(1)]
    )
    host = Host()
    async with serving(host) as (_, whole):
        whole.send(requests)
        wanted = await whole.answers(5)
    for cut in range(1, len(requests)):
        host = Host()
        async with serving(host) as (_, client):
            client.send(requests[:cut])
            client.send(requests[cut:])
            assert sorted(await client.answers(5)) == sorted(wanted)


async def test_requests_may_come_byte_by_byte() -> None:
    async with serving(Host()) as (_, client):
        requests = make_add(1, 0) + encode_read(9, 0) + make_add(1, 1)
        for position in range(len(requests)):
            client.send(requests[position : position + 1])
        assert sorted(await client.answers(3)) == sorted(
            [added(1, 0), added(1, 1), refused_read(9, 0, ReturnCode.ENOLEDGER)]
        )


async def test_an_entry_added_again_is_the_newer_one() -> None:
    async with serving(Host()) as (bookie, client):
        await client.ask(make_add(1, 0, b"first"))
        await bookie.checkpointer.run()
        await client.ask(make_add(1, 0, b"again"))
        assert await client.ask(encode_read(1, 0)) == [read(1, 0, make_entry(1, 0, b"again"))]
        await bookie.checkpointer.run()
        assert await client.ask(encode_read(1, 0)) == [read(1, 0, make_entry(1, 0, b"again"))]


# Reading.


async def test_what_does_not_exist_is_told_apart() -> None:
    async with serving(Host()) as (bookie, client):
        assert await client.ask(encode_read(1, 0)) == [refused_read(1, 0, ReturnCode.ENOLEDGER)]
        await client.ask(make_add(1, 3))
        missing = [encode_read(1, 0), encode_read(1, 4)]
        wanted = [refused_read(1, entry_id, ReturnCode.ENOENTRY) for entry_id in (0, 4)]
        assert await client.ask(*missing) == wanted
        await bookie.checkpointer.run()
        assert await client.ask(*missing) == wanted


async def test_the_last_entry_is_asked_for_by_minus_one() -> None:
    async with serving(Host()) as (bookie, client):
        await client.ask(make_add(1, 0), make_add(1, 7), make_add(1, 3))
        last = [read(1, LAST_ENTRY, make_entry(1, 7))]
        assert await client.ask(encode_read(1, LAST_ENTRY)) == last
        await bookie.checkpointer.run()
        assert await client.ask(encode_read(1, LAST_ENTRY)) == last
        await client.ask(make_add(1, 5))
        assert await client.ask(encode_read(1, LAST_ENTRY)) == last


async def test_reads_from_the_entry_log_come_in_order_with_few_disk_reads() -> None:
    host = Host(block_bytes=2000)
    async with serving(host) as (bookie, client):
        await client.ask(*(make_add(1, number) for number in range(500)))
        await bookie.checkpointer.run()
        reads = host.ledger_disk.reads
        requests = [encode_read(1, number) for number in range(501)]
        answers = await client.ask(*requests)
        assert answers[:500] == [read(1, number, make_entry(1, number)) for number in range(500)]
        assert answers[500] == refused_read(1, 500, ReturnCode.ENOENTRY)
        assert host.ledger_disk.reads - reads < 25
        assert bookie.counters.reads == 500
        assert bookie.counters.reads_in_progress == 0


async def test_a_reader_that_takes_nothing_is_not_read_and_gets_all_later() -> None:
    async with serving(Host()) as (bookie, client):
        await client.ask(*(make_add(1, number, bytes(100_000)) for number in range(10)))
        client.session.pause_writing()
        assert not client.is_read()
        client.send(*(encode_read(1, number) for number in range(10)))
        await settle()
        early = len(client.taken())
        assert early < 6
        client.session.resume_writing()
        assert client.is_read()
        assert len(await client.answers(10 - early)) == 10 - early
        assert bookie.counters.reads == 10


async def test_too_many_waiting_reads_stop_the_reading_of_the_socket() -> None:
    async with serving(Host(reads_queued_max=10)) as (bookie, client):
        await client.ask(make_add(1, 0))
        await bookie.checkpointer.run()
        client.send(*(encode_read(1, 0) for _ in range(30)))
        assert not client.is_read()
        assert len(await client.answers(30)) == 30
        assert client.is_read()


async def test_a_disk_error_while_reading_is_eio_for_that_read_only() -> None:
    host = Host()
    async with serving(host) as (bookie, client):
        await client.ask(make_add(1, 0))
        await bookie.checkpointer.run()
        host.ledger_disk.fail("read", errno.EIO)
        assert await client.ask(encode_read(1, 0)) == [refused_read(1, 0, ReturnCode.EIO)]
        assert await client.ask(encode_read(1, 0)) == [read(1, 0, make_entry(1, 0))]


async def test_of_a_damaged_block_only_what_is_damaged_is_eio() -> None:
    host = Host()
    async with serving(host) as (bookie, client):
        await client.ask(*(make_add(1, number) for number in range(3)))
        await bookie.checkpointer.run()
        (log,) = [name for name in host.ledger_disk.files if name.endswith(".entries")]
        content = host.ledger_disk.files[log].content
        content[bytes(content).find(make_entry(1, 1)) + 15] ^= 1
        for _ in range(2):
            assert await client.ask(*(encode_read(1, number) for number in range(3))) == [
                read(1, 0, make_entry(1, 0)),
                refused_read(1, 1, ReturnCode.EIO),
                read(1, 2, make_entry(1, 2)),
            ]
        assert bookie.entry_log.damaged_blocks == 1


async def test_reads_of_a_connection_that_is_gone_are_dropped() -> None:
    async with serving(Host()) as (bookie, client):
        await client.ask(make_add(1, 0))
        await bookie.checkpointer.run()
        client.send(*(encode_read(1, 0) for _ in range(30)))
        client.session.connection_lost(None)
        await settle()
        assert bookie.counters.reads_in_progress == 0
        assert client.taken() == []


# Fencing.


async def test_a_fencing_read_refuses_later_adds_and_gives_the_last_entry() -> None:
    async with serving(Host()) as (_, client):
        await client.ask(make_add(1, 0), make_add(1, 1))
        assert await client.ask(fence(1)) == [read(1, LAST_ENTRY, make_entry(1, 1))]
        assert (
            await client.ask(make_add(1, 2), make_add(1, 2, flags=4))
            == [added(1, 2, ReturnCode.EFENCED)] * 2
        )
        assert await client.ask(encode_read(1, 2)) == [refused_read(1, 2, ReturnCode.ENOENTRY)]
        assert await client.ask(make_add(2, 0)) == [added(2, 0)]


async def test_recovery_adds_to_a_fenced_ledger() -> None:
    async with serving(Host()) as (_, client):
        await client.ask(make_add(1, 0), fence(1))
        recovered = [make_add(1, number, flags=RECOVERY) for number in (0, 1)]
        assert await client.ask(*recovered) == [added(1, 0), added(1, 1)]
        assert await client.ask(make_add(1, 2)) == [added(1, 2, ReturnCode.EFENCED)]


async def test_add_fence_and_add_in_one_piece_are_taken_in_order() -> None:
    async with serving(Host()) as (_, client):
        answers = await client.ask(make_add(1, 0), fence(1), make_add(1, 1))
        assert sorted(answers) == sorted(
            [
                added(1, 0),
                read(1, LAST_ENTRY, make_entry(1, 0)),
                added(1, 1, ReturnCode.EFENCED),
            ]
        )


async def test_a_fencing_read_is_answered_only_when_the_fence_is_durable() -> None:
    host = Host()
    async with serving(host) as (_, client):
        await client.ask(make_add(1, 0))
        host.journal_disk.gate = asyncio.Event()
        client.send(fence(1), make_add(1, 1))
        await settle()
        assert client.taken() == [added(1, 1, ReturnCode.EFENCED)]
        second = host.network.connect_client()
        second.send(fence(1))
        await settle()
        assert second.taken() == []
        host.journal_disk.gate.set()
        assert await client.answers(1) == [read(1, LAST_ENTRY, make_entry(1, 0))]
        assert await second.answers(1) == [read(1, LAST_ENTRY, make_entry(1, 0))]
        syncs = host.journal_disk.syncs
        assert await second.ask(fence(1)) == [read(1, LAST_ENTRY, make_entry(1, 0))]
        assert host.journal_disk.syncs == syncs


async def test_an_unknown_ledger_is_fenced_all_the_same() -> None:
    async with serving(Host()) as (_, client):
        wanted = [refused_read(1, LAST_ENTRY, ReturnCode.ENOENTRY)]
        assert await client.ask(fence(1)) == wanted
        assert await client.ask(make_add(1, 0)) == [added(1, 0, ReturnCode.EFENCED)]
        assert await client.ask(encode_read(1, 0)) == [refused_read(1, 0, ReturnCode.ENOENTRY)]


async def test_another_master_key_may_neither_add_nor_fence_but_read() -> None:
    async with serving(Host()) as (_, client):
        await client.ask(make_add(1, 0))
        assert await client.ask(make_add(1, 1, key=OTHER_KEY)) == [added(1, 1, ReturnCode.EUA)]
        assert await client.ask(fence(1, key=OTHER_KEY)) == [
            refused_read(1, LAST_ENTRY, ReturnCode.EUA)
        ]
        assert await client.ask(make_add(1, 1)) == [added(1, 1)]
        assert await client.ask(encode_read(1, 0)) == [read(1, 0, make_entry(1, 0))]


async def test_a_fence_whose_client_is_gone_still_holds() -> None:
    host = Host()
    async with serving(host) as (_, client):
        await client.ask(make_add(1, 0))
        client.send(fence(1))
        client.session.connection_lost(None)
        second = host.network.connect_client()
        assert await second.ask(make_add(1, 1)) == [added(1, 1, ReturnCode.EFENCED)]
        await settle()
        assert client.taken() == []


# Disks that fail.


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_a_journal_error_is_eio_and_then_the_bookie_is_read_only(operation: str) -> None:
    host = Host()
    async with serving(host) as (bookie, client):
        await client.ask(make_add(1, 0))
        host.journal_disk.fail(operation, errno.ENOSPC)
        answers = await client.ask(make_add(1, 1), make_add(2, 0))
        assert answers == [added(1, 1, ReturnCode.EIO), added(2, 0, ReturnCode.EIO)]
        assert bookie.storage.is_read_only
        assert (
            await client.ask(make_add(1, 2), make_add(1, 2, flags=RECOVERY))
            == [added(1, 2, ReturnCode.EREADONLY)] * 2
        )
        assert await client.ask(encode_read(1, 0)) == [read(1, 0, make_entry(1, 0))]
        assert bookie.counters.adds_failed == 2


async def test_a_fence_that_cannot_be_written_is_eio_and_stays_one() -> None:
    host = Host()
    async with serving(host) as (_, client):
        await client.ask(make_add(1, 0))
        host.journal_disk.fail("sync", errno.EIO)
        failed = [refused_read(1, LAST_ENTRY, ReturnCode.EIO)]
        assert await client.ask(fence(1)) == failed
        assert await client.ask(fence(1)) == failed


# Too much at once.


async def test_too_many_queued_bytes_stop_the_reading_of_all_sockets() -> None:
    host = Host(journal_queue_bytes_max=10_000)
    async with serving(host) as (bookie, client):
        second = host.network.connect_client()
        host.journal_disk.gate = asyncio.Event()
        for number in range(5):
            client.send(make_add(1, number, bytes(3000)))
            await settle()
        assert not client.is_read()
        assert not second.is_read()
        assert not host.network.connect_client().is_read()
        host.journal_disk.gate.set()
        assert len(await client.answers(5)) == 5
        assert client.is_read()
        assert second.is_read()
        assert bookie.back_pressure.holds == 1


async def test_a_full_write_cache_stops_the_reading_till_a_checkpoint_is_through() -> None:
    host = Host(write_cache_bytes_max=20_000)
    async with serving(host) as (bookie, client):
        host.ledger_disk.gate = asyncio.Event()
        for number in range(6):
            await client.ask(make_add(1, number, bytes(4000)))
        await settle()
        assert not client.is_read()
        host.ledger_disk.gate.set()
        await settle()
        assert client.is_read()
        answers = await client.ask(*(encode_read(1, number) for number in range(6)))
        assert [answer[1] for answer in answers] == [0] * 6
        assert bookie.back_pressure.holds == 1


# Other protocols, and garbage.


@pytest.mark.parametrize("version", [0, 1])
async def test_old_versions_are_refused_and_the_connection_stays(version: int) -> None:
    async with serving(Host()) as (_, client):
        request = bytearray(make_add(1, 5))
        request[4] = version
        assert await client.ask(bytes(request)) == [added(1, 5, ReturnCode.EBADVERSION)]
        assert await client.ask(make_add(1, 0)) == [added(1, 0)]


@pytest.mark.parametrize("operation", [4, 5, 6, 99])
async def test_operations_not_served_are_refused_and_the_connection_stays(operation: int) -> None:
    async with serving(Host()) as (_, client):
        request = bytearray(encode_read(1, 5))
        request[5] = operation
        answers = await client.ask(bytes(request))
        assert answers == [(operation, int(ReturnCode.EBADREQ), 1, 5, b"")]
        short = FRAME_SIZE.pack(4) + bytes([2, operation, 0, 0])
        assert await client.ask(short) == [(operation, int(ReturnCode.EBADREQ), -1, -1, b"")]
        assert await client.ask(make_add(1, 0)) == [added(1, 0)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        FRAME_SIZE.pack(0),
        FRAME_SIZE.pack(3) + b"\x02\x01\0",
        FRAME_SIZE.pack(39) + make_add(1, 1)[4:43],
        FRAME_SIZE.pack(19) + encode_read(1, 0)[4:23],
        FRAME_SIZE.pack(24) + b"\x02\x02\0\x01" + bytes(20),
        FRAME_SIZE.pack(20) + b"\x02\x02\0\0" + b"\xff" * 16,
        FRAME_SIZE.pack(44) + make_add(1, 0)[4:28] + b"\xff" * 20,
        make_add(1, 0)[:36] + b"\xff" * 8 + make_add(1, 0)[44:],
        FRAME_SIZE.pack(60) + b"\x0a" + b"\xff" * 59,
        FRAME_SIZE.pack(10) + b"\x63" * 10,
    ],
)
async def test_garbage_closes_its_connection_and_no_other(garbage: bytes) -> None:
    host = Host()
    async with serving(host) as (bookie, client):
        await client.ask(make_add(1, 0))
        client.send(make_add(1, 1) + garbage)
        assert client.transport.has_ended
        await settle()
        assert bookie.counters.connections_faulty == 1
        second = host.network.connect_client()
        assert await second.ask(encode_read(1, 0)) == [read(1, 0, make_entry(1, 0))]
        assert len(bookie.back_pressure.connections) == 1


async def test_an_oversized_frame_closes_the_connection() -> None:
    async with serving(Host(frame_bytes_max=1000)) as (_, client):
        client.send(make_add(1, 0, bytes(900)))
        assert not client.transport.has_ended
        client.send(FRAME_SIZE.pack(1001))
        assert client.transport.has_ended


pieces = st.one_of(
    st.binary(max_size=60),
    st.builds(make_add, st.integers(0, 3), st.integers(0, 9), st.binary(max_size=9)),
    st.builds(encode_read, st.integers(0, 3), st.integers(-1, 9)),
    st.builds(fence, st.integers(0, 3), st.integers(-1, 9)),
    st.builds(v3_add, st.integers(-1, 3), st.integers(-1, 9)).map(encode_frame),
    st.builds(v3_read, st.integers(-1, 3), st.integers(-3, 9)).map(encode_frame),
    st.builds(poll, st.integers(0, 3), st.integers(-3, 9)).map(encode_frame),
    st.builds(write_lac, st.integers(0, 3), st.integers(-3, 9)).map(encode_frame),
    st.builds(list_entries, st.integers(0, 3)).map(encode_frame),
    st.builds(batch_read, st.integers(-1, 3), st.integers(-1, 9)),
    st.binary(max_size=50).map(lambda frame: FRAME_SIZE.pack(len(frame)) + frame),
)


@given(st.lists(pieces, max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_bytes_break_the_bookie(requests: list[bytes]) -> None:
    async def run() -> None:
        host = Host()
        async with serving(host) as (bookie, client):
            for request in requests:
                if client.transport.has_ended:
                    break
                client.send(request)
            await settle()
            second = host.network.connect_client()
            assert await second.ask(make_add(77, 0)) == [added(77, 0)]
            assert bookie.journals[0].error is None
        host.kill()
        async with serving(host) as (_, third):
            assert await third.ask(encode_read(77, 0)) == [read(77, 0, make_entry(77, 0))]

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())
