"""Proves that a log and its cursors show what they are, in upstream's terms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    log_over,
    logs_over,
    pending,
)

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.internal_stats import (
    RANGES_SHOWN_MAX,
    LedgerStats,
    cursor_stats,
    log_stats,
)
from geminga_broker.managed_ledger.log_listener import LogState
from geminga_broker.managed_ledger.positions import Position
from geminga_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]
CONFIG = ManagedLedgerConfig(ledger_entries_max=3, ledger_age_min_s=0)


@pytest.fixture
def factory(coordination: Coordination) -> ManagedLedgerFactory:
    """Logs with three entries a ledger; confirmed at once."""
    return logs_over(coordination, MemoryLedgers(), config=CONFIG)


async def test_a_new_log_shows_its_open_ledger(factory: ManagedLedgerFactory) -> None:
    async with log_over(factory) as log:
        stats = log_stats(log)
        assert stats.ledgers == (LedgerStats(0, 0, 0, is_offloaded=False),)
        assert (stats.entries, stats.size_bytes, stats.entries_added) == (0, 0, 0)
        assert stats.state is LogState.LEDGER_OPENED
        assert stats.last_ledger_created_ms > 0
        assert stats.last_ledger_failed_ms == 0
    assert log_stats(log).state is LogState.CLOSED


async def test_ledgers_show_their_size_once_they_are_closed(
    factory: ManagedLedgerFactory, settle: Settle
) -> None:
    async with log_over(factory) as log:
        log.append_all(pending(b"a", b"bb", b"ccc"))
        await settle()
        log.append_all(pending(b"dddd"))
        assert log_stats(log).pending_entries == 1
        await settle()
        stats = log_stats(log)
        assert stats.ledgers == (
            LedgerStats(0, 3, 6, is_offloaded=False),
            LedgerStats(1, 0, 0, is_offloaded=False),
        )
        assert (stats.entries, stats.size_bytes, stats.entries_added) == (4, 10, 4)
        assert (stats.current_ledger_entries, stats.current_ledger_bytes) == (1, 4)
        assert stats.last_confirmed == Position(1, 0)
        assert stats.pending_entries == 0


async def test_what_was_added_is_counted_from_when_the_log_was_loaded(
    factory: ManagedLedgerFactory, settle: Settle
) -> None:
    async with log_over(factory) as log:
        log.append_all(pending(b"a"))
        await settle()
    async with log_over(factory) as log:
        stats = log_stats(log)
        assert (stats.entries, stats.entries_added) == (1, 0)
        assert stats.state is LogState.LEDGER_OPENED
        assert (stats.current_ledger_entries, stats.current_ledger_bytes) == (0, 0)


async def test_a_durable_cursor_shows_its_holes_and_its_ledger(
    factory: ManagedLedgerFactory, settle: Settle
) -> None:
    async with log_over(factory) as log:
        log.append_all(pending(*(b"%d" % number for number in range(9))))
        await settle()
        at = log.chain.before_first
        async with await factory.create_cursor(LOG, "sub", log.chain, at, {}) as cursor:
            fresh = cursor_stats(log, cursor, Position(0, 0))
            assert (fresh.state, fresh.cursor_ledger_id) == ("NoLedger", -1)
            assert (fresh.acknowledged_ranges, fresh.messages_consumed) == ("[]", 0)
            assert fresh.entries_since_first_unacknowledged == 1
            for entry_id in (0, 2, 3, 5):
                cursor.acknowledged.acknowledge(0, entry_id)
            cursor.changed(lambda _: None)
            await settle()
            stats = cursor_stats(log, cursor, Position(0, 7))
            assert stats.mark_delete == Position(0, 0)
            assert stats.acknowledged_ranges == "[(0:1..0:3],(0:4..0:5]]"
            assert stats.acknowledged_range_count == 2
            assert stats.messages_consumed == 4
            assert stats.entries_since_first_unacknowledged == 7
            assert (stats.state, stats.cursor_ledger_last_entry) == ("Open", 0)
            assert stats.cursor_ledger_id not in (-1, 0)


async def test_a_cursor_that_has_caught_up_waits_for_one(
    factory: ManagedLedgerFactory, settle: Settle
) -> None:
    async with log_over(factory) as log:
        log.append_all(pending(b"a", b"b"))
        await settle()
        cursor = factory.volatile_cursor("reader", log.chain, Position(0, 1))
        stats = cursor_stats(log, cursor, Position(0, 2))
        assert stats.entries_since_first_unacknowledged == 1
        assert stats.state == "Open"
        behind = cursor_stats(log, cursor, Position(0, 1))
        assert behind.entries_since_first_unacknowledged == 0


async def test_of_very_many_holes_the_first_are_shown(
    factory: ManagedLedgerFactory, settle: Settle
) -> None:
    async with log_over(factory) as log:
        log.append_all(pending(*(b"." for _ in range(2 * RANGES_SHOWN_MAX + 10))))
        await settle()
        cursor = factory.volatile_cursor("reader", log.chain, log.chain.before_first)
        for entry_id in range(1, 2 * RANGES_SHOWN_MAX + 10, 2):
            cursor.acknowledged.acknowledge(0, entry_id)
        stats = cursor_stats(log, cursor, Position(0, 0))
        assert stats.acknowledged_ranges.count("..") == RANGES_SHOWN_MAX
        assert stats.acknowledged_range_count == RANGES_SHOWN_MAX + 5
