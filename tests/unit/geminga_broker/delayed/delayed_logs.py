"""A log of delayed messages, and how the messages of one of its cursors come out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
)

from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import LATEST, Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import WALL_START_MS, SimulatedClock

SMALL = DelayedConfig(bucket_messages_min=3, segment_messages_max=2)
HOUR_MS = 3_600_000
# Of ledger 0: six messages, the later the earlier; then one of ledger 1.
DELAYS_MS = [6000, 5000, 4000, 3000, 2000, 1000]
PLAIN = encode_payload(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x")


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


def delayed_of(
    log: ManagedLedger, cursor: Cursor, wake: Callable[[], None] = lambda: None
) -> DelayedMessages:
    """The delayed messages of ``cursor``, of which nothing is known yet."""
    loop = asyncio.get_running_loop()
    delayed = DelayedMessages(
        log,
        cursor,
        SimulatedClock(loop),  # type: ignore[arg-type]  # this folder's loops are simulated
        topic="persistent://t/n/topic",
        wake=wake,
    )
    delayed.apply(SMALL)
    return delayed


async def reading(
    log: ManagedLedger, cursor: Cursor, wake: Callable[[], None] = lambda: None
) -> DelayedMessages:
    """The delayed messages of ``cursor``, after everything was read."""
    delayed = delayed_of(log, cursor, wake)
    await delayed.recover()
    position = delayed.pass_held(log.chain.next_after(cursor.mark_delete))
    while position <= log.chain.last_confirmed:
        entries = await log.reader.read(position, 100)
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
    for _ in range(200):
        await asyncio.sleep(50)
        found += delayed.take_due(LATEST, 10)
    return found


async def created(factory: ManagedLedgerFactory, log: ManagedLedger) -> Cursor:
    cursor = await factory.create_cursor(LOG, "sub", log.chain, Position(-1, -1), {"team": "x"})
    await cursor.__aenter__()
    return cursor


def expected(ledger_id: int) -> list[Position]:
    return [*(Position(ledger_id, each) for each in range(6)), Position(ledger_id + 1, 0)]
