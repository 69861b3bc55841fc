"""Frames leave together, entries wait for a due answer, and a full transport holds all back."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_ledger.fake_network import FakeTransport
from tests.unit.geminga_ledger.world import settle

from geminga_ledger.connections.outbox import GATHER_S, LOOSE_CHUNKS_MAX, Outbox


class Overflow:
    """Counts how often the outbox was too full."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def send(outbox: Outbox, *chunks: bytes) -> None:
    if not outbox.chunks:
        outbox.wake()
    outbox.chunks += chunks


def new_transport() -> FakeTransport:
    return FakeTransport(asyncio.Protocol())


async def test_all_of_one_turn_leaves_in_one_write() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(transport)
    send(outbox, b"a", b"b")
    send(outbox, b"c")
    assert transport.writes == []
    await settle()
    assert transport.writes == [b"abc"]
    send(outbox, b"d")
    await settle()
    assert transport.writes == [b"abc", b"d"]


async def test_many_chunks_leave_in_order_too() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(transport)
    chunks = [b"%d," % number for number in range(LOOSE_CHUNKS_MAX * 3)]
    send(outbox, *chunks)
    await settle()
    assert transport.writes == [b"".join(chunks)]


async def test_without_a_connection_nothing_is_kept() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    send(outbox, b"too early")
    await settle()
    assert outbox.chunks == []
    send(outbox, b"before the connection")
    outbox.attach(transport)
    await settle()
    assert transport.writes == []


async def test_a_full_transport_holds_frames_back_until_it_resumes() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(transport)
    outbox.pause()
    send(outbox, b"one ")
    await settle()
    send(outbox, b"two ")
    await settle()
    assert (transport.writes, outbox.held_bytes) == ([], 8)
    outbox.resume()
    send(outbox, b"three")
    await settle()
    assert b"".join(transport.writes) == b"one two three"
    assert outbox.held_bytes == 0


async def test_more_than_may_wait_is_reported() -> None:
    overflow = Overflow()
    outbox = Outbox(unsent_bytes_max=10, on_overflow=overflow)
    outbox.attach(new_transport())
    outbox.pause()
    send(outbox, b"0123456789")
    await settle()
    assert overflow.count == 0
    send(outbox, b"x")
    await settle()
    assert overflow.count == 1


async def test_a_new_connection_begins_empty_and_open() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(new_transport())
    outbox.pause()
    send(outbox, b"old")
    await settle()
    outbox.detach()
    outbox.attach(transport)
    outbox.resume()
    send(outbox, b"new")
    await settle()
    assert transport.writes == [b"new"]


def send_entry(outbox: Outbox, *chunks: bytes) -> None:
    if not outbox.chunks:
        outbox.wake_for_entries()
    outbox.chunks += chunks


async def test_an_entry_leaves_at_once_while_no_answer_is_due() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(transport)
    for number in range(3):
        send_entry(outbox, b"%d" % number)
        await settle()
        outbox.answered()
    assert transport.writes == [b"0", b"1", b"2"]


async def test_entries_gather_until_the_answer_that_is_due() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(transport)
    send_entry(outbox, b"first")
    await settle()
    send_entry(outbox, b"second ")
    await settle()
    send_entry(outbox, b"third")
    await settle()
    assert transport.writes == [b"first"]
    outbox.answered()
    assert transport.writes == [b"first", b"second third"]


async def test_gathered_entries_leave_in_time_though_no_answer_comes() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(transport)
    send_entry(outbox, b"first")
    await settle()
    for entry in (b"second", b"third"):
        send_entry(outbox, entry)
        await asyncio.sleep(GATHER_S * 1.5)
    assert transport.writes == [b"first", b"second", b"third"]


async def test_a_new_connection_owes_no_answer() -> None:
    outbox, transport = Outbox(unsent_bytes_max=100, on_overflow=Overflow()), new_transport()
    outbox.attach(new_transport())
    send_entry(outbox, b"unanswered")
    await settle()
    send_entry(outbox, b"gathering")
    outbox.detach()
    outbox.attach(transport)
    send_entry(outbox, b"new")
    await settle()
    assert transport.writes == [b"new"]
