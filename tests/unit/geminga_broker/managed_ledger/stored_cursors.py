"""Stored cursors over memory, for tests: their states, and ZooKeeper and ledgers beneath them."""

from __future__ import annotations

from typing import cast

from tests.unit.geminga_broker.managed_ledger.stand_ins import LOG, MemoryLedgers
from tests.unit.geminga_broker.managed_ledger.stepped import (
    SteppedLedgers,
    Steps,
)

from geminga_broker.managed_ledger.acknowledgement.cursor_state import CursorState
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor_store import CursorStore
from geminga_broker.managed_ledger.positions import Position
from geminga_ledger import Ledgers
from geminga_protocol.records.topics.cursor import cursor_path
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.interception import InterceptedSession

PATH = cursor_path(LOG, "sub")
SMALL = ManagedLedgerConfig(cursor_ledger_entries_max=2)


def state(entry: int, *, holes: int = 0) -> CursorState:
    """Marked at ``entry``, with every second entry after it acknowledged, ``holes`` of them."""
    return CursorState(
        mark_delete=Position(7, entry),
        ranges=tuple(
            (Position(7, entry + 2 * hole + 1), Position(7, entry + 2 * hole + 2))
            for hole in range(holes)
        ),
        partial=((Position(7, entry + 1), (0b101,)),),
        position_properties={"#pulsar.internal.x": entry},
        cursor_properties={"team": "payments"},
    )


# Nine states in as many places, written by two to a ledger.
JOURNEY = [state(number, holes=number % 3) for number in range(9)]


def store_over(
    coordination: Coordination,
    ledgers: object,
    *,
    config: ManagedLedgerConfig = SMALL,
) -> CursorStore:
    return CursorStore(
        coordination,
        cast(Ledgers, ledgers),
        SimulatedClock(),
        config,
        log_name=LOG,
        name="sub",
    )


def stepped(
    coordination: Coordination, ledgers: MemoryLedgers, steps: Steps | None = None
) -> CursorStore:
    steps = steps or Steps()
    session = InterceptedSession(coordination, steps.intercept)
    return store_over(session, SteppedLedgers(ledgers, steps))


async def fresh(coordination: Coordination, ledgers: MemoryLedgers) -> None:
    """Empty storage, with the log's node in it, which a cursor's node stands below."""
    ledgers.entries.clear()
    if await coordination.exists(PATH) is not None:
        await coordination.delete(PATH)
    elif await coordination.exists(PATH.rpartition("/")[0]) is None:
        await coordination.create(PATH.rpartition("/")[0], make_parents=True)


async def created(
    coordination: Coordination, ledgers: MemoryLedgers, *, config: ManagedLedgerConfig = SMALL
) -> CursorStore:
    """The store of a new cursor."""
    await fresh(coordination, ledgers)
    store = store_over(coordination, ledgers, config=config)
    await store.create(JOURNEY[0])
    return store
