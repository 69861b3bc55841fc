"""Proves that what a cursor was told survives, and that ending one leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.unit.magnetar_broker.log.stand_ins import (
    LOG,
    MemoryLedgers,
    log_over,
    logs_over,
    pending,
)

from magnetar_broker.log.cursor import Cursor
from magnetar_broker.log.logs import Logs
from magnetar_broker.log.managed_ledger import ManagedLedger
from magnetar_broker.log.positions import Position
from magnetar_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]
BEFORE_FIRST = Position(0, -1)


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """The cluster's ledgers; 0 is the log's."""
    return MemoryLedgers()


@pytest.fixture
def logs(coordination: Coordination, ledgers: MemoryLedgers) -> Logs:
    """The broker's logs."""
    return logs_over(coordination, ledgers)


@pytest.fixture
async def log(logs: Logs, settle: Settle) -> AsyncIterator[ManagedLedger]:
    """A log of five entries in ledger 0."""
    async with log_over(logs) as log:
        log.append_all(pending(b"a", b"b", b"c", b"d", b"e"))
        await settle()
        yield log


async def created(logs: Logs, log: ManagedLedger) -> Cursor:
    cursor = await logs.create_cursor(LOG, "sub", log.chain, BEFORE_FIRST, {})
    return await cursor.__aenter__()


async def closed(cursor: Cursor) -> None:
    await cursor.__aexit__(None, None, None)


async def test_a_closed_cursor_is_found_again_with_its_holes(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(logs, log)
    for entry_id in (0, 1, 3):
        cursor.acknowledged.acknowledge(0, entry_id)
    cursor.changed()
    await closed(cursor)
    again = await logs.load_cursor(LOG, "sub", log.chain)
    assert again.mark_delete == (0, 1)
    assert again.acknowledged.is_acknowledged(0, 3)
    assert list(ledgers.entries) == [0], "the snapshot needs no ledger"


async def test_a_confirmed_acknowledgement_survives_a_crash(
    logs: Logs, log: ManagedLedger, settle: Settle
) -> None:
    cursor, told = await created(logs, log), list[str]()
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(lambda: told.append("durable"))
    assert not told
    await settle()
    assert told == ["durable"]
    assert (await logs.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 0)


async def test_many_acknowledgements_share_few_writes(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers, settle: Settle
) -> None:
    cursor, told = await created(logs, log), list[int]()
    for entry_id in range(5):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed(lambda: told.append(1))
    await settle()
    assert len(told) == 5
    assert len(ledgers.entries[1]) <= 2
    await closed(cursor)


async def test_a_cursor_that_is_not_durable_confirms_at_once(
    logs: Logs, log: ManagedLedger
) -> None:
    cursor, told = logs.volatile_cursor("reader", log.chain, BEFORE_FIRST), list[str]()
    cursor.changed(lambda: told.append("at once"))
    assert told == ["at once"]
    assert not cursor.is_durable


async def test_a_cursor_deleted_while_it_is_written_leaves_no_ledger_behind(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers, settle: Settle
) -> None:
    cursor = await created(logs, log)
    ledgers.is_prompt = False
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(lambda: None)
    await settle()
    assert list(ledgers.entries) == [0, 1], "its first write waits for the bookies"
    ledgers.is_prompt = True
    await cursor.delete()
    await closed(cursor)
    assert list(ledgers.entries) == [0]
    assert await logs.cursor_names(LOG) == []


async def test_a_cursor_closed_while_it_is_written_leaves_no_ledger_behind(
    logs: Logs, log: ManagedLedger, ledgers: MemoryLedgers, settle: Settle
) -> None:
    cursor = await created(logs, log)
    ledgers.is_prompt = False
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(lambda: None)
    await settle()
    await closed(cursor)
    assert list(ledgers.entries) == [0]
    assert (await logs.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 0)


async def test_a_cursor_whose_creation_nobody_heard_the_end_of_can_be_had(
    logs: Logs, log: ManagedLedger
) -> None:
    await logs.create_cursor(LOG, "sub", log.chain, BEFORE_FIRST, {"made": "once"})
    again = await logs.create_cursor(LOG, "sub", log.chain, Position(0, 2), {})
    assert again.mark_delete == BEFORE_FIRST
    assert again.properties == {"made": "once"}


async def test_a_cursor_moves_back_and_forgets_what_lay_beyond(
    logs: Logs, log: ManagedLedger, settle: Settle
) -> None:
    cursor = await created(logs, log)
    cursor.acknowledged.acknowledge_upto(Position(0, 3))
    assert cursor.backlog_entries == 1
    cursor.reset(Position(0, 0), lambda: None)
    await settle()
    assert cursor.backlog_entries == 4
    assert (await logs.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 0)
