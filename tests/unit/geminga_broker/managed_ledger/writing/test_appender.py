"""Proves that confirmations come back as runs, in order, with what was given along."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    QUIET,
    MemoryLedgers,
    NotedListener,
    log_over,
    logs_over,
    pending,
)

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.managed_ledger.writing.appender import Appender
from geminga_ledger import AppendTimedOut, LedgerClosed, LedgerError, LedgerWriter
from geminga_runtime.coordination import Coordination


class Taker:
    """A ledger writer that only notes what it is given."""

    def __init__(self) -> None:
        self.ledger_id = 7
        self.payloads: list[bytes] = []
        self.refusal: LedgerError | None = None

    def append_all(self, payloads: Sequence[bytes]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.payloads += payloads


class Noted:
    """What the managed ledger is told."""

    def __init__(self) -> None:
        self.runs: list[tuple[list[Entry], list[AppendRequest], int]] = []
        self.failure: LedgerError | None = None

    def run_confirmed(
        self, appender: Appender, entries: list[Entry], batch: list[AppendRequest], size_bytes: int
    ) -> None:
        assert appender.span.ledger_id == 7
        self.runs.append((entries, batch, size_bytes))

    def appender_failed(self, appender: Appender, error: LedgerError) -> None:
        assert appender.span.ledger_id == 7
        self.failure = error


@pytest.fixture
def taker() -> Taker:
    """The writer under the appender."""
    return Taker()


@pytest.fixture
def noted() -> Noted:
    """The log above the appender."""
    return Noted()


@pytest.fixture
def appender(taker: Taker, noted: Noted) -> Appender:
    """An appender to ledger 7."""
    appender = Appender(noted.run_confirmed, noted.appender_failed)
    appender.writer, appender.span = cast(LedgerWriter, taker), LedgerSpan(taker.ledger_id)
    return appender


def test_a_confirmation_gives_a_run_with_sizes_and_what_came_along(
    appender: Appender, taker: Taker, noted: Noted
) -> None:
    given: list[AppendRequest] = [(b"one", 1, QUIET, 5, 0), (b"three", 30, QUIET, 6, 9)]
    appender.append_all(given)
    assert taker.payloads == [b"one", b"three"]
    appender.entries_confirmed(1)
    assert noted.runs == [([(0, b"one", 1), (1, b"three", 30)], given, 8)]
    assert appender.pending_count == 0


def test_confirmations_of_a_part_number_their_entries_on(appender: Appender, noted: Noted) -> None:
    appender.append_all(pending(b"a", b"b"))
    appender.append_all(pending(b"c"))
    appender.entries_confirmed(0)
    assert appender.pending_count == 2
    appender.entries_confirmed(2)
    assert [entry[:2] for run in noted.runs for entry in run[0]] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]
    assert [len(run[0]) for run in noted.runs] == [1, 2]


def test_what_the_writer_refuses_is_not_on_its_way(appender: Appender, taker: Taker) -> None:
    taker.refusal = LedgerClosed(7)
    with pytest.raises(LedgerClosed):
        appender.append_all(pending(b"a"))
    assert appender.pending_count == 0


def test_a_failed_writers_unconfirmed_entries_are_given_back_once(
    appender: Appender, noted: Noted
) -> None:
    appender.append_all(pending(b"a", b"b", b"c"))
    appender.entries_confirmed(0)
    failure = AppendTimedOut(7, 1, 60.0)
    appender.writer_failed(failure)
    assert noted.failure is failure
    assert [item[0] for item in appender.take_pending()] == [b"b", b"c"]
    assert appender.take_pending() == []


async def test_what_a_ledger_that_fails_as_it_ends_had_not_confirmed_comes_first(
    coordination: Coordination, settle: Callable[[], Awaitable[None]]
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        rolling = asyncio.ensure_future(log.roll_over())
        await settle()
        log.append_all(pending(b"b"))
        ledgers.writers[0].fail(AppendTimedOut(0, 0, 60.0))
        await settle()
        ledgers.writers[1].confirm()
        await rolling
        assert [payload for _, payload in listener.appended] == [b"a", b"b"]
