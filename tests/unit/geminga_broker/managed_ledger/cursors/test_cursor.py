"""Proves that what a cursor was told survives, that another owner is given way to, and that ending
a cursor leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    log_over,
    logs_over,
    pending,
)

from geminga_broker.errors import BrokerError, ServiceNotReady
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_ledger import LedgerFenced
from geminga_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]
BEFORE_FIRST = Position(0, -1)


@pytest.fixture
def factory(coordination: Coordination, ledgers: MemoryLedgers) -> ManagedLedgerFactory:
    """The broker's logs."""
    return logs_over(coordination, ledgers, config=ManagedLedgerConfig())


@pytest.fixture
async def log(factory: ManagedLedgerFactory, settle: Settle) -> AsyncIterator[ManagedLedger]:
    """A log of five entries in ledger 0."""
    async with log_over(factory) as log:
        log.append_all(pending(b"a", b"b", b"c", b"d", b"e"))
        await settle()
        yield log


async def created(factory: ManagedLedgerFactory, log: ManagedLedger) -> Cursor:
    cursor = await factory.create_cursor(LOG, "sub", log.chain, BEFORE_FIRST, {})
    return await cursor.__aenter__()


async def closed(cursor: Cursor) -> None:
    await cursor.__aexit__(None, None, None)


async def test_a_closed_cursor_is_found_again_with_its_holes(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(factory, log)
    for entry_id in (0, 1, 3):
        cursor.acknowledged.acknowledge(0, entry_id)
    cursor.changed()
    await closed(cursor)
    again = await factory.load_cursor(LOG, "sub", log.chain)
    assert again.mark_delete == (0, 1)
    assert again.acknowledged.is_acknowledged(0, 3)
    assert list(ledgers.entries) == [0], "the snapshot needs no ledger"


async def test_a_confirmed_acknowledgement_survives_a_crash(
    factory: ManagedLedgerFactory, log: ManagedLedger, settle: Settle
) -> None:
    cursor, told = await created(factory, log), list[str]()
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(lambda error: told.append(str(error)))
    assert not told
    await settle()
    assert told == ["None"]
    assert (await factory.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 0)


async def test_many_acknowledgements_share_few_writes(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    ledgers: MemoryLedgers,
    settle: Settle,
) -> None:
    cursor, told = await created(factory, log), list[int]()
    for entry_id in range(5):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed(lambda _: told.append(1))
    await settle()
    assert len(told) == 5
    assert len(ledgers.entries[1]) <= 2
    await closed(cursor)


async def test_who_acknowledges_during_a_write_is_told_when_the_next_one_is_durable(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers, settle: Settle
) -> None:
    cursor, told = await created(factory, log), list[int]()
    ledgers.is_prompt = False
    for entry_id in (0, 1):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed(lambda _, entry_id=entry_id: told.append(entry_id))  # type: ignore[misc]  # mypy cannot infer it
        await settle()
    ledgers.writers[-1].confirm()
    await settle()
    assert told == [0]
    ledgers.writers[-1].confirm()
    await settle()
    assert told == [0, 1]
    ledgers.is_prompt = True
    await closed(cursor)


async def test_a_cursor_that_is_not_durable_confirms_at_once(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    cursor, told = factory.volatile_cursor("reader", log.chain, BEFORE_FIRST), list[str]()
    cursor.changed(lambda _: told.append("at once"))
    assert told == ["at once"]
    assert not cursor.is_durable


async def test_a_cursor_deleted_while_it_is_written_leaves_no_ledger_behind(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    ledgers: MemoryLedgers,
    settle: Settle,
) -> None:
    cursor = await created(factory, log)
    ledgers.is_prompt = False
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(lambda _: None)
    await settle()
    assert list(ledgers.entries) == [0, 1], "its first write waits for the bookies"
    ledgers.is_prompt = True
    await cursor.delete()
    await closed(cursor)
    assert list(ledgers.entries) == [0]
    assert await factory.cursor_names(LOG) == []


async def test_a_cursor_closed_while_it_is_written_leaves_no_ledger_behind(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    ledgers: MemoryLedgers,
    settle: Settle,
) -> None:
    cursor = await created(factory, log)
    ledgers.is_prompt = False
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(lambda _: None)
    await settle()
    await closed(cursor)
    assert list(ledgers.entries) == [0]
    assert (await factory.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 0)


async def test_a_cursor_whose_creation_lost_its_answer_is_found_by_the_next_creation(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    await factory.create_cursor(LOG, "sub", log.chain, BEFORE_FIRST, {"made": "once"})
    again = await factory.create_cursor(LOG, "sub", log.chain, Position(0, 2), {})
    assert again.mark_delete == BEFORE_FIRST
    assert again.properties == {"made": "once"}


async def test_a_cursor_moves_back_and_forgets_what_lay_beyond(
    factory: ManagedLedgerFactory, log: ManagedLedger, settle: Settle
) -> None:
    cursor = await created(factory, log)
    cursor.acknowledged.acknowledge_upto(Position(0, 3))
    assert cursor.backlog_entries == 1
    cursor.acknowledged.reset(Position(0, 0))
    cursor.changed(lambda _: None)
    await settle()
    assert cursor.backlog_entries == 4
    assert (await factory.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 0)


# Writing


async def test_acknowledgements_without_a_receipt_share_a_write_a_tenth_of_a_second_later(
    factory: ManagedLedgerFactory, log: ManagedLedger, ledgers: MemoryLedgers
) -> None:
    cursor = await created(factory, log)
    for entry_id in (0, 2):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed()
    await asyncio.sleep(0.09)
    assert list(ledgers.entries) == [0]
    await asyncio.sleep(0.02)
    assert len(ledgers.entries[1]) == 1
    await closed(cursor)


async def test_a_write_that_fails_is_tried_again(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    cursor, told = await created(factory, log), list[BrokerError | None]()
    await suspend("broker")
    cursor.acknowledged.acknowledge(0, 0)
    cursor.changed(told.append)
    await asyncio.sleep(1)
    assert not told
    await reconnect("broker")
    await asyncio.sleep(5)
    assert told == [None]
    await closed(cursor)


async def test_a_cursor_with_a_great_many_holes_rests_between_writes(
    coordination: Coordination, ledgers: MemoryLedgers, log: ManagedLedger
) -> None:
    slow = ManagedLedgerConfig(cursor_bytes_per_s_max=10)
    cursor, told = await created(logs_over(coordination, ledgers, config=slow), log), list[float]()
    time = asyncio.get_running_loop().time
    for entry_id in (1, 3):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed(lambda _: told.append(time()))
        await asyncio.sleep(0.01)
    await asyncio.sleep(60)
    written_bytes = len(ledgers.entries[1][0])
    assert told[1] - told[0] >= written_bytes / 10
    await closed(cursor)


async def test_what_no_entry_holds_is_said_once(
    factory: ManagedLedgerFactory, log: ManagedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    cursor = await created(factory, log)
    cursor.acknowledged.partial_entries.update(
        {Position(0, number): (1,) for number in range(10_001)}
    )
    assert len(cursor.state().partial) == len(cursor.state().partial) == 10_000
    assert caplog.text.count("too many holes") == 1


# Another owner


async def taken_over(factory: ManagedLedgerFactory, log: ManagedLedger) -> None:
    """Another broker loads the cursor and moves it."""
    other = await (await factory.load_cursor(LOG, "sub", log.chain)).__aenter__()
    other.acknowledged.acknowledge_upto(Position(0, 3))
    await closed(other)


async def test_a_cursor_that_was_taken_over_confirms_nothing_and_tells_its_owner(
    factory: ManagedLedgerFactory, log: ManagedLedger, settle: Settle
) -> None:
    cursor, told, lost = (
        await created(factory, log),
        list[BrokerError | None](),
        list[str](),
    )
    cursor.on_lost = lambda: lost.append("lost")
    await taken_over(factory, log)
    for entry_id in (0, 1):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed(told.append)
        await settle()
    assert [type(error) for error in told] == [ServiceNotReady, ServiceNotReady]
    assert lost == ["lost"]
    await closed(cursor)
    assert (await factory.load_cursor(LOG, "sub", log.chain)).mark_delete == (0, 3)


async def test_a_cursor_whose_ledger_was_fenced_is_lost(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    ledgers: MemoryLedgers,
    settle: Settle,
) -> None:
    cursor, told, lost = (
        await created(factory, log),
        list[BrokerError | None](),
        list[str](),
    )
    cursor.on_lost = lambda: lost.append("lost")
    cursor.changed(told.append)
    await settle()
    ledgers.writers[1].fail(LedgerFenced(1))
    cursor.changed(told.append)
    await settle()
    assert [type(error) for error in told] == [type(None), ServiceNotReady]
    assert lost == ["lost"]
    await closed(cursor)


# Ending


async def test_who_waits_for_a_cursor_that_is_closed_is_told_that_it_was_saved(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    ledgers: MemoryLedgers,
    settle: Settle,
) -> None:
    cursor, told = await created(factory, log), list[BrokerError | None]()
    ledgers.is_prompt = False
    cursor.changed(told.append)
    await settle()
    assert not told
    await closed(cursor)
    assert told == [None]


async def test_who_comes_after_a_cursor_was_closed_is_told_that_nothing_is_saved(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    cursor, told = await created(factory, log), list[BrokerError | None]()
    await closed(cursor)
    for entry_id in (0, 1):
        cursor.acknowledged.acknowledge(0, entry_id)
        cursor.changed(told.append)
    assert [type(each) for each in told] == [ServiceNotReady, ServiceNotReady]


async def test_who_waits_for_a_cursor_that_cannot_be_closed_is_told_that_nothing_was_saved(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    suspend: Callable[[str], Awaitable[None]],
    settle: Settle,
) -> None:
    cursor, told = await created(factory, log), list[BrokerError | None]()
    await suspend("broker")
    cursor.changed(told.append)
    await settle()
    await closed(cursor)
    assert [type(error) for error in told] == [ServiceNotReady]


async def test_a_deletion_without_an_answer_is_tried_again(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    cursor, told = await created(factory, log), list[BrokerError | None]()
    await suspend("broker")
    cursor.changed(told.append)
    deletion = asyncio.ensure_future(cursor.delete())
    await asyncio.sleep(1)
    await reconnect("broker")
    await deletion
    assert [type(error) for error in told] == [ServiceNotReady]
    assert await factory.cursor_names(LOG) == []
    await closed(cursor)


async def test_properties_that_change_are_found_again_whether_the_cursor_has_a_ledger_or_not(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    cursor = await created(factory, log)
    await cursor.change_properties({"a": "1", "b": "2"})
    await cursor.change_properties({"b": "3", "c": "4"}, ["a", "never there"])
    # As after a crash: nothing was closed.
    assert (await factory.load_cursor(LOG, "sub", log.chain)).properties == {
        "b": "3",
        "c": "4",
    }
    await closed(cursor)
    assert (await factory.load_cursor(LOG, "sub", log.chain)).properties == {
        "b": "3",
        "c": "4",
    }


async def test_properties_of_a_cursor_that_another_broker_has_do_not_change(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    cursor = await created(factory, log)
    other = await factory.load_cursor(LOG, "sub", log.chain)
    await other.__aenter__()
    await other.change_properties({"a": "1"})
    with pytest.raises(ServiceNotReady):
        await cursor.change_properties({"a": "2"})
    assert (await factory.load_cursor(LOG, "sub", log.chain)).properties == {"a": "1"}
    await closed(other)
    await closed(cursor)
