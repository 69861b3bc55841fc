"""Proves that a cursor that changes hands loses nothing that an owner was told is saved, whatever
the broker that had it still writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.managed_ledger.stepped import Steps
from tests.unit.geminga_broker.managed_ledger.stored_cursors import (
    JOURNEY,
    PATH,
    created,
    stepped,
    store_over,
)

from geminga_broker.managed_ledger.acknowledgement.cursor_state import CursorState
from geminga_broker.managed_ledger.cursors.cursor_store import TAKEN_OVER, CursorStore
from geminga_ledger import LedgerFenced
from geminga_runtime.coordination import (
    ConnectionLost,
    Coordination,
    NodeMissing,
    VersionMismatch,
)


async def try_to_write(
    write: Callable[[CursorState], Awaitable[object]], state: CursorState
) -> bool:
    """What an owner does that does not know that it is the last no longer; whether it was told that
    the state is saved."""
    try:
        await write(state)
    except TAKEN_OVER:
        return False
    return True


@pytest.mark.parametrize("saves", [1, 2, 3])
@pytest.mark.parametrize("act", [CursorStore.save, CursorStore.close])
async def test_the_next_owner_knows_whatever_the_last_one_was_told_is_saved(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    act: Callable[[CursorStore, CursorState], Awaitable[object]],
    saves: int,
) -> None:
    """The last owner appends, turns to a new ledger or closes the cursor, at any moment while the
    next one loads it and afterwards."""
    outcomes: list[bool] = []
    for step in count():
        last = await created(coordination, ledgers)
        for place in JOURNEY[1 : saves + 1]:
            await last.save(place)
        told: list[bool] = []

        async def interfere(last: CursorStore = last, told: list[bool] = told) -> None:
            told.append(await try_to_write(partial(act, last), JOURNEY[5]))

        steps = Steps(meanwhile={step: interfere})
        following = stepped(coordination, ledgers, steps)
        found = await following.load()
        is_over = not told
        if is_over:
            await interfere()
        assert found == (JOURNEY[5] if told[0] else JOURNEY[saves])
        await following.save(JOURNEY[6])
        assert await store_over(coordination, ledgers).load() == JOURNEY[6]
        outcomes += told
        if is_over:
            break
    assert outcomes[0], "no other broker had the cursor yet"
    assert not outcomes[-1]


async def test_an_owner_whose_session_is_over_writes_nothing(
    session: Callable[[str], Coordination],
    ledgers: MemoryLedgers,
    expire: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    """Another broker may have read the cursor since, and has had no reason to write it."""
    last = await created(session("last"), ledgers)
    await expire("last")
    following = store_over(session("next"), ledgers)
    assert await following.load() == JOURNEY[0]
    for act in (last.save, last.close):
        with pytest.raises(ConnectionLost):  # for all it knows, ZooKeeper is away
            await act(JOURNEY[1])
    await reconnect("last")
    for act in (last.save, last.close):
        with pytest.raises(TAKEN_OVER):
            await act(JOURNEY[1])
    with pytest.raises(TAKEN_OVER):
        await last.delete()
    await following.save(JOURNEY[2])
    assert await store_over(session("next"), ledgers).load() == JOURNEY[2]


async def test_of_two_that_read_the_same_snapshot_the_first_to_write_it_goes_on(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    """A broker that was taken for dead and goes on in its session: what it is told is saved stays
    so, and the other finds out with its first write."""
    last = await created(coordination, ledgers)
    following = store_over(coordination, ledgers)
    await following.load()
    await last.close(JOURNEY[1])
    with pytest.raises(TAKEN_OVER):
        await following.save(JOURNEY[2])
    assert await store_over(coordination, ledgers).load() == JOURNEY[1]


async def test_a_cursor_that_is_deleted_while_it_is_loaded_is_missing(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    for step in range(3):  # reading the record, writing it, opening the ledger
        last = await created(coordination, ledgers)
        await last.save(JOURNEY[1])

        async def delete() -> None:
            await coordination.delete(PATH)
            ledgers.entries.clear()

        steps = Steps(meanwhile={step: delete})
        with pytest.raises(NodeMissing):
            await stepped(coordination, ledgers, steps).load()


async def test_loading_a_cursor_that_changes_all_the_time_ends(
    coordination: Coordination, ledgers: MemoryLedgers, meddle: Callable[[str, bytes], None]
) -> None:
    last = await created(coordination, ledgers)
    await last.save(JOURNEY[1])
    value, _ = await coordination.get(PATH)

    async def change() -> None:
        meddle(PATH, value)

    steps = Steps(meanwhile=dict.fromkeys(range(1000), change))
    with pytest.raises(VersionMismatch):
        await stepped(coordination, ledgers, steps).load()


async def test_loading_writes_nothing_where_nothing_else_can_be_writing(
    coordination: Coordination, ledgers: MemoryLedgers, requests: list[str]
) -> None:
    """There may be very many topics, most of them at rest."""
    await created(coordination, ledgers)
    requests.clear()
    await store_over(coordination, ledgers).load()
    assert requests == [f"get {PATH}"]


async def test_a_record_that_another_broker_changed_ends_saving(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    other = store_over(coordination, ledgers)
    await other.load()
    await other.save(JOURNEY[5])
    with pytest.raises(TAKEN_OVER):
        await store.save(JOURNEY[1])
    assert await store_over(coordination, ledgers).load() == JOURNEY[5]


async def test_a_record_that_another_broker_deleted_ends_saving(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    await coordination.delete(PATH)
    with pytest.raises(TAKEN_OVER):
        await store.save(JOURNEY[1])


async def test_a_fenced_ledger_ends_saving(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    store = await created(coordination, ledgers)
    await store.save(JOURNEY[1])
    ledgers.writers[0].fail(LedgerFenced(0))
    with pytest.raises(TAKEN_OVER):
        await store.save(JOURNEY[2])
