"""Answers reach their callers, once per read, wherever the stream is cut; garbage only ends it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from geminga_ledger.connections.link_base import BookieStream
from geminga_ledger.connections.outbox import Outbox
from geminga_ledger.connections.v2_connection import V2Connection
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.bookkeeper.v2 import (
    encode_add_response,
    encode_read_response_header,
    encode_response,
)
from geminga_simulation.event_loop.loop import SimulatedLoop

FRAME_BYTES_MAX = 1000


class Asker:
    """A writer and a reader at once: remembers what it was told."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, list[int]]] = []
        self.refused: list[tuple[int, int, int]] = []
        self.answers: list[tuple[int, int, int, bytes]] = []
        self.lost: list[tuple[int, int]] = []

    def adds_stored(self, bookie: int, entry_ids: list[int]) -> None:
        self.stored.append((bookie, entry_ids))

    def add_refused(self, bookie: int, entry_id: int, return_code: int) -> None:
        self.refused.append((bookie, entry_id, return_code))

    def bookie_connected(self, bookie: int) -> None:
        raise AssertionError(f"links tell of bookie {bookie}, not connections")

    def bookie_unreachable(self, bookie: int) -> None:
        del bookie

    def bookie_absent(self, bookie: int) -> None:
        raise AssertionError(f"links tell of bookie {bookie}, not connections")

    def link_closed(self) -> None:
        raise AssertionError("links tell that, not connections")

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        self.answers.append((bookie, entry_id, return_code, buffer[start:end]))

    def read_lost(self, bookie: int, entry_id: int) -> None:
        self.lost.append((bookie, entry_id))


class Stream:
    """A connection whose bytes the test gives. Ledger 7 is bookie 2's, ledger 8 bookie 0's."""

    def __init__(self) -> None:
        self.seven, self.eight = Asker(), Asker()
        self.losses = 0
        self.connection = V2Connection(
            "b0",
            self._lost,
            adders={7: (self.seven, 2), 8: (self.eight, 0)},
            outbox=_outbox(),
            frame_bytes_max=FRAME_BYTES_MAX,
        )

    def feed(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.connection.data_received(chunk)

    def _lost(self, connection: BookieStream) -> None:
        self.losses += 1
        connection.retire("test")


def _outbox() -> Outbox:
    async def make() -> Outbox:
        return Outbox(unsent_bytes_max=1, on_overflow=lambda: None)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(make())


def added(entry_id: int, *, ledger_id: int = 7, code: int = ReturnCode.EOK) -> bytes:
    return encode_add_response(code, ledger_id, entry_id)


def entry(entry_id: int, body: bytes) -> bytes:
    return encode_read_response_header(ReturnCode.EOK, 7, entry_id, len(body)) + body


def test_a_writer_is_told_once_of_all_answers_of_one_read() -> None:
    stream = Stream()
    stream.feed(added(0) + added(2) + added(1))
    assert stream.seven.stored == [(2, [0, 2, 1])]


def test_answers_for_several_ledgers_in_one_read_are_sorted_out() -> None:
    stream = Stream()
    stream.feed(added(0) + added(5, ledger_id=8) + added(1) + added(0, ledger_id=99))
    assert stream.seven.stored == [(2, [0, 1])]
    assert stream.eight.stored == [(0, [5])]


def test_refusals_are_told_after_what_was_stored() -> None:
    stream = Stream()
    stream.feed(added(4, code=ReturnCode.EFENCED) + added(3))
    assert stream.seven.stored == [(2, [3])]
    assert stream.seven.refused == [(2, 4, ReturnCode.EFENCED)]


def test_adds_and_reads_in_one_read_go_to_their_askers() -> None:
    stream, reader = Stream(), Asker()
    stream.connection.expect_read(7, 1, reader, 5)
    stream.feed(added(3) + entry(1, b"the entry") + added(4))
    assert stream.seven.stored == [(2, [3, 4])]
    assert reader.answers == [(5, 1, ReturnCode.EOK, b"the entry")]


def test_a_read_answer_as_long_as_add_answers_is_not_taken_for_some() -> None:
    stream, reader = Stream(), Asker()
    stream.connection.expect_read(7, 0, reader, 1)
    stream.feed(added(9) + entry(0, bytes(28)))
    assert reader.answers == [(1, 0, ReturnCode.EOK, bytes(28))]
    assert stream.seven.stored == [(2, [9])]


def test_equal_reads_are_answered_one_after_the_other() -> None:
    stream, first, second = Stream(), Asker(), Asker()
    stream.connection.expect_read(7, 1, first, 0)
    stream.connection.expect_read(7, 1, second, 0)
    stream.feed(entry(1, b"x"))
    assert (len(first.answers), len(second.answers)) == (1, 0)
    stream.feed(entry(1, b"x"))
    assert (len(first.answers), len(second.answers)) == (1, 1)
    stream.feed(entry(1, b"x"))
    assert stream.losses == 0


@given(st.lists(st.integers(0, 200), max_size=8))
def test_the_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    whole = added(0) + entry(1, b"body of the entry") + added(1) + added(2, ledger_id=8)
    stream, reader = Stream(), Asker()
    stream.connection.expect_read(7, 1, reader, 0)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    stream.feed(*(whole[start:end] for start, end in pairwise(edges)))
    assert [each for _, ids in stream.seven.stored for each in ids] == [0, 1]
    assert stream.eight.stored == [(0, [2])]
    assert reader.answers == [(0, 1, ReturnCode.EOK, b"body of the entry")]


@given(st.binary(max_size=300))
def test_garbage_ends_the_connection_and_raises_nothing(garbage: bytes) -> None:
    stream = Stream()
    stream.feed(garbage)
    assert stream.losses <= 1


def test_an_oversized_frame_ends_the_connection() -> None:
    stream, reader = Stream(), Asker()
    stream.connection.expect_read(7, 1, reader, 3)
    stream.feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert stream.losses == 1
    assert reader.lost == [(3, 1)]


def test_an_answer_to_an_operation_that_was_not_requested_ends_the_connection() -> None:
    stream = Stream()
    stream.feed(encode_response(Operation.AUTH, ReturnCode.EOK, 7, 0))
    assert stream.losses == 1


def test_a_broken_connection_tells_every_reader_and_hears_nothing_more() -> None:
    stream, reader = Stream(), Asker()
    stream.connection.expect_read(7, 1, reader, 0)
    stream.connection.expect_read(7, 1, reader, 1)
    stream.connection.expect_read(7, -1, reader, 2)
    stream.connection.connection_lost(None)
    assert sorted(reader.lost) == [(0, 1), (1, 1), (2, -1)]
    stream.feed(added(0))
    stream.connection.connection_lost(None)
    assert stream.seven.stored == []
    assert stream.losses == 1
