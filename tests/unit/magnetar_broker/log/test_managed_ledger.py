"""Proves that a log appends in order, rolls over, gives way to another owner, and ends cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.magnetar_broker.log.stand_ins import (
    LOG,
    MemoryLedgers,
    NotedListener,
    log_over,
    logs_over,
    pending,
)

from magnetar_broker.errors import StorageUnavailable, TopicFenced
from magnetar_broker.log.entry_cache import EntryCache
from magnetar_broker.log.options import LogOptions
from magnetar_broker.log.positions import Position
from magnetar_ledger import AppendTimedOut, LedgerFenced
from magnetar_protocol.records.managed_ledger import managed_ledger_path
from magnetar_runtime.coordination import ConnectionLost, Coordination, NodeMissing

Settle = Callable[[], Awaitable[None]]
SMALL = LogOptions(ledger_entries_max=2, retry_first_s=1e-6, retry_limit_s=1e-6)


async def test_entries_are_confirmed_in_order_and_cached(
    coordination: Coordination, settle: Settle
) -> None:
    listener = NotedListener()
    async with log_over(logs_over(coordination, MemoryLedgers()), listener) as log:
        log.append_all(pending(b"a", b"b"))
        log.append_all(pending(b"c"))
        await settle()
        assert [payload for _, payload in listener.appended] == [b"a", b"b", b"c"]
        assert [each[1] for each in log.cached_run(Position(0, 1), 9)] == [b"b", b"c"]


async def test_a_full_ledger_is_followed_by_another(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, options=SMALL), listener) as log:
        for payload in (b"a", b"b", b"c", b"d", b"e"):
            log.append_all(pending(payload))
            await settle()
        assert [payload for _, payload in listener.appended] == [b"a", b"b", b"c", b"d", b"e"]
        assert [span.entries for span in log.chain.spans] == [2, 2, 1]
        assert [writer.is_closed for writer in ledgers.writers] == [True, True, False]


async def test_what_a_failed_writer_had_not_confirmed_goes_to_the_next_ledger(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        ledgers.writers[0].confirm()
        log.append_all(pending(b"b", b"c"))
        ledgers.writers[0].fail(AppendTimedOut(0, 1, 60.0))
        log.append_all(pending(b"d"))
        await settle()
        ledgers.writers[1].confirm()
        assert [payload for _, payload in listener.appended] == [b"a", b"b", b"c", b"d"]
        assert [span.entries for span in log.chain.spans] == [1, 3]


async def test_a_fenced_log_takes_nothing_more(coordination: Coordination) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        ledgers.writers[0].fail(LedgerFenced(0))
        assert listener.is_fenced
        with pytest.raises(TopicFenced):
            log.append_all(pending(b"b"))


async def test_a_log_whose_record_another_broker_changed_is_fenced(
    coordination: Coordination, meddle: Callable[[str, bytes], None], settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, options=SMALL), listener) as log:
        meddle(managed_ledger_path(LOG), b"")
        log.append_all(pending(b"a", b"b"))
        await settle()
        assert listener.is_fenced
        assert log.is_fenced


async def test_closing_waits_for_entries_on_their_way(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    cache = EntryCache()
    log = log_over(logs_over(coordination, ledgers, cache=cache), listener)
    await log.__aenter__()
    log.append_all(pending(b"a"))
    closing = asyncio.ensure_future(log.__aexit__(None, None, None))
    await settle()
    ledgers.writers[0].confirm()
    await closing
    assert [payload for _, payload in listener.appended] == [b"a"]
    assert ledgers.writers[0].is_closed
    assert (cache.used_bytes, cache.entry_count) == (0, 0)


async def test_a_closed_log_is_found_again_as_it_was(
    coordination: Coordination, settle: Settle
) -> None:
    logs = logs_over(coordination, ledgers := MemoryLedgers())
    async with log_over(logs) as log:
        log.append_all(pending(b"a", b"b"))
        await settle()
    async with log_over(logs) as log:
        assert log.chain.last_confirmed == (0, 1)
        assert not ledgers.opened, "a ledger closed in order needs no recovery"
        assert await log.read(Position(0, 0), 5) == [(0, b"a", 0), (1, b"b", 0)]


async def test_a_log_left_open_is_recovered(coordination: Coordination, settle: Settle) -> None:
    logs = logs_over(coordination, MemoryLedgers())
    left = await log_over(logs).__aenter__()
    left.append_all(pending(b"a"))
    await settle()
    async with log_over(logs) as log:
        assert log.chain.last_confirmed == (0, 0)
        log.append_all(pending(b"b"))
        await settle()
        assert log.chain.last_confirmed == (1, 0)


async def test_a_read_without_zookeeper_says_that_storage_is_away(
    coordination: Coordination, settle: Settle
) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers)) as log:
        log.append_all(pending(b"a"))
        await settle()
        ledgers.open_error = ConnectionLost("get /ledgers")
        with pytest.raises(StorageUnavailable):
            await log.read(Position(0, 0), 1)


async def test_deleting_leaves_no_ledger_behind(coordination: Coordination, settle: Settle) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, options=SMALL)) as log:
        log.append_all(pending(b"a", b"b"))
        await settle()
        log.append_all(pending(b"c"))
        await log.delete()
        await settle()
    assert not ledgers.entries
    with pytest.raises(NodeMissing):
        await coordination.get(managed_ledger_path(LOG))


async def test_a_ledger_whose_naming_failed_is_not_left_behind(
    coordination: Coordination,
    suspend: Callable[[str], None],
    reconnect: Callable[[str], None],
    settle: Settle,
) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, options=SMALL)) as log:
        suspend("broker")
        log.append_all(pending(b"a", b"b"))
        await settle()
        log.append_all(pending(b"c"))
        await settle()
        assert len(ledgers.entries) > 2, "every attempt makes a ledger"
        reconnect("broker")
        await settle()
        await settle()
        assert set(ledgers.entries) == {span.ledger_id for span in log.chain.spans}
