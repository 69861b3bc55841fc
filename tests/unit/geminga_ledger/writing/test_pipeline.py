"""Entries are confirmed in order by enough bookies, sent again after a break, or given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.unit.geminga_ledger.fake_bookie import Answer, FakeBookie
from tests.unit.geminga_ledger.world import Listener, World, payload_of, settle, until

from geminga_ledger import (
    AppendRefused,
    AppendTimedOut,
    BookiesReadOnly,
    EntryTooLarge,
    LedgerClosed,
    LedgerConfig,
    LedgerFenced,
    LedgerWriter,
    TooMuchPending,
    WrongPassword,
)
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.bookkeeper.digest import decode_entry

CONFIG = LedgerConfig()


class Bench:
    """A writer on its bookies, in the order of its ensemble."""

    def __init__(self, world: World, writer: LedgerWriter, listener: Listener) -> None:
        self.world = world
        self.writer = writer
        self.listener = listener
        metadata = world.metadata(writer.ledger_id)
        self.bookies: list[FakeBookie] = [
            world.bookie(bookie_id) for bookie_id in metadata.fragments[0].ensemble
        ]

    def append(self, count: int) -> None:
        for _ in range(count):
            self.writer.append(payload_of(self.writer.last_pushed + 1))

    def hold(self) -> None:
        """Answers wait until they are released."""
        for bookie in self.bookies:
            bookie.is_holding = True

    async def confirmed(self, last_confirmed: int) -> None:
        await until(lambda: self.writer.last_confirmed == last_confirmed)


@asynccontextmanager
async def writing(
    ensemble_size: int = 1,
    write_quorum: int = 1,
    ack_quorum: int = 1,
    config: LedgerConfig = CONFIG,
) -> AsyncGenerator[Bench, None]:
    """A new writer whose bookies are connected."""
    world, listener = World(ensemble_size), Listener()
    async with world.ledgers(config) as ledgers:
        writer = await ledgers.create(
            listener=listener,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
        )
        await until(lambda: all(link.is_connected for link in writer._links))
        yield Bench(world, writer, listener)


def requests_for(bookie: FakeBookie, operation: Operation) -> list[int]:
    return [request[3] for request in bookie.requests if request[0] == operation]


async def test_entries_are_numbered_from_zero_and_confirmed_in_order() -> None:
    async with writing() as bench:
        assert [bench.writer.append(payload_of(number)) for number in range(3)] == [0, 1, 2]
        assert (bench.writer.last_pushed, bench.writer.last_confirmed) == (2, -1)
        assert (bench.writer.length_bytes, bench.writer.pending_bytes) == (30, 30)
        await bench.confirmed(2)
        assert bench.writer.pending_bytes == 0
        assert bench.listener.confirmations == [2]


async def test_what_is_appended_in_one_turn_leaves_in_one_write() -> None:
    async with writing() as bench:
        bench.append(50)
        await bench.confirmed(49)
        assert bench.bookies[0].count(Operation.ADD) == 50
        # One read at the bookie, one answer, one call of the listener.
        assert bench.listener.confirmations == [49]


async def test_a_run_of_entries_is_appended_like_one_after_the_other() -> None:
    async with writing(3, 2, 2) as bench:
        bench.writer.append_all([payload_of(number) for number in range(600)])
        assert (bench.writer.last_pushed, bench.writer.length_bytes) == (599, 6000)
        await bench.confirmed(599)
        stored = bench.bookies[0].entries[0]
        entry = stored[599]
        assert decode_entry(entry, 0, len(entry), 0) == (599, -1, 6000, payload_of(599))


async def test_a_run_that_is_refused_is_refused_whole() -> None:
    async with writing(config=replace(CONFIG, frame_bytes_max=100)) as bench:
        with pytest.raises(EntryTooLarge):
            bench.writer.append_all([bytes(40), bytes(41)])
        assert (bench.writer.last_pushed, bench.writer.pending_bytes) == (-1, 0)
        assert bench.writer.append(b"next") == 0


async def test_an_entry_carries_what_its_writer_knew() -> None:
    async with writing() as bench:
        bench.append(2)
        await bench.confirmed(1)
        bench.append(1)
        await bench.confirmed(2)
        entry = bench.bookies[0].entries[0][2]
        assert decode_entry(entry, 0, len(entry), 0) == (2, 1, 30, payload_of(2))


async def test_answers_out_of_order_are_confirmed_in_order() -> None:
    async with writing() as bench:
        bench.hold()
        bench.append(4)
        await settle()
        held = bench.bookies[0].held
        bench.bookies[0].held = [held[3], held[1]]
        bench.bookies[0].release()
        await settle()
        assert bench.listener.confirmations == []
        bench.bookies[0].held = [held[0]]
        bench.bookies[0].release()
        await settle()
        assert bench.listener.confirmations == [1]
        bench.bookies[0].held = [held[2]]
        bench.bookies[0].release()
        await settle()
        assert bench.listener.confirmations == [1, 3]
        assert bench.writer.pending_bytes == 0


async def test_an_ack_quorum_of_the_write_quorum_is_enough() -> None:
    async with writing(3, 3, 2) as bench:
        bench.hold()
        bench.append(5)
        await settle()
        bench.bookies[1].release()
        await settle()
        assert bench.writer.last_confirmed == -1
        bench.bookies[2].release(lambda held: list(reversed(held)))
        await settle()
        assert bench.listener.confirmations == [4]
        bench.bookies[0].release()
        await settle()
        assert bench.listener.confirmations == [4]


async def test_entries_are_striped_over_a_larger_ensemble() -> None:
    async with writing(3, 2, 2) as bench:
        bench.append(6)
        await bench.confirmed(5)
        assert [bookie.stored(0) for bookie in bench.bookies] == [
            [0, 2, 3, 5],
            [0, 1, 3, 4],
            [1, 2, 4, 5],
        ]


async def test_a_fenced_writer_stops_at_once() -> None:
    async with writing() as bench:
        bench.append(2)
        await bench.confirmed(1)
        bench.bookies[0].fenced.add(0)
        bench.append(3)
        await until(lambda: bench.listener.failures)
        (failure,) = bench.listener.failures
        assert isinstance(failure, LedgerFenced)
        assert bench.writer.failure is failure
        assert (bench.writer.last_confirmed, bench.writer.length_bytes) == (1, 20)
        assert bench.writer.pending_bytes == 0
        with pytest.raises(LedgerFenced):
            bench.writer.append(b"more")


async def test_one_fenced_bookie_of_three_stops_the_writer() -> None:
    async with writing(3, 3, 2) as bench:
        bench.bookies[2].fenced.add(0)
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert isinstance(bench.listener.failures[0], LedgerFenced)


async def test_another_password_stops_the_writer() -> None:
    async with writing() as bench:
        bench.bookies[0].master_keys[0] = b"another key"
        bench.append(1)
        await until(lambda: bench.listener.failures)
        assert isinstance(bench.listener.failures[0], WrongPassword)


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ReturnCode.EREADONLY, BookiesReadOnly),
        (ReturnCode.EIO, AppendRefused),
        (ReturnCode.EBADREQ, AppendRefused),
    ],
)
async def test_a_refusal_that_leaves_too_few_bookies_fails_the_writer_with_its_reason(
    code: ReturnCode, error_type: type[AppendRefused]
) -> None:
    async with writing() as bench:
        bench.append(1)
        await bench.confirmed(0)
        bench.bookies[0].refusals[Operation.ADD] = code
        bench.append(2)
        await until(lambda: bench.listener.failures)
        (failure,) = bench.listener.failures
        assert type(failure) is error_type
        assert isinstance(failure, AppendRefused)
        assert (failure.entry_id, failure.bookie_id) == (1, "b0")
        assert failure.__cause__ is not None


async def test_a_refusal_of_one_bookie_does_not_matter_where_the_others_are_enough() -> None:
    async with writing(3, 3, 2) as bench:
        bench.bookies[0].refusals[Operation.ADD] = ReturnCode.EREADONLY
        bench.append(3)
        await bench.confirmed(2)
        assert bench.listener.failures == []


async def test_what_a_bookie_refused_before_it_restarted_is_forgotten() -> None:
    async with writing(3, 3, 2) as bench:
        bench.hold()
        first, second, third = bench.bookies
        first.refusals[Operation.ADD] = ReturnCode.EIO
        bench.append(1)
        await until(lambda: first.held)
        first.release()
        await settle()
        first.refusals.clear()
        first.drop_connections()
        await until(lambda: first.held)
        second.held.clear()
        second.is_holding = False
        second.refusals[Operation.ADD] = ReturnCode.EIO
        second.drop_connections()
        await until(lambda: second.count(Operation.ADD) == 2)
        await settle()
        assert bench.listener.failures == []
        first.release()
        third.release()
        await bench.confirmed(0)


async def test_an_overloaded_bookie_is_asked_again_a_little_later() -> None:
    async with writing() as bench:
        bench.bookies[0].refusals[Operation.ADD] = ReturnCode.ETOOMANYREQUESTS
        bench.append(3)
        await settle()
        bench.bookies[0].refusals.clear()
        await bench.confirmed(2)
        assert len(bench.world.network.connects) == 1
        assert requests_for(bench.bookies[0], Operation.ADD) == [0, 1, 2, 0, 1, 2]


async def test_a_broken_connection_is_made_again_and_what_was_not_answered_is_resent() -> None:
    async with writing() as bench:
        bench.hold()
        bench.append(4)
        await settle()
        bench.bookies[0].held = bench.bookies[0].held[:2]
        bench.bookies[0].release()
        await bench.confirmed(1)
        bench.bookies[0].is_holding = False
        bench.bookies[0].drop_connections()
        bench.append(1)
        await bench.confirmed(4)
        assert requests_for(bench.bookies[0], Operation.ADD)[4:] == [2, 3, 4]
        assert bench.listener.failures == []


async def test_a_bookie_killed_and_restarted_fails_no_append() -> None:
    async with writing() as bench:
        bench.append(3)
        bench.bookies[0].kill()
        bench.append(3)
        await asyncio.sleep(30)
        assert bench.listener.confirmations == []
        bench.append(3)
        bench.bookies[0].start()
        await bench.confirmed(8)
        assert bench.bookies[0].stored(0) == list(range(9))
        assert bench.listener.failures == []


async def test_a_bookie_that_restarts_on_another_port_fails_no_append() -> None:
    async with writing() as bench:
        bench.bookies[0].kill()
        bench.append(3)
        await asyncio.sleep(5)
        bench.bookies[0].start(port=5181)
        bench.world.register(0, 5181)
        await bench.confirmed(2)


async def test_a_bookie_that_stays_away_fails_the_writer_at_the_deadline() -> None:
    async with writing() as bench:
        bench.append(1)
        await bench.confirmed(0)
        bench.bookies[0].kill()
        bench.append(2)
        before_s = bench.world.clock.monotonic()
        await until(lambda: bench.listener.failures)
        waited_s = bench.world.clock.monotonic() - before_s
        (failure,) = bench.listener.failures
        assert isinstance(failure, AppendTimedOut)
        assert failure.entry_id == 1
        assert 60 <= waited_s <= 66


async def test_entries_are_confirmed_without_a_bookie_where_the_others_are_enough() -> None:
    async with writing(3, 3, 2) as bench:
        bench.bookies[1].kill()
        bench.append(5)
        await bench.confirmed(4)
        await asyncio.sleep(100)
        bench.append(5)
        await bench.confirmed(9)
        assert bench.listener.failures == []
        # What is sent to no bookie is not kept.
        assert bench.writer._links[1].outbox.chunks == []


async def test_a_bookie_that_comes_back_is_sent_what_is_not_confirmed_yet() -> None:
    async with writing(2, 2, 2) as bench:
        bench.bookies[1].kill()
        bench.append(3)
        await settle()
        assert bench.bookies[0].stored(0) == [0, 1, 2]
        bench.bookies[1].start()
        await bench.confirmed(2)
        assert bench.bookies[1].stored(0) == [0, 1, 2]
        assert requests_for(bench.bookies[0], Operation.ADD) == [0, 1, 2]


async def test_a_bookie_that_hangs_is_reached_by_a_new_connection() -> None:
    async with writing() as bench:
        bench.bookies[0].is_silent = True
        bench.append(2)
        await asyncio.sleep(5)
        bench.bookies[0].is_silent = False
        await bench.confirmed(1)
        assert len(bench.world.network.connects) == 2
        assert bench.listener.failures == []


async def test_progress_keeps_the_deadline_away() -> None:
    async with writing() as bench:
        bench.hold()
        bench.append(10)
        await settle()
        held = list(bench.bookies[0].held)
        for number in range(10):
            await asyncio.sleep(9)
            bench.bookies[0].held = [held[number]]
            bench.bookies[0].release()
        await bench.confirmed(9)
        assert bench.listener.failures == []
        assert len(bench.world.network.connects) == 1


async def test_an_idle_writer_has_no_timer() -> None:
    async with writing() as bench:
        bench.append(1)
        await bench.confirmed(0)
        assert bench.writer._timer is not None
        await asyncio.sleep(CONFIG.answer_timeout_s)
        assert bench.writer._timer is None


async def test_more_pending_than_may_be_is_refused_until_some_is_confirmed() -> None:
    async with writing(config=replace(CONFIG, pending_bytes_max=25)) as bench:
        bench.hold()
        bench.append(2)
        with pytest.raises(TooMuchPending) as caught:
            bench.append(1)
        assert caught.value.retry
        await settle()
        bench.bookies[0].release()
        await bench.confirmed(1)
        bench.append(1)
        assert bench.writer.last_pushed == 2


async def test_an_entry_that_fits_into_no_frame_is_refused_and_harms_nothing() -> None:
    async with writing(config=replace(CONFIG, frame_bytes_max=100)) as bench:
        with pytest.raises(EntryTooLarge) as caught:
            bench.writer.append(bytes(41))
        assert caught.value.payload_bytes_max == 40
        bench.writer.append(bytes(40))
        await bench.confirmed(0)


async def test_answers_for_entries_that_were_never_sent_confirm_nothing() -> None:
    async with writing() as bench:
        bench.hold()
        bench.append(1)
        await settle()
        session, operation, code, _, body = bench.bookies[0].held[0]
        session.ledger_of[operation, 1] = 0
        invented: Answer = (session, operation, code, 1, body)
        bench.bookies[0].held = [invented]
        bench.bookies[0].release()
        await settle()
        assert bench.writer.last_confirmed == -1


async def test_closing_the_client_fails_its_writers() -> None:
    async with writing() as bench:
        bench.bookies[0].kill()
        bench.append(1)
    assert [type(failure) for failure in bench.listener.failures] == [LedgerClosed]
