"""Proves that delayed messages come out once and in time, also for the next owner, that what is in
buckets is not read again, and that no ledger of a bucket is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.magnetar_broker.log.stand_ins import (
    LOG,
    MemoryLedgers,
    log_over,
    logs_over,
    pending,
)

from magnetar_broker.delayed.messages import DelayedMessages
from magnetar_broker.delayed.options import DelayedOptions
from magnetar_broker.log.cursor import Cursor
from magnetar_broker.log.logs import Logs
from magnetar_broker.log.managed_ledger import ManagedLedger
from magnetar_broker.log.options import LogOptions
from magnetar_broker.log.positions import LATEST, Position
from magnetar_protocol.pulsar.api_pb2 import MessageMetadata
from magnetar_protocol.pulsar.payload import encode_payload
from magnetar_protocol.records.delayed_buckets import BucketKey, buckets_of
from magnetar_runtime.coordination import Coordination
from magnetar_simulation.clock import WALL_START_MS, SimulatedClock

SMALL = DelayedOptions(bucket_messages_min=3, segment_messages_max=2)
HOUR_MS = 3_600_000
# Of ledger 0: six messages, the later the earlier; then one of ledger 1.
DELAYS_MS = [6000, 5000, 4000, 3000, 2000, 1000]


def payload(delay_ms: int) -> bytes:
    return encode_payload(
        MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=WALL_START_MS,
            deliver_at_time=WALL_START_MS + HOUR_MS + delay_ms,
        ),
        b"x",
    )


@pytest.fixture
def logs(coordination: Coordination, ledgers: MemoryLedgers) -> Logs:
    """The broker's logs."""
    return logs_over(coordination, ledgers, options=LogOptions())


@pytest.fixture
async def log(logs: Logs) -> AsyncIterator[ManagedLedger]:
    """A log of seven delayed messages in two ledgers."""
    async with log_over(logs) as log:
        log.append_all(pending(*map(payload, DELAYS_MS)))
        await asyncio.sleep(0.1)
        await log.roll_over()
        log.append_all(pending(payload(0)))
        await asyncio.sleep(0.1)
        yield log


async def reading(log: ManagedLedger, cursor: Cursor) -> DelayedMessages:
    """The delayed messages of ``cursor``, after everything was read."""
    loop = asyncio.get_running_loop()
    delayed = DelayedMessages(
        log,
        cursor,
        SimulatedClock(loop),  # type: ignore[arg-type]  # this folder's loops are simulated
        topic="persistent://t/n/topic",
        wake=lambda: None,
    )
    delayed.options = SMALL
    await delayed.recover()
    position = delayed.pass_held(log.chain.next_after(cursor.mark_delete))
    while position <= log.chain.last_confirmed:
        entries = await log.read(position, 100)
        passed, plain = delayed.sift(position[0], entries)
        assert not plain
        position = delayed.pass_held(
            log.chain.readable_from(Position(position[0], position[1] + passed))
        )
    await asyncio.sleep(1)
    return delayed


async def drained(delayed: DelayedMessages) -> list[Position]:
    """What comes in the following hours."""
    found: list[Position] = []
    for _ in range(1000):
        await asyncio.sleep(10)
        found += delayed.take_due(LATEST, 10)
    return found


async def created(logs: Logs, log: ManagedLedger) -> Cursor:
    cursor = await logs.create_cursor(LOG, "sub", log.chain, Position(-1, -1), {"team": "x"})
    await cursor.__aenter__()
    return cursor


def expected(ledger_id: int) -> list[Position]:
    return [*(Position(ledger_id, each) for each in range(6)), Position(ledger_id + 1, 0)]


async def test_messages_come_once_and_leave_nothing(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    before = list(ledgers.entries)
    cursor = await created(logs, log)
    delayed = await reading(log, cursor)
    first = log.chain.spans[0].ledger_id
    assert list(buckets_of(cursor.properties)) == [BucketKey(first, first)]
    assert delayed.count == 7
    assert delayed.take_due(LATEST, 10) == [], "nothing is due yet"
    assert sorted(await drained(delayed)) == expected(first)
    assert (delayed.count, delayed.size_bytes) == (0, 0)
    assert cursor.properties == {"team": "x"}
    await cursor.delete()
    await cursor.__aexit__(None, None, None)
    assert list(ledgers.entries) == before


async def test_the_next_owner_does_not_read_again_what_is_in_buckets(
    logs: Logs, log: ManagedLedger
) -> None:
    cursor = await created(logs, log)
    await reading(log, cursor)  # and its broker is killed
    taken_over = await logs.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    delayed = DelayedMessages(
        log,
        taken_over,
        SimulatedClock(asyncio.get_running_loop()),  # type: ignore[arg-type]
        topic="persistent://t/n/topic",
        wake=lambda: None,
    )
    await delayed.recover()
    first, second = (span.ledger_id for span in log.chain.spans)
    assert delayed.count == 6
    assert delayed.pass_held(Position(first, 0)) == (second, 0)
    assert sorted(await drained(delayed)) == expected(first)[:6]
    assert taken_over.properties == {"team": "x"}


async def test_a_lost_bucket_is_read_from_the_topic(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(logs, log)
    delayed = await reading(log, cursor)
    (ledger_id,) = buckets_of(cursor.properties).values()
    del ledgers.entries[ledger_id]
    assert sorted(await drained(delayed)) == expected(log.chain.spans[0].ledger_id)
    assert cursor.properties == {"team": "x"}


async def test_what_is_cleared_takes_its_ledgers_along(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(logs, log)
    delayed = await reading(log, cursor)
    (ledger_id,) = buckets_of(cursor.properties).values()
    delayed.clear()
    await asyncio.sleep(1)
    assert ledger_id not in ledgers.entries
    assert cursor.properties == {"team": "x"}
    assert await drained(delayed) == []


async def test_a_subscription_that_is_deleted_takes_its_ledgers_along(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    before = list(ledgers.entries)
    cursor = await created(logs, log)
    delayed = await reading(log, cursor)
    await delayed.delete()
    await cursor.delete()
    await cursor.__aexit__(None, None, None)
    assert list(ledgers.entries) == before


async def test_a_topic_that_is_closed_writes_down_what_would_be_read_again(
    logs: Logs, log: ManagedLedger
) -> None:
    cursor = await created(logs, log)
    delayed = await reading(log, cursor)
    await delayed.finish()
    await cursor.__aexit__(None, None, None)
    taken_over = await logs.load_cursor(LOG, "sub", log.chain)
    assert len(buckets_of(taken_over.properties)) == 2
