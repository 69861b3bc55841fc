"""Proves that delayed messages come out once and in time, also for the next owner, that what is in
buckets is not read again, and that no ledger of a bucket is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest
from tests.unit.geminga_broker.delayed.delayed_logs import (
    DELAYS_MS,
    HOUR_MS,
    PLAIN,
    SMALL,
    created,
    delayed_of,
    drained,
    expected,
    payload,
    reading,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    log_over,
    logs_over,
    pending,
)
from tests.unit.geminga_broker.managed_ledger.stepped import Fault, SteppedLedgers, Steps

from geminga_broker.delayed.bucket_store import BucketStore, garbage_of
from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import LATEST, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_protocol.records.topics.delayed_buckets import BucketKey, DelayedIndex, buckets_of
from geminga_runtime.coordination import Coordination
from geminga_simulation.conditions import INSTANT
from geminga_simulation.event_loop.clock import WALL_START_MS, SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.zookeeper.server import SimulatedZooKeeper


@pytest.fixture
def factory(coordination: Coordination, ledgers: MemoryLedgers) -> ManagedLedgerFactory:
    """The broker's logs."""
    return logs_over(coordination, ledgers, config=ManagedLedgerConfig())


@pytest.fixture
async def log(factory: ManagedLedgerFactory) -> AsyncIterator[ManagedLedger]:
    """A log of seven delayed messages in two ledgers."""
    async with log_over(factory) as log:
        log.append_all(pending(*map(payload, DELAYS_MS)))
        await asyncio.sleep(0.1)
        await log.roll_over()
        log.append_all(pending(payload(0)))
        await asyncio.sleep(0.1)
        yield log


async def test_messages_come_once_and_leave_nothing(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    before = list(ledgers.entries)
    cursor = await created(factory, log)
    delayed = await reading(log, cursor)
    first = log.chain.spans[0].ledger_id
    assert list(buckets_of(cursor.properties)) == [BucketKey(first, first)]
    assert delayed.figures().count == 7
    assert delayed.take_due(LATEST, 10) == [], "nothing is due yet"
    assert sorted(await drained(delayed)) == expected(first)
    assert (delayed.figures().count, delayed.figures().size_bytes) == (0, 0)
    assert cursor.properties == {"team": "x"}
    await cursor.delete()
    await cursor.__aexit__(None, None, None)
    assert list(ledgers.entries) == before


async def test_the_next_owner_does_not_read_again_what_is_in_buckets(
    factory: ManagedLedgerFactory, log: ManagedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = await created(factory, log)
    await reading(log, cursor)  # and its broker is killed
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    delayed = delayed_of(log, taken_over)
    await delayed.recover()
    monkeypatch.setattr(LogReader, "read", Mock(side_effect=AssertionError("nothing is read")))
    first, second = (span.ledger_id for span in log.chain.spans)
    assert delayed.figures().count == 6
    assert delayed.pass_held(Position(first, 0)) == (second, 0)
    assert sorted(await drained(delayed)) == expected(first)[:6]
    assert taken_over.properties == {"team": "x"}


async def test_a_bucket_is_written_when_it_has_enough_though_its_ledger_is_not_full(
    factory: ManagedLedgerFactory,
) -> None:
    async with log_over(factory) as log:
        first = log.chain.spans[0].ledger_id
        log.append_all(pending(*map(payload, DELAYS_MS)))
        await asyncio.sleep(0.1)
        cursor = await created(factory, log)
        await reading(log, cursor)
        assert list(buckets_of(cursor.properties)) == [BucketKey(first, first)]
        log.append_all(pending(payload(0)))
        await asyncio.sleep(0.1)
        assert [span.entries for span in log.chain.spans] == [len(DELAYS_MS), 1]
        taken_over = await factory.load_cursor(LOG, "sub", log.chain)
        await taken_over.__aenter__()
        delayed = await reading(log, taken_over)
        assert sorted(await drained(delayed)) == expected(first)


async def test_a_bucket_holds_all_of_its_ledger_that_was_on_its_way(
    factory: ManagedLedgerFactory,
) -> None:
    async with log_over(factory) as log:
        first = log.chain.spans[0].ledger_id
        log.append_all(pending(*map(payload, DELAYS_MS[:4])))
        await asyncio.sleep(0.1)
        cursor = await created(factory, log)
        delayed = delayed_of(log, cursor)
        await delayed.recover()
        delayed.sift(first, await log.reader.read(Position(first, 0), 100))
        log.append_all(pending(*map(payload, DELAYS_MS[4:])))  # while it is about to end
        await asyncio.sleep(0.1)
        assert not buckets_of(cursor.properties), "not all of its ledger was read yet"
        delayed.sift(first, await log.reader.read(Position(first, 4), 100))
        await asyncio.sleep(1)
        assert list(buckets_of(cursor.properties)) == [BucketKey(first, first)]
        assert delayed.figures().loaded == 0, "all are in the bucket"


async def test_what_comes_while_a_bucket_is_written_gets_one_too(
    factory: ManagedLedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BucketStore.write

    async def slowly(*args: Any) -> Any:
        await asyncio.sleep(10)
        return await write(*args)

    monkeypatch.setattr(BucketStore, "write", slowly)
    async with log_over(factory) as log:
        cursor = await created(factory, log)
        delayed = delayed_of(log, cursor)
        await delayed.recover()
        for _ in range(3):
            position = log.chain.last_confirmed
            log.append_all(pending(*map(payload, DELAYS_MS)))
            await asyncio.sleep(0.1)
            first = log.chain.readable_from(log.chain.next_after(position))
            delayed.sift(first[0], await log.reader.read(first, 100))
            await asyncio.sleep(0.1)
        assert not buckets_of(cursor.properties)
        await asyncio.sleep(30)
        assert len(buckets_of(cursor.properties)) == 2, "the second is all that came meanwhile"
        assert delayed.figures().loaded == 0, "all are in buckets"


async def test_a_bucket_is_written_though_its_ledger_ends_with_what_is_not_delayed(
    factory: ManagedLedgerFactory,
) -> None:
    async with log_over(factory) as log:
        first = log.chain.spans[0].ledger_id
        log.append_all(pending(*map(payload, DELAYS_MS), PLAIN))
        await asyncio.sleep(0.1)
        cursor = await created(factory, log)
        delayed = delayed_of(log, cursor)
        await delayed.recover()
        for begin in (0, len(DELAYS_MS)):
            delayed.sift(first, await log.reader.read(Position(first, begin), 100))
        await asyncio.sleep(1)
        assert list(buckets_of(cursor.properties)) == [BucketKey(first, first)]


async def test_a_subscription_that_is_deleted_does_not_wait_for_a_new_ledger(
    factory: ManagedLedgerFactory, ledgers: MemoryLedgers
) -> None:
    async with log_over(factory) as log:
        first = log.chain.spans[0].ledger_id
        log.append_all(pending(*map(payload, DELAYS_MS)))
        await asyncio.sleep(0.1)
        cursor = await created(factory, log)
        delayed = delayed_of(log, cursor)
        await delayed.recover()
        delayed.sift(first, await log.reader.read(Position(first, 0), 100))
        before = list(ledgers.entries)
        await delayed.delete()
        await asyncio.sleep(1)
        assert list(ledgers.entries)[: len(before)] == before
        assert not buckets_of(cursor.properties)


async def test_the_next_owner_holds_nothing_back_that_is_acknowledged(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    cursor = await created(factory, log)
    await reading(log, cursor)
    first = log.chain.spans[0].ledger_id
    cursor.acknowledged.acknowledge_upto(Position(first, 3))
    cursor.changed()
    await asyncio.sleep(1)
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    delayed = delayed_of(log, taken_over)
    await delayed.recover()
    assert sorted(await drained(delayed)) == expected(first)[4:6]


async def test_a_timer_tells_when_something_is_due(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    told: list[int] = []
    clock = SimulatedClock(asyncio.get_running_loop())  # type: ignore[arg-type]

    def wake() -> None:
        delayed.take_due(LATEST, 10)
        told.append(clock.wall_ms() - WALL_START_MS - HOUR_MS)

    delayed = await reading(log, await created(factory, log), wake)
    await asyncio.sleep(2 * HOUR_MS / 1000)
    assert delayed.figures().count == 0
    due_ms = [0, *reversed(DELAYS_MS)]
    told = [each for each in told if each >= 0]
    assert len(told) >= len(due_ms)
    assert all(min(abs(each - time) for each in told) <= SMALL.slot_ms for time in due_ms)


async def test_consumers_are_not_woken_again_and_again_while_a_segment_is_read(
    factory: ManagedLedgerFactory, log: ManagedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bookies may be away, and the broker has others to serve meanwhile."""
    wakes = 0

    def wake() -> None:
        nonlocal wakes
        wakes += 1
        delayed.take_due(LATEST, 10)

    delayed = await reading(log, await created(factory, log), wake)
    honest = BucketStore.segment

    async def late(store: BucketStore, ledger_id: int, number: int) -> list[DelayedIndex]:
        await asyncio.sleep(60)
        return await honest(store, ledger_id, number)

    monkeypatch.setattr(BucketStore, "segment", late)
    await asyncio.sleep(2 * HOUR_MS / 1000)
    assert delayed.figures().count == 0
    assert wakes < 100, "in two hours, seven messages became due, and the clock was looked at"


async def test_what_is_due_but_still_to_be_read_is_not_given_twice(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    delayed = await reading(log, await created(factory, log))
    first = log.chain.spans[0].ledger_id
    await asyncio.sleep(HOUR_MS / 1000 + 10)
    given: list[Position] = []
    while delayed.figures().count:
        given += delayed.take_due(Position(first, 4), 10)
        await asyncio.sleep(1)
    assert sorted(given) == expected(first)[:4]
    assert delayed.pass_held(Position(first, 4)) == (first, 4), "the others are read"


async def test_a_lost_bucket_is_read_from_the_topic(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(factory, log)
    delayed = await reading(log, cursor)
    (ledger_id,) = buckets_of(cursor.properties).values()
    del ledgers.entries[ledger_id]
    assert sorted(await drained(delayed)) == expected(log.chain.spans[0].ledger_id)
    assert cursor.properties == {"team": "x"}


async def live_through_a_failure(step: int, fault: Fault, *, is_taken_over: bool) -> bool:
    """Write a bucket and read it, or read that of the owner before. Of what is asked of ledgers the
    request after ``step`` others fails; False where there were no more than these."""
    steps, ledgers = Steps(), MemoryLedgers()
    factory = logs_over(
        SimulatedZooKeeper(conditions=INSTANT).session("broker"), SteppedLedgers(ledgers, steps)
    )
    async with log_over(factory) as log:
        log.append_all(pending(*map(payload, DELAYS_MS)))
        await asyncio.sleep(0.1)
        await log.roll_over()
        first = log.chain.spans[0].ledger_id
        entries = await log.reader.read(Position(first, 0), 100)
        cursor = await created(factory, log)
        if is_taken_over:
            await reading(log, cursor)
            cursor = await factory.load_cursor(LOG, "sub", log.chain)
            await cursor.__aenter__()
        delayed = delayed_of(log, cursor)
        failing = steps.count + step
        steps.faults = {failing: fault}
        try:
            await delayed.recover()
        except StorageUnavailable:  # as a consumer gets it, which comes again
            await delayed.recover()
        if not is_taken_over:
            assert delayed.sift(first, entries) == (len(DELAYS_MS), [])
        assert sorted(await drained(delayed)) == expected(first)[:6]
        assert cursor.properties == {"team": "x"}
        assert len(ledgers.entries) == 3, "two of the topic, one of the cursor"
    return steps.count > failing


@pytest.mark.parametrize("is_taken_over", [False, True])
@pytest.mark.parametrize("is_done", [False, True])
def test_whatever_fails_once_messages_come_and_nothing_is_left(
    *, is_done: bool, is_taken_over: bool
) -> None:
    """A ledger is not created, opened or deleted, an entry not written or read."""
    step, is_reached = 0, True
    while is_reached:
        life = live_through_a_failure(step, Fault(is_done), is_taken_over=is_taken_over)
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            is_reached = runner.run(life)
        step += 1
    assert step > 11


async def test_a_take_over_that_fails_half_way_holds_nothing_back_for_the_next_attempt(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    """What was due meanwhile is not in the buckets' segments that are read any more."""
    steps = Steps()
    factory = logs_over(coordination, SteppedLedgers(ledgers, steps))
    async with log_over(factory) as log:
        for _ in range(2):
            log.append_all(pending(*map(payload, DELAYS_MS)))
            await asyncio.sleep(0.1)
            await log.roll_over()
        await reading(log, await created(factory, log))  # and its broker is killed
        cursor = await factory.load_cursor(LOG, "sub", log.chain)
        await cursor.__aenter__()
        assert len(buckets_of(cursor.properties)) == 2
        delayed = delayed_of(log, cursor)
        steps.faults = {steps.count + 2: Fault()}  # opening the second bucket's ledger
        await asyncio.sleep((HOUR_MS + 3500) / 1000 - asyncio.get_running_loop().time())
        with pytest.raises(StorageUnavailable):
            await delayed.recover()
        await asyncio.sleep(1)
        await delayed.recover()
        first, second, _ = (span.ledger_id for span in log.chain.spans)
        held = [each for each in expected(first)[:6] if delayed.pass_held(each) != each]
        assert len(held) == 2, "of six the others are due, and read from the topic"
        found = [each for each in await drained(delayed) if each[0] in (first, second)]
        assert sorted(found) == [
            Position(each, entry) for each in (first, second) for entry in (0, 1)
        ]


async def test_what_is_cleared_takes_its_ledgers_along(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(factory, log)
    delayed = await reading(log, cursor)
    (ledger_id,) = buckets_of(cursor.properties).values()
    delayed.clear()
    await asyncio.sleep(1)
    assert ledger_id not in ledgers.entries
    assert cursor.properties == {"team": "x"}
    assert await drained(delayed) == []


async def test_a_subscription_that_is_deleted_takes_its_ledgers_along(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    before = list(ledgers.entries)
    cursor = await created(factory, log)
    delayed = await reading(log, cursor)
    await delayed.delete()
    await cursor.delete()
    await cursor.__aexit__(None, None, None)
    assert list(ledgers.entries) == before


async def test_a_topic_that_is_closed_writes_down_what_would_be_read_again(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    cursor = await created(factory, log)
    delayed = await reading(log, cursor)
    await delayed.finish()
    await cursor.__aexit__(None, None, None)
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    assert len(buckets_of(taken_over.properties)) == 2


async def test_a_bucket_that_is_lost_is_written_again_in_its_place(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(factory, log)
    await reading(log, cursor)
    (lost,) = buckets_of(cursor.properties).values()
    ledgers.entries[lost] = [b"damaged"]
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    delayed = await reading(log, taken_over)
    (ledger_id,) = buckets_of(taken_over.properties).values()
    assert ledger_id in ledgers.entries
    assert lost not in ledgers.entries
    assert sorted(await drained(delayed)) == expected(log.chain.spans[0].ledger_id)
    assert taken_over.properties == {"team": "x"}
    assert ledger_id not in ledgers.entries


async def test_of_a_mixed_topic_every_entry_that_is_not_delayed_is_sent(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    factory = logs_over(coordination, ledgers, config=ManagedLedgerConfig())
    async with log_over(factory) as log:
        log.append_all(pending(*(payload(1000) if number % 3 else PLAIN for number in range(12))))
        await asyncio.sleep(0.1)
        cursor = await created(factory, log)
        delayed = delayed_of(log, cursor)
        await delayed.recover()
        for _ in range(2):  # when nothing is known yet, and when all is
            first, found = log.chain.next_after(cursor.mark_delete), []
            position = delayed.pass_held(first)
            while position <= log.chain.last_confirmed:
                passed, sent = delayed.sift(position[0], await log.reader.read(position, 100))
                found += [entry_id for entry_id, _, _ in sent]
                after = Position(position[0], position[1] + passed + len(sent))
                position = delayed.pass_held(log.chain.readable_from(after))
            assert found == [0, 3, 6, 9]
        assert delayed.figures().count == 8
        assert sorted(each[1] for each in await drained(delayed)) == [1, 2, 4, 5, 7, 8, 10, 11]


async def test_a_lost_bucket_without_messages_left_is_forgotten(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(factory, log)
    await reading(log, cursor)
    (lost,) = buckets_of(cursor.properties).values()
    ledgers.entries[lost] = [b"damaged"]
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    taken_over.acknowledged.acknowledge_upto(log.chain.last_confirmed)
    await delayed_of(log, taken_over).recover()
    await asyncio.sleep(1)
    assert taken_over.properties == {"team": "x"}
    assert lost not in ledgers.entries


async def test_the_next_owner_deletes_the_ledger_that_a_killed_one_was_writing(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    ledgers: MemoryLedgers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NeverConfirmed(ConfirmationWaiter):
        async def wait_for(self, entry_id: int) -> None:
            del entry_id
            await asyncio.Event().wait()

    cursor = await created(factory, log)
    with monkeypatch.context() as patch:
        patch.setattr("geminga_broker.delayed.bucket_store.ConfirmationWaiter", NeverConfirmed)
        await reading(log, cursor)
        before = set(ledgers.entries)
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    (unfinished,) = garbage_of(taken_over.properties)
    assert unfinished in before
    await delayed_of(log, taken_over).recover()
    await asyncio.sleep(1)
    assert unfinished not in ledgers.entries
    assert taken_over.properties == {"team": "x"}


async def test_what_is_missing_in_a_run_does_not_hide_what_is_delayed(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    """A run lacks what was acknowledged: how many are known to be plain says their numbers, and
    nothing about those that were not there."""
    delayed = delayed_of(log, await created(factory, log))
    plain, later = PLAIN, payload(1 << 50)
    run = [(number, plain, 0) for number in (15, 16, 17, 18)]
    assert delayed.sift(2, [*run, (19, later, 0)]) == (0, run)
    holed = [(number, plain, 0) for number in (16, 18)]
    assert delayed.sift(2, [*holed, (19, later, 0), (20, later, 0)]) == (0, holed)
    delayed.clear()
    gap = [(number, plain, 0) for number in (25, 27)]
    assert delayed.sift(2, gap) == (0, gap)
    assert delayed.sift(2, [(26, later, 0), (27, plain, 0)]) == (1, [(27, plain, 0)])
    delayed.clear()
