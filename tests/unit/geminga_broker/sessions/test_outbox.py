"""Proves when, and in how many writes, frames leave for a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from geminga_broker.sessions.config import SessionConfig
from geminga_broker.sessions.outbox import JOINED_BYTES_MAX, Outbox

CONFIG = SessionConfig()


class NotingTransport(asyncio.Transport):
    """Notes each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes | list[bytes]] = []
        self.high = 0
        self.ends: list[str] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        self.high = high or 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.writes.append([bytes(each) for each in list_of_data])

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")


@pytest.fixture
def transport() -> NotingTransport:
    """What an outbox writes to."""
    return NotingTransport()


async def test_frames_of_one_turn_leave_in_order_with_one_write(
    transport: NotingTransport,
) -> None:
    outbox = Outbox(transport, CONFIG)
    assert transport.high == CONFIG.write_buffer_bytes_high
    outbox.send(b"a")
    outbox.frames += [b"b", b"c"]
    outbox.delivered(2)
    outbox.send(b"d")
    assert not transport.writes
    await asyncio.sleep(0)
    assert transport.writes == [b"abcd"]
    outbox.send(b"e")
    await asyncio.sleep(0)
    assert transport.writes == [b"abcd", b"e"]


async def test_large_messages_are_written_without_being_joined(
    transport: NotingTransport,
) -> None:
    outbox = Outbox(transport, CONFIG)
    pieces = [bytes(JOINED_BYTES_MAX + 1)] * 3
    outbox.frames += pieces
    outbox.delivered(3 * (JOINED_BYTES_MAX + 1))
    await asyncio.sleep(0)
    outbox.frames += [b"x", b"y"]
    outbox.delivered(2)
    await asyncio.sleep(0)
    assert transport.writes == [pieces, b"xy"]


async def test_many_delivered_bytes_do_not_wait_for_the_loop(transport: NotingTransport) -> None:
    outbox = Outbox(transport, CONFIG)
    outbox.frames.append(b"x")
    outbox.delivered(CONFIG.unflushed_bytes_max)
    assert not transport.writes
    outbox.delivered(1)
    assert transport.writes == [[b"x"]]
    await asyncio.sleep(0)
    assert transport.writes == [[b"x"]]


async def test_what_is_queued_is_written_before_the_end_and_nothing_after_it(
    transport: NotingTransport,
) -> None:
    outbox = Outbox(transport, CONFIG)
    outbox.send(b"last words")
    outbox.close()
    assert (transport.writes, transport.ends) == ([b"last words"], ["close"])
    outbox.send(b"more")
    await asyncio.sleep(0)
    assert transport.writes == [b"last words"]
    assert not outbox.frames, "what is dropped is not kept"


async def test_a_connection_that_was_aborted_is_not_written_to(transport: NotingTransport) -> None:
    outbox = Outbox(transport, CONFIG)
    outbox.send(b"too late")
    outbox.abort()
    await asyncio.sleep(0)
    assert not transport.writes
