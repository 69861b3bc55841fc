"""Proves that a stored cursor is found again, at whatever step its broker dies or ZooKeeper and
bookies fail, and that no ledger is left behind where that can be helped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.managed_ledger.stepped import (
    DeathError,
    Fault,
    Steps,
)
from tests.unit.geminga_broker.managed_ledger.stored_cursors import (
    JOURNEY,
    PATH,
    created,
    fresh,
    stepped,
    store_over,
)

from geminga_broker.errors import InvalidRequest
from geminga_broker.managed_ledger.acknowledgement.cursor_state import CursorState, state_from
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor_store import CursorStore
from geminga_broker.managed_ledger.positions import Position
from geminga_ledger import AppendTimedOut, LedgerError
from geminga_protocol.records.topics.cursor import CursorRecord, PositionRecord
from geminga_runtime.coordination import (
    ConnectionLost,
    Coordination,
    CoordinationError,
    NodeExists,
    NodeMissing,
)
from geminga_simulation.event_loop.clock import WALL_START_MS
from geminga_simulation.zookeeper.interception import InterceptedSession

DENSE = CursorState(mark_delete=Position(7, 1), bits={7: 0b1010_1000, 9: 1 << 70})
# A ledger is turned to in four steps; the broker dies until one more was turned to.
DEATH_WITHIN_STEPS = 12


# At whatever step


async def travel(store: CursorStore, reached: Callable[[int], None]) -> None:
    """Create the cursor, move it along the journey, close it."""
    await store.create(JOURNEY[0])
    reached(0)
    for number, place in enumerate(JOURNEY[1:-1], 1):
        await store.save(place)
        reached(number)
    await store.close(JOURNEY[-1])
    reached(len(JOURNEY) - 1)


async def test_whenever_the_broker_dies_what_was_durable_is_found(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    for is_done in (False, True):
        step = 0
        while True:
            await fresh(coordination, ledgers)
            steps, durable = Steps({step: Fault(is_done, is_death=True)}), [-1]
            try:
                await travel(stepped(coordination, ledgers, steps), durable.append)
            except DeathError:
                await check_next_life(coordination, ledgers, durable[-1])
            else:
                break
            step += 1
        assert step > 2 * len(JOURNEY), "the journey has that many steps at least"


async def test_whenever_the_broker_dies_after_a_failure_what_was_durable_is_found(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    """A step fails, done or not, is tried again, and the broker dies soon after."""
    kinds = list(product((False, True), repeat=2))
    deaths = 0
    for (is_done, is_done_at_death), later in product(kinds, range(1, DEATH_WITHIN_STEPS)):
        failing = 0
        while True:
            await fresh(coordination, ledgers)
            death = Fault(is_done_at_death, is_death=True)
            steps = Steps({failing: Fault(is_done), failing + later: death})
            durable = [-1]
            try:
                await travel_on(stepped(coordination, ledgers, steps), durable.append)
            except DeathError:
                await check_next_life(coordination, ledgers, durable[-1], failures=1)
                deaths += 1
            if steps.count <= failing:
                break
            failing += 1
    assert deaths > len(kinds) * DEATH_WITHIN_STEPS * len(JOURNEY)


async def check_next_life(
    coordination: Coordination, ledgers: MemoryLedgers, durable: int, *, failures: int = 0
) -> None:
    """The next owner finds the last place that was durable, or the one that was being written."""
    store = stepped(coordination, ledgers)
    try:
        found = await store.load()
    except NodeMissing:
        assert durable == -1
        return
    assert JOURNEY.index(found) in (durable, durable + 1)
    await store.save(JOURNEY[5])
    await store.close(JOURNEY[6])
    assert await stepped(coordination, ledgers).load() == JOURNEY[6]
    assert len(ledgers.entries) <= 1 + failures, "what the dead was about to name or to delete"


async def test_whatever_fails_once_is_made_good_and_leaves_nothing_behind(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    for is_done in (False, True):
        step = 0
        while True:
            await fresh(coordination, ledgers)
            steps = Steps({step: Fault(is_done)})
            await travel_on(stepped(coordination, ledgers, steps))
            assert await stepped(coordination, ledgers).load() == JOURNEY[-1]
            assert not ledgers.entries
            if steps.count <= step:
                break
            step += 1
        assert step > 2 * len(JOURNEY)


async def travel_on(store: CursorStore, reached: Callable[[int], None] = lambda _: None) -> None:
    """The journey of a caller that tries again what failed."""

    async def persist(move: Callable[[], Awaitable[object]]) -> None:
        for _ in range(3):
            try:
                await move()
            except NodeExists:
                await store.load()
                return
            except (LedgerError, CoordinationError):
                continue
            else:
                return
        raise AssertionError("one failure needs one more attempt")

    await persist(partial(store.create, JOURNEY[0]))
    reached(0)
    for number, place in enumerate(JOURNEY[1:-1], 1):
        await persist(partial(store.save, place))
        reached(number)
    await persist(partial(store.close, JOURNEY[-1]))
    reached(len(JOURNEY) - 1)
    # A deletion that failed is made up for with the next write.
    await persist(partial(store.close, JOURNEY[-1]))


# Ledgers


async def test_a_ledger_is_replaced_when_it_is_full(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    for place in JOURNEY[1:5]:
        await store.save(place)
    assert list(ledgers.entries) == [1]
    assert len(ledgers.entries[1]) == 2
    assert (store.ledger_id, store.ledger_last_entry, store.current is not None) == (1, 1, True)


async def test_a_ledger_is_replaced_when_it_is_old(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers, config=ManagedLedgerConfig())
    await store.save(JOURNEY[1])
    await asyncio.sleep(4 * 3600 - 1)
    await store.save(JOURNEY[2])
    assert (list(ledgers.entries), store.ledger_switched_ms) == ([0], WALL_START_MS)
    await asyncio.sleep(1)
    await store.save(JOURNEY[3])
    assert list(ledgers.entries) == [1]
    assert store.ledger_switched_ms == WALL_START_MS + 4 * 3600 * 1000


async def test_a_ledger_that_fails_is_followed_by_another(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    await store.save(JOURNEY[1])
    ledgers.writers[0].fail(AppendTimedOut(0, 1, 60.0))
    with pytest.raises(AppendTimedOut):
        await store.save(JOURNEY[2])
    assert (store.ledger_id, list(ledgers.entries)) == (0, [0])
    await store.save(JOURNEY[2])
    assert list(ledgers.entries) == [1]
    assert await store_over(coordination, ledgers).load() == JOURNEY[2]


async def test_a_ledger_that_is_gone_leaves_where_it_was_begun(
    coordination: Coordination, ledgers: MemoryLedgers, caplog: pytest.LogCaptureFixture
) -> None:
    store = await created(coordination, ledgers)
    await store.save(JOURNEY[1])
    await store.save(JOURNEY[2])
    ledgers.entries.clear()
    found = await store_over(coordination, ledgers).load()
    assert "a cursor's ledger is lost" in caplog.text
    assert found.mark_delete == JOURNEY[1].mark_delete
    assert found.cursor_properties == JOURNEY[1].cursor_properties


async def test_a_cursor_with_an_empty_ledger_begins_at_the_position_in_its_record(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    await store.save(JOURNEY[1])
    ledgers.entries[0].clear()
    found = await store_over(coordination, ledgers).load()
    assert found.mark_delete == JOURNEY[1].mark_delete


async def test_a_damaged_state_is_passed_over_and_said(
    coordination: Coordination, ledgers: MemoryLedgers, caplog: pytest.LogCaptureFixture
) -> None:
    store = await created(coordination, ledgers)
    await store.save(JOURNEY[1])
    await store.save(JOURNEY[2])
    ledgers.entries[0][1] = b"\xff\xff"
    assert await store_over(coordination, ledgers).load() == JOURNEY[1]
    assert "a cursor's state is damaged" in caplog.text
    ledgers.entries[0][0] = b""
    found = await store_over(coordination, ledgers).load()
    assert found.mark_delete == JOURNEY[1].mark_delete
    assert not found.partial


async def test_a_naming_in_doubt_is_tried_again_with_the_same_ledger(
    coordination: Coordination, ledgers: MemoryLedgers, suspend: Callable[[str], Awaitable[None]]
) -> None:
    store = await created(coordination, ledgers)
    await suspend("broker")
    for _ in range(5):
        with pytest.raises(CoordinationError):
            await store.save(JOURNEY[1])
    assert list(ledgers.entries) == [0]


async def test_a_record_in_doubt_is_settled_before_the_former_ledger_is_written_again(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    """The record may name the new ledger already, though the former would not be full any more."""
    await fresh(coordination, ledgers)
    connection = InterceptedSession(coordination)
    store = store_over(connection, ledgers)
    await store.create(JOURNEY[0])
    await store.save(JOURNEY[1])
    await store.save(JOURNEY[2])
    connection.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await store.save(JOURNEY[3])
    store.config = ManagedLedgerConfig()
    await store.save(JOURNEY[4])
    assert await store_over(coordination, ledgers).load() == JOURNEY[4]


async def test_properties_in_doubt_are_written_again(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    await fresh(coordination, ledgers)
    connection = InterceptedSession(coordination)
    store = store_over(connection, ledgers, config=ManagedLedgerConfig())
    await store.create(JOURNEY[0])
    await store.save(JOURNEY[1])
    connection.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await store.save(replace(JOURNEY[2], cursor_properties={"team": "shipping"}))
    await store.save(JOURNEY[2])
    assert await store_over(coordination, ledgers).load() == JOURNEY[2]


# The end


async def test_a_cursor_at_rest_costs_nothing_to_close(
    coordination: Coordination, ledgers: MemoryLedgers, requests: list[str]
) -> None:
    store = await created(coordination, ledgers)
    requests.clear()
    await store.close(JOURNEY[0])
    assert requests == []


async def test_a_cursor_with_many_holes_stays_in_its_ledger(
    coordination: Coordination, ledgers: MemoryLedgers, requests: list[str]
) -> None:
    store = await created(coordination, ledgers)
    await store.close(DENSE)
    assert ledgers.writers[0].is_closed
    again = store_over(coordination, ledgers)
    assert await again.load() == DENSE
    requests.clear()
    await again.close(DENSE)
    assert requests == []
    assert list(ledgers.entries) == [0]


async def test_a_state_too_large_for_zookeeper_stays_in_its_ledger(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    many = CursorState(
        mark_delete=Position(7, 1),
        partial=tuple((Position(7, 2 + each), (1 << 62,) * 16) for each in range(2000)),
    )
    await store.close(many)
    assert await store_over(coordination, ledgers).load() == many
    value, _ = await coordination.get(PATH)
    assert len(value) < 100


async def test_properties_that_no_record_holds_are_refused(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    await fresh(coordination, ledgers)
    with pytest.raises(InvalidRequest, match="262144 bytes"):
        await store_over(coordination, ledgers).create(
            CursorState(mark_delete=Position(7, 1), cursor_properties={"novel": "x" * 300_000})
        )


async def test_a_deleted_cursor_leaves_nothing(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    for is_done in (False, True):
        for step in range(3):
            await fresh(coordination, ledgers)
            steps = Steps()
            store = stepped(coordination, ledgers, steps)
            await store.create(JOURNEY[0])
            await store.save(JOURNEY[1])
            steps.faults = {steps.count + step: Fault(is_done)}
            for _ in range(2):
                try:
                    await store.delete()
                except CoordinationError:
                    continue
            assert not ledgers.entries
            assert await coordination.exists(PATH) is None


# What others wrote


def test_bits_beside_ranges_do_not_count() -> None:
    """As in ``ManagedCursorImpl``, which looks at the bits only where there are no ranges."""
    record = CursorRecord(cursor_ledger_id=3, mark_delete=(7, 0))
    written = PositionRecord(
        mark_delete=(7, 1), acknowledged=(((7, 2), (7, 3)),), acknowledged_bits={7: (0b1000_0000,)}
    )
    found = state_from(record, written)
    assert found.ranges == ((Position(7, 2), Position(7, 3)),)
    assert not found.bits
