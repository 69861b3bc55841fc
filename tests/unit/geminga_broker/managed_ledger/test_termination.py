"""Proves that a terminated log takes nothing more, for ever, and loses nothing of what it took."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    NotedListener,
    log_over,
    logs_over,
    pending,
)

from geminga_broker.errors import StorageUnavailable, TopicFenced, TopicTerminated
from geminga_broker.managed_ledger.log_listener import LogState
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_ledger import AppendTimedOut
from geminga_protocol.records.topics.managed_ledger import managed_ledger_path
from geminga_runtime.coordination import ConnectionLost, Coordination

Settle = Callable[[], Awaitable[None]]


async def test_a_terminated_log_takes_nothing_more_after_a_restart_too(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    listener = NotedListener()
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a", b"b"))
        end = await log.termination.terminate()
        assert end == log.chain.last_confirmed == listener.appended[-1][0]
        assert await log.termination.terminate() == end
    async with log_over(logs_over(coordination, ledgers)) as log:
        assert (log.termination.at, log.state) == (end, LogState.TERMINATED)
        with pytest.raises(TopicTerminated):
            log.append_all(pending(b"c"))
        await log.begin()
        await log.roll_over()
        assert [span.entries for span in log.chain.spans] == [2]


async def test_what_was_taken_before_a_log_was_terminated_is_confirmed_first(
    coordination: Coordination, ledgers: MemoryLedgers, settle: Settle
) -> None:
    listener = NotedListener()
    ledgers.is_prompt = False
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        ending = asyncio.ensure_future(log.termination.terminate())
        await settle()
        with pytest.raises(TopicTerminated):
            log.append_all(pending(b"late"))
        ledgers.writers[-1].fail(AppendTimedOut(0, 0, 60.0))
        await settle()
        ledgers.writers[-1].confirm()
        assert await ending == Position(ledgers.writers[-1].ledger_id, 0)
        assert [payload for _, payload in listener.appended] == [b"a"]


async def test_a_log_that_could_not_be_terminated_goes_on(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
    settle: Settle,
) -> None:
    listener = NotedListener()
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        await suspend("broker")
        with pytest.raises(StorageUnavailable):
            await log.termination.terminate()
        await reconnect("broker")
        log.append_all(pending(b"a"))
        await settle()
        assert [payload for _, payload in listener.appended] == [b"a"]


async def test_a_log_that_another_broker_has_is_not_terminated(
    coordination: Coordination, ledgers: MemoryLedgers, meddle: Callable[[str, bytes], None]
) -> None:
    async with log_over(logs_over(coordination, ledgers)) as log:
        meddle(managed_ledger_path(LOG), b"")
        with pytest.raises(TopicFenced):
            await log.termination.terminate()
        assert log.is_fenced


async def test_a_log_that_two_terminate_takes_nothing_while_one_of_them_may_succeed(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    settle: Settle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = NotedListener()
    honest, outcomes = RecordedChain.save, [ConnectionLost("no answer"), None]
    both_ask, may_go_on = asyncio.Event(), asyncio.Event()

    async def lossy(chain: RecordedChain, *, ends: bool = False) -> None:
        if not ends:
            await honest(chain)
            return
        error = outcomes.pop(0)
        if error is not None:
            await both_ask.wait()
            raise error
        both_ask.set()
        await may_go_on.wait()
        await honest(chain, ends=True)

    monkeypatch.setattr(RecordedChain, "save", lossy)
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        endings = [asyncio.ensure_future(log.termination.terminate()) for _ in range(2)]
        await settle()
        with pytest.raises(StorageUnavailable):
            endings[0].result()
        with pytest.raises(TopicTerminated):
            log.append_all(pending(b"late"))
        may_go_on.set()
        assert await endings[1] == Position(ledgers.writers[0].ledger_id, 0)
        await settle()
        assert [payload for _, payload in listener.appended] == [b"a"]


async def test_no_ledger_is_begun_while_a_log_is_terminated(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    settle: Settle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, may_go_on = RecordedChain.save, asyncio.Event()

    async def slow(chain: RecordedChain, *, ends: bool = False) -> None:
        await may_go_on.wait()
        await honest(chain, ends=ends)

    monkeypatch.setattr(RecordedChain, "save", slow)
    async with log_over(logs_over(coordination, ledgers)) as log:
        log.append_all(pending(b"a"))
        ending = asyncio.ensure_future(log.termination.terminate())
        await settle()
        with pytest.raises(StorageUnavailable):
            await log.roll_over()
        may_go_on.set()
        end = await ending
        await settle()
        assert [span.ledger_id for span in log.chain.spans] == [end.ledger_id]
        with pytest.raises(TopicTerminated):
            log.append_all(pending(b"late"))


async def test_what_waits_for_a_ledger_gets_one_where_a_log_is_not_terminated(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    settle: Settle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = NotedListener()
    ledgers.is_prompt = False

    async with log_over(logs_over(coordination, ledgers), listener) as log:

        async def unavailable(_: object) -> None:
            raise AppendTimedOut(0, 0, 60.0)

        log.append_all(pending(b"a"))
        monkeypatch.setattr(type(log), "_close_finishing", unavailable)
        ending = asyncio.ensure_future(log.termination.terminate())
        await settle()
        with pytest.raises(StorageUnavailable):
            await ending
        monkeypatch.undo()
        ledgers.is_prompt = True
        ledgers.writers[0].fail(AppendTimedOut(0, 0, 60.0))
        await settle()
        assert [payload for _, payload in listener.appended] == [b"a"]
