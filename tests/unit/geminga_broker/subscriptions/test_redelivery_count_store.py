"""Proves what of the redelivery counts outlives a closed topic and a killed broker, and that this
costs a write a second at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from unittest.mock import Mock

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    log_over,
    logs_over,
    pending,
)

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.redelivery_count_store import (
    RedeliveryCountStore,
    has_stored_counts,
)
from geminga_broker.subscriptions.subscription import Subscription, SubscriptionOwner
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

CONFIG = ManagedLedgerConfig()
# Long after anything was written that was to be written.
LATER_S = 10.0


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """The cluster's ledgers."""
    return MemoryLedgers()


@pytest.fixture
def factory(coordination: Coordination, ledgers: MemoryLedgers) -> ManagedLedgerFactory:
    """The broker's logs."""
    return logs_over(coordination, ledgers, config=CONFIG)


@pytest.fixture
async def log(factory: ManagedLedgerFactory) -> AsyncIterator[ManagedLedger]:
    """A log of ten entries."""
    async with log_over(factory) as log:
        log.append_all(pending(*[b"x"] * 10))
        await asyncio.sleep(0.1)
        yield log


@pytest.fixture
async def cursor(factory: ManagedLedgerFactory, log: ManagedLedger) -> Cursor:
    """A cursor before the first entry."""
    created = await factory.create_cursor(LOG, "sub", log.chain, Position(-1, -1), {})
    await created.__aenter__()
    return created


async def next_owner(factory: ManagedLedgerFactory, log: ManagedLedger) -> RedeliveryCountStore:
    """The counts as an owner that takes the cursor over now finds them."""
    cursor = await factory.load_cursor(LOG, "sub", log.chain)
    await cursor.__aenter__()
    return RedeliveryCountStore(cursor)


def at(log: ManagedLedger, entry_id: int) -> Position:
    return Position(log.chain.spans[0].ledger_id, entry_id)


def give_back(kept: RedeliveryCountStore, log: ManagedLedger, *entries: int) -> None:
    for entry_id in entries:
        kept.counts.increment(at(log, entry_id))


async def test_a_topic_that_is_closed_keeps_the_counts_of_its_last_moment(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    kept = RedeliveryCountStore(cursor)
    give_back(kept, log, 4, 4, 4, 7)
    kept.finish()
    await cursor.__aexit__(None, None, None)
    counts = (await next_owner(factory, log)).counts
    assert [counts.get(at(log, entry)) for entry in (4, 7, 8)] == [3, 1, 0]


async def test_a_subscription_that_is_closed_keeps_its_counts(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    owner = Mock(spec=SubscriptionOwner)
    subscription = Subscription(owner, "persistent://t/n/topic", -1, log, cursor, SimulatedClock())
    give_back(subscription.redelivery_counts, log, 4, 4)
    await subscription.close()
    assert (await next_owner(factory, log)).counts.get(at(log, 4)) == 2


async def test_a_broker_that_is_killed_loses_what_was_counted_in_its_last_second(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    kept = RedeliveryCountStore(cursor)
    give_back(kept, log, 4, 4)
    await asyncio.sleep(CONFIG.cursor_redelivery_delay_s + CONFIG.cursor_flush_delay_s + 0.01)
    give_back(kept, log, 4, 5)
    counts = (await next_owner(factory, log)).counts
    assert (counts.get(at(log, 4)), counts.get(at(log, 5))) == (2, 0)


async def test_counting_goes_on_where_the_owner_before_has_stopped(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    give_back(RedeliveryCountStore(cursor), log, 4, 4)
    await asyncio.sleep(LATER_S)
    second = await next_owner(factory, log)
    give_back(second, log, 4)
    await asyncio.sleep(LATER_S)
    assert (await next_owner(factory, log)).counts.get(at(log, 4)) == 3


async def test_any_number_of_counts_in_a_second_is_one_write(
    ledgers: MemoryLedgers, log: ManagedLedger, cursor: Cursor
) -> None:
    kept = RedeliveryCountStore(cursor)
    before = sum(map(len, ledgers.entries.values()))
    for _ in range(100):
        give_back(kept, log, *range(10))
        await asyncio.sleep(0.05)  # five seconds in all
    written = sum(map(len, ledgers.entries.values())) - before
    assert 4 <= written <= 5


async def test_counts_that_do_not_change_are_not_written(
    ledgers: MemoryLedgers, log: ManagedLedger, cursor: Cursor
) -> None:
    kept = RedeliveryCountStore(cursor)
    give_back(kept, log, 1)
    await asyncio.sleep(LATER_S)
    before = sum(map(len, ledgers.entries.values()))
    give_back(kept, log, 2)
    kept.counts.forget(at(log, 2))
    await asyncio.sleep(LATER_S)
    assert sum(map(len, ledgers.entries.values())) == before


async def test_acknowledged_entries_leave_nothing_in_the_cursor(
    log: ManagedLedger, cursor: Cursor
) -> None:
    kept = RedeliveryCountStore(cursor)
    give_back(kept, log, 1, 2, 3)
    await asyncio.sleep(LATER_S)
    assert has_stored_counts(cursor)
    cursor.acknowledged.acknowledge(*at(log, 1))
    kept.counts.forget(at(log, 1))
    cursor.acknowledged.acknowledge_upto(at(log, 3))  # and the store is not told
    cursor.changed()
    await asyncio.sleep(LATER_S)
    assert not has_stored_counts(cursor)
    assert not kept.counts


async def test_a_subscription_that_is_moved_counts_anew_from_the_same_write_on(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    kept = RedeliveryCountStore(cursor)
    give_back(kept, log, 4)
    await asyncio.sleep(LATER_S)
    cursor.acknowledged.reset(at(log, 1))
    cursor.changed()
    kept.counts.clear()
    kept.finish()
    await asyncio.sleep(CONFIG.cursor_flush_delay_s + 0.01)
    found = await next_owner(factory, log)
    assert found.counts.get(at(log, 4)) == 0


async def test_other_properties_of_the_position_stay(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    cursor.position_properties = {"pulsar.replicated.subscription": 1}
    kept = RedeliveryCountStore(cursor)
    give_back(kept, log, 4)
    await asyncio.sleep(LATER_S)
    found = await factory.load_cursor(LOG, "sub", log.chain)
    assert found.is_replicated
    kept.counts.clear()
    kept.finish()
    assert cursor.position_properties == {"pulsar.replicated.subscription": 1}


async def test_switched_off_nothing_is_kept_nor_taken_over(
    factory: ManagedLedgerFactory, log: ManagedLedger, cursor: Cursor
) -> None:
    give_back(RedeliveryCountStore(cursor), log, 4)
    await asyncio.sleep(LATER_S)
    taken_over = await factory.load_cursor(LOG, "sub", log.chain)
    await taken_over.__aenter__()
    taken_over.configure(replace(CONFIG, cursor_redelivery_counts=False))
    kept = RedeliveryCountStore(taken_over)
    assert not kept.counts
    give_back(kept, log, 5)
    await asyncio.sleep(LATER_S)
    assert not has_stored_counts(taken_over)
    assert kept.counts.get(at(log, 5)) == 1


async def test_a_subscription_that_is_not_durable_counts_in_memory(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    volatile = factory.volatile_cursor("reader", log.chain, log.chain.before_first)
    kept = RedeliveryCountStore(volatile)
    give_back(kept, log, 4)
    await asyncio.sleep(LATER_S)
    assert kept.counts.get(at(log, 4)) == 1
    assert not has_stored_counts(volatile)
