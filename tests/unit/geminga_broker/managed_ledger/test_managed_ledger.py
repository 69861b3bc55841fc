"""Proves that a log appends in order, rolls over, gives way to another owner, and ends cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    MemoryReader,
    MemoryWriter,
    NotedListener,
    log_over,
    logs_over,
    pending,
)

from geminga_broker.errors import (
    NotAllowed,
    StorageUnavailable,
    TopicExists,
    TopicFenced,
)
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.log_listener import LogState
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.log_store import LogStore
from geminga_broker.managed_ledger.services import ManagedLedgerServices
from geminga_ledger import (
    AppendTimedOut,
    EntryTooLarge,
    LedgerError,
    LedgerFenced,
    LedgerListener,
    Ledgers,
    NotEnoughBookies,
    TooMuchPending,
)
from geminga_protocol.records.topics.managed_ledger import managed_ledger_path
from geminga_runtime.coordination import ConnectionLost, Coordination, NodeMissing, VersionMismatch
from geminga_simulation.event_loop.clock import SimulatedClock

Settle = Callable[[], Awaitable[None]]


class ReluctantWriter(MemoryWriter):
    """Refuses entries, if it has a reason."""

    reason: LedgerError | None = None

    def append_all(self, payloads: Sequence[bytes]) -> None:
        if self.reason is not None:
            raise self.reason
        super().append_all(payloads)


class ReluctantLedgers(MemoryLedgers):
    """The next writers refuse their first entries for ``reasons``."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[LedgerError] = []

    def new_writer(self, ledger_id: int, listener: LedgerListener) -> MemoryWriter:
        writer = ReluctantWriter(self, ledger_id, listener)
        writer.reason = self.reasons.pop(0) if self.reasons else None
        return writer


SMALL = ManagedLedgerConfig(
    ledger_entries_max=2, ledger_age_min_s=0, retry_first_s=0.1, retry_limit_s=0.1
)


async def test_entries_are_confirmed_in_order_and_cached(
    coordination: Coordination, settle: Settle
) -> None:
    listener = NotedListener()
    async with log_over(logs_over(coordination, MemoryLedgers()), listener) as log:
        log.append_all(pending(b"a", b"b"))
        log.append_all(pending(b"c"))
        await settle()
        assert [payload for _, payload in listener.appended] == [b"a", b"b", b"c"]
        assert [each[1] for each in log.reader.cached.run(Position(0, 1), 9)] == [b"b", b"c"]


async def test_a_full_ledger_is_followed_by_another(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, config=SMALL), listener) as log:
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
        assert [payload for payload, *_ in log.pending()] == [b"b", b"c", b"d"]
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


async def test_a_closed_log_takes_nothing_that_it_could_never_confirm(
    coordination: Coordination,
) -> None:
    async with log_over(logs_over(coordination, MemoryLedgers())) as log:
        pass
    with pytest.raises(TopicFenced):
        log.append_all(pending(b"late"))
    assert log.pending_count == 0


async def test_a_log_whose_record_another_broker_changed_is_fenced(
    coordination: Coordination, meddle: Callable[[str, bytes], None], settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, config=SMALL), listener) as log:
        meddle(managed_ledger_path(LOG), b"")
        log.append_all(pending(b"a", b"b"))
        await settle()
        assert listener.is_fenced
        assert log.is_fenced


async def test_closing_waits_for_entries_on_their_way(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    cache = EntryCache(CacheConfig())
    log = log_over(logs_over(coordination, ledgers, cache=cache), listener)
    await log.__aenter__()
    log.append_all(pending(b"a"))
    closing = asyncio.ensure_future(log.__aexit__(None, None, None))
    await settle()
    ledgers.writers[0].confirm()
    await closing
    assert [payload for _, payload in listener.appended] == [b"a"]
    assert ledgers.writers[0].is_closed
    assert (cache.used_bytes, cache.inserted - cache.evicted) == (0, 0)


async def test_a_closed_log_is_found_again_as_it_was(
    coordination: Coordination, settle: Settle
) -> None:
    factory = logs_over(coordination, ledgers := MemoryLedgers())
    async with log_over(factory) as log:
        log.append_all(pending(b"a", b"b"))
        await settle()
    async with log_over(factory) as log:
        assert log.chain.last_confirmed == (0, 1)
        assert not ledgers.opened, "a ledger closed in order needs no recovery"
        assert await log.reader.fetch(0, range(5)) == [(0, b"a", 0), (1, b"b", 0)]


async def test_a_log_left_open_is_recovered(coordination: Coordination, settle: Settle) -> None:
    factory = logs_over(coordination, MemoryLedgers())
    left = await log_over(factory).__aenter__()
    left.append_all(pending(b"a"))
    await settle()
    async with log_over(factory) as log:
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
            await log.reader.fetch(0, [0])


async def test_deleting_leaves_no_ledger_behind(coordination: Coordination, settle: Settle) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, config=SMALL)) as log:
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
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers, config=SMALL)) as log:
        await suspend("broker")
        log.append_all(pending(b"a", b"b"))
        await asyncio.sleep(1)  # longer than the back-off
        log.append_all(pending(b"c"))
        await asyncio.sleep(1)
        assert len(ledgers.entries) > 2, "every attempt makes a ledger"
        await reconnect("broker")
        await asyncio.sleep(1)
        assert set(ledgers.entries) == {span.ledger_id for span in log.chain.spans}


async def test_a_new_ledger_that_takes_nothing_is_followed_by_one_that_does(
    coordination: Coordination,
) -> None:
    listener, ledgers = NotedListener(), ReluctantLedgers()
    async with log_over(logs_over(coordination, ledgers, config=SMALL), listener) as log:
        ledgers.reasons = [NotEnoughBookies(1, 0), TooMuchPending(2, 9, 8)]
        log.append_all(pending(b"a", b"b"))
        log.append_all(pending(b"c"))
        await asyncio.sleep(1)  # longer than the back-off
        log.append_all(pending(b"d"))
        await asyncio.sleep(1)
        assert [payload for _, payload in listener.appended] == [b"a", b"b", b"c", b"d"]
        closed = [writer.is_closed for writer in ledgers.writers]
        assert closed == [True] * (len(closed) - 1) + [closed[-1]]
        named = {span.ledger_id for span in log.chain.spans}
        assert set(ledgers.entries) == named, "what took nothing is deleted"


async def test_what_waited_for_a_ledger_that_takes_nothing_keeps_its_place(
    coordination: Coordination,
) -> None:
    listener, ledgers = NotedListener(), ReluctantLedgers()
    factory = logs_over(coordination, ledgers)
    async with log_over(factory) as log:
        pass
    async with log_over(factory, listener) as log:
        ledgers.reasons = [NotEnoughBookies(1, 0)]
        for payload in (b"a", b"b", b"c"):
            log.append_all(pending(payload))
            await asyncio.sleep(0)
        assert log.pending_count == 3
        await asyncio.sleep(1)  # longer than the back-off
        assert [payload for _, payload in listener.appended] == [b"a", b"b", b"c"]
        assert log.pending_count == 0


async def test_a_new_ledger_fenced_at_once_fences_the_log(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), ReluctantLedgers()
    async with log_over(logs_over(coordination, ledgers)):
        pass
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        ledgers.reasons = [LedgerFenced(1)]
        log.append_all(pending(b"a"))
        await settle()
        assert listener.is_fenced
        assert log.state is LogState.FENCED


async def test_an_entry_that_no_bookie_takes_is_refused_and_the_ledger_kept(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), ReluctantLedgers()
    ledgers.reasons = [EntryTooLarge(11, 10)]
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        with pytest.raises(NotAllowed, match="11"):
            log.append_all(pending(b"a"))
        assert log.state is LogState.LEDGER_OPENED
        assert len(ledgers.writers) == 1
        assert log.pending_count == 0
    config = ManagedLedgerConfig(entry_bytes_max=3)
    async with log_over(logs_over(coordination, ledgers, config=config), listener) as log:
        with pytest.raises(NotAllowed, match="limit of 3"):
            log.append_all(pending(b"long"))
        log.append_all(pending(b"abc"))
        await settle()
        assert [payload for _, payload in listener.appended] == [b"abc"]


async def test_an_empty_ledger_left_open_is_deleted_by_the_next_owner(
    coordination: Coordination, settle: Settle
) -> None:
    factory = logs_over(coordination, ledgers := MemoryLedgers(), config=SMALL)
    left = await log_over(factory).__aenter__()
    left.append_all(pending(b"a", b"b"))
    await settle()
    async with log_over(factory) as log:
        await settle()
        assert [span.entries for span in log.chain.spans] == [2]
        assert sorted(ledgers.entries) == [0]


async def test_a_log_opens_though_its_last_ledger_was_deleted(
    coordination: Coordination, settle: Settle, caplog: pytest.LogCaptureFixture
) -> None:
    factory = logs_over(coordination, ledgers := MemoryLedgers(), config=SMALL)
    left = await log_over(factory).__aenter__()
    left.append_all(pending(b"a", b"b"))
    await settle()
    del ledgers.entries[1]
    async with log_over(factory) as log:
        log.append_all(pending(b"c"))
        await settle()
        assert [span.entries for span in log.chain.spans] == [2, 1]
    assert "the last ledger of a log is gone" in caplog.text


async def test_a_log_whose_ledgers_change_while_it_is_loaded_is_not_served(
    coordination: Coordination,
    settle: Settle,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last owner turned to another ledger, and deleted the one that was found in the record;
    an owner that loads the log again finds all of it."""
    factory = logs_over(coordination, ledgers := MemoryLedgers(), config=SMALL)
    left = await log_over(factory).__aenter__()
    left.append_all(pending(b"a"))
    await settle()
    honest = ledgers.open

    async def change_first(ledger_id: int, *, recover: bool) -> MemoryReader:
        await left.roll_over()
        await ledgers.delete(0)
        return await honest(ledger_id, recover=recover)

    with monkeypatch.context() as patch:
        patch.setattr(ledgers, "open", change_first)
        with pytest.raises(VersionMismatch):
            await log_over(factory).__aenter__()
    assert "is gone" not in caplog.text
    async with log_over(factory) as log:
        assert [(each.ledger_id, each.entries) for each in log.chain.spans] == [(0, 1)]


async def test_closing_ends_a_ledger_that_was_being_replaced_too(
    coordination: Coordination, settle: Settle
) -> None:
    factory = logs_over(coordination, ledgers := MemoryLedgers(is_prompt=False))
    log = await log_over(factory).__aenter__()
    log.append_all(pending(b"a"))
    rolling = asyncio.ensure_future(log.roll_over())
    await settle()
    assert log.state is LogState.CLOSING_LEDGER
    closing = asyncio.ensure_future(log.__aexit__(None, None, None))
    await settle()
    ledgers.writers[0].confirm()
    await asyncio.wait((closing, rolling))
    assert ledgers.writers[0].is_closed
    async with log_over(factory) as log:
        assert not ledgers.opened, "a ledger closed in order needs no recovery"
        assert log.chain.last_confirmed == (0, 0)


async def test_rolling_over_makes_a_ledger_unless_the_last_is_empty(
    coordination: Coordination,
) -> None:
    factory = logs_over(coordination, ledgers := MemoryLedgers())
    async with log_over(factory) as log:
        await log.roll_over()
        assert len(ledgers.writers) == 1
        log.append_all(pending(b"a"))
        await log.roll_over()
        assert [span.entries for span in log.chain.spans] == [1, 0]
    async with log_over(factory) as log:
        await log.roll_over()
        assert log.state is LogState.LEDGER_OPENED


async def test_a_reader_of_the_open_ledger_follows_it_without_opening_it_again(
    coordination: Coordination, settle: Settle
) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers)) as log:
        for number, payload in enumerate((b"a", b"b", b"c")):
            log.append_all(pending(payload))
            await settle()
            assert await log.reader.fetch(0, range(number, 9)) == [(number, payload, 0)]
        assert ledgers.opened == [0]


class LateStore(LogStore):
    """Finds no record; ``error`` is what making one meets with."""

    error: Exception | None = None

    async def load(self) -> list[LedgerSpan]:
        raise NodeMissing(managed_ledger_path(LOG))

    async def create(self, spans: Iterable[LedgerSpan], properties: Mapping[str, str]) -> None:
        if self.error is not None:
            raise self.error
        await super().create(spans, properties)


def log_in(store: LogStore, ledgers: MemoryLedgers) -> ManagedLedger:
    """A log whose record is in ``store``, to be entered."""
    services = ManagedLedgerServices(
        ledgers=cast(Ledgers, ledgers),
        cache=EntryCache(CacheConfig()),
        read_ahead_budget=ReadAheadBudget(0),
        clock=SimulatedClock(),
        random=Random(1),
        config=ManagedLedgerConfig(),
    )
    listener = NotedListener()
    return ManagedLedger(LOG, services, store=store, listener=listener, opened={}, create_with={})


async def test_a_log_that_was_made_meanwhile_leaves_no_ledger_of_ours(
    coordination: Coordination,
) -> None:
    ledgers = MemoryLedgers()
    async with log_over(logs_over(coordination, ledgers)):
        with pytest.raises(TopicExists):
            await log_in(LateStore(coordination, LOG), ledgers).__aenter__()
        assert sorted(ledgers.entries) == [0]


async def test_the_writer_of_a_log_that_could_not_be_created_is_detached(
    coordination: Coordination,
) -> None:
    """Whether the record names it is in doubt: it stays, and no writer looks after it."""
    ledgers, store = MemoryLedgers(), LateStore(coordination, LOG)
    store.error = ConnectionLost("create")
    with pytest.raises(ConnectionLost):
        await log_in(store, ledgers).__aenter__()
    assert ledgers.writers[0].is_detached
    assert sorted(ledgers.entries) == [0]


async def test_a_fenced_log_reports_no_entry_that_is_stored_afterwards(
    coordination: Coordination,
) -> None:
    """The trimmer finds the record changed while entries are on their way to bookies."""
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        log.fence()
    ledgers.writers[0].confirm()
    assert not listener.appended


async def test_a_log_fenced_while_a_ledger_is_closed_does_no_more(
    coordination: Coordination, settle: Settle, caplog: pytest.LogCaptureFixture
) -> None:
    ledgers = MemoryLedgers(is_prompt=False)
    async with log_over(logs_over(coordination, ledgers)) as log:
        log.append_all(pending(b"a"))
        rolling = asyncio.ensure_future(log.roll_over())
        await settle()
        log.fence()
        ledgers.writers[0].confirm()
        with pytest.raises(TopicFenced):
            await rolling
        await settle()
    assert len(ledgers.writers) == 1
    assert "task failed" not in caplog.text


async def test_a_closed_log_says_at_once_that_it_turns_to_no_other_ledger(
    coordination: Coordination,
) -> None:
    async with log_over(logs_over(coordination, MemoryLedgers())) as log:
        pass
    async with asyncio.timeout(1):
        with pytest.raises(TopicFenced):
            await log.roll_over()
