"""Proves how far a subscription reads, and how what is not cached is read: once, again after a
failure, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.damaged_entry import (
    ATTEMPTS_PER_LOG_LINE,
    RETRY_FIRST_S,
    RETRY_LIMIT_S,
)
from geminga_broker.subscriptions.dispatch.cursor_reader import READ_RETRY_S
from geminga_broker.subscriptions.dispatch.single_dispatcher import SingleDispatcher


class Watched(SingleDispatcher):
    """A dispatcher that tells what it holds."""

    @property
    def held(self) -> int:
        """How many fetched entries are in memory."""
        ahead = self.reader.read_ahead
        return sum(len(entries) for _, entries in ahead._runs) + len(ahead._single)


def dispatcher_over(log: MemoryLog) -> tuple[Watched, Consumer, NotedSession]:
    session = NotedSession()
    dispatcher = Watched(
        log,  # type: ignore[arg-type]  # a stand-in with what dispatchers use
        cursor_over(log.chain),
        [],
        topic="persistent://t/n/topic",
        partition=0,
        is_exclusive=True,
    )
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    return dispatcher, consumer, session


@pytest.fixture
def log() -> MemoryLog:
    """A log of which nothing is cached."""
    log = MemoryLog((1, 10))
    log.is_cold = True
    return log


async def test_fetched_entries_serve_until_all_are_delivered_and_are_then_let_go(
    log: MemoryLog,
) -> None:
    dispatcher, consumer, session = dispatcher_over(log)
    for permits in (4, 6):
        consumer.permits = permits
        dispatcher.dispatch()
        await log.settled()
    assert len(session.positions()) == 10
    consumer.permits = 1
    dispatcher.dispatch()
    assert log.reads == 1
    assert dispatcher.held == 0


async def test_fetched_entries_are_kept_however_slowly_they_are_taken(log: MemoryLog) -> None:
    dispatcher, consumer, session = dispatcher_over(log)
    for _ in range(10):
        consumer.permits = 1
        dispatcher.dispatch()
        await asyncio.sleep(3600)
    assert len(session.positions()) == 10
    assert log.entries_read == 10


async def test_who_lost_fetched_entries_to_others_reads_what_its_consumer_can_take(
    log: MemoryLog,
) -> None:
    log.read_ahead_budget = ReadAheadBudget(1)
    dispatchers = [dispatcher_over(log) for _ in range(3)]
    for _ in range(5):
        for dispatcher, consumer, _ in dispatchers:
            consumer.permits = 2
            dispatcher.dispatch()
            await log.settled()
    for _, _, session in dispatchers:
        assert session.positions() == [(1, entry) for entry in range(10)]
    # Each read 10 before it knew that it could not keep them.
    assert log.entries_read <= len(dispatchers) * (10 + 8)


async def test_a_dispatcher_that_is_done_with_takes_no_memory(log: MemoryLog) -> None:
    dispatcher, consumer, _ = dispatcher_over(log)
    consumer.permits = 4
    dispatcher.dispatch()
    dispatcher.remove(consumer)
    dispatcher.reader.drop_read_ahead()
    await log.settled()
    assert dispatcher.reader.entries_fetched == 10
    assert log.read_ahead_budget.used_bytes == 0


async def test_acknowledged_entries_are_not_read(log: MemoryLog) -> None:
    log = MemoryLog((1, 500), (2, 500), (3, 10))
    log.is_cold = True
    dispatcher, consumer, session = dispatcher_over(log)
    acknowledged = dispatcher.cursor.acknowledged
    for ledger_id, entry_id in [(1, each) for each in range(1, 499, 2)] + [
        (2, each) for each in range(500)
    ]:
        acknowledged.acknowledge(ledger_id, entry_id)
    acknowledged.acknowledge(3, 4)
    consumer.permits = 1000
    dispatcher.dispatch()
    await log.settled()
    expected = [(1, each) for each in range(0, 500, 2)] + [(1, 499)]
    expected += [(3, each) for each in range(10) if each != 4]
    assert session.positions() == expected
    assert log.entries_read == len(expected)
    assert log.reads == 2


async def test_what_was_being_read_before_a_seek_hides_nothing_after_it(log: MemoryLog) -> None:
    dispatcher, consumer, session = dispatcher_over(log)
    dispatcher.cursor.acknowledged.acknowledge(1, 5)
    consumer.permits = 10
    dispatcher.dispatch()
    dispatcher.cursor.acknowledged.reset(Position(1, -1))
    dispatcher.rewind()
    await log.settled()
    assert session.positions() == [(1, entry) for entry in range(10)]


async def test_a_read_that_fails_is_tried_again() -> None:
    class Failing(MemoryLog):
        is_broken = True

        async def fetch(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
            if self.is_broken:
                self.reads += 1
                raise StorageUnavailable("no bookie")
            return await super().fetch(ledger_id, entry_ids)

    failing = Failing((1, 10))
    failing.is_cold = True
    dispatcher, consumer, session = dispatcher_over(failing)
    consumer.permits = 10
    dispatcher.dispatch()
    await asyncio.sleep(3.5 * READ_RETRY_S)
    assert failing.reads == 4
    failing.is_broken = False
    await asyncio.sleep(READ_RETRY_S)
    assert len(session.positions()) == 10


class Damaged(MemoryLog):
    """A log with an entry of which every copy is damaged, until one is repaired."""

    def __init__(self, *ledgers: tuple[int, int], at: Position) -> None:
        super().__init__(*ledgers)
        self.is_cold = True
        self.damaged: Position | None = at
        self.attempts = 0

    async def fetch(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
        if (ledger_id, entry_ids[0]) == self.damaged:
            self.attempts += 1
            raise EntryDamaged("every copy is damaged")
        return await super().fetch(ledger_id, entry_ids)


async def test_a_damaged_entry_is_tried_ever_more_rarely_and_told_of_with_the_way_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged = Damaged((7, 10), at=Position(7, 0))
    dispatcher, consumer, session = dispatcher_over(damaged)
    consumer.permits = 10
    dispatcher.dispatch()
    await asyncio.sleep(1.5 * RETRY_FIRST_S)
    assert damaged.attempts == 2
    (told,) = caplog.records
    assert told.levelname == "ERROR"
    assert told.__dict__["position"] == "7:0"
    assert "verify-ledger 7`" in told.__dict__["way_out"]
    await asyncio.sleep(60 * RETRY_LIMIT_S)
    for _ in range(5):
        dispatcher.dispatch()  # entries come and permits: no reason to try again
    assert 60 <= damaged.attempts <= 66
    assert len(caplog.records) == 1 + damaged.attempts // ATTEMPTS_PER_LOG_LINE
    damaged.damaged = None
    await asyncio.sleep(RETRY_LIMIT_S)
    assert len(session.positions()) == 10


async def test_a_seek_beyond_a_damaged_entry_goes_on_at_once() -> None:
    damaged = Damaged((1, 10), at=Position(1, 0))
    dispatcher, consumer, session = dispatcher_over(damaged)
    consumer.permits = 10
    dispatcher.dispatch()
    await asyncio.sleep(3 * RETRY_LIMIT_S)
    attempts = damaged.attempts
    dispatcher.cursor.acknowledged.acknowledge_upto(Position(1, 0))
    dispatcher.rewind()
    dispatcher.dispatch()
    await asyncio.sleep(0.1)
    assert [entry for _, entry in session.positions()] == list(range(1, 10))
    assert damaged.attempts == attempts


async def test_a_rewound_dispatcher_delivers_nothing_it_had_fetched(log: MemoryLog) -> None:
    dispatcher, consumer, session = dispatcher_over(log)
    consumer.permits = 4
    dispatcher.dispatch()
    await log.settled()
    dispatcher.rewind()
    assert dispatcher.held == 0
    consumer.permits = 1
    dispatcher.dispatch()
    await log.settled()
    assert session.positions()[-1] == (1, 0)
    assert log.reads == 2


class Limited(MemoryLog):
    """A log of which not all that is stored may be read yet."""

    may_be_read = 4

    def readable_end(self, ledger_id: int) -> int:
        return min(self.may_be_read, super().readable_end(ledger_id))


@pytest.mark.parametrize("is_cold", [False, True])
async def test_what_may_not_be_read_yet_is_sent_once_it_may(*, is_cold: bool) -> None:
    log = Limited((1, 10))
    log.is_cold = is_cold
    dispatcher, consumer, session = dispatcher_over(log)
    consumer.permits = 100
    for may_be_read in (4, 7, 10):
        log.may_be_read = may_be_read
        dispatcher.dispatch()
        await log.settled()
        assert session.positions() == [(1, entry) for entry in range(may_be_read)]


async def test_a_reader_whose_owner_is_gone_keeps_nothing(log: MemoryLog) -> None:
    dispatcher, consumer, _ = dispatcher_over(log)
    consumer.permits = 4
    dispatcher.dispatch()
    reader = dispatcher.reader
    dispatcher.remove(consumer)
    dispatcher.reader.drop_read_ahead()
    del dispatcher
    await log.settled()
    assert (reader.is_reading, log.read_ahead_budget.used_bytes) == (False, 0)
