"""Ledger metadata is changed by compare-and-set, also when answers from ZooKeeper get lost."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from geminga_ledger.config import LedgerConfig
from geminga_ledger.errors import NoSuchLedger, UnsupportedLedger
from geminga_ledger.metadata.store import LedgerStore
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from geminga_runtime.coordination import ConnectionLost
from geminga_simulation.event_loop.clock import WALL_START_MS, SimulatedClock
from geminga_simulation.zookeeper.interception import InstantSession

METADATA = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b0",)),)
)
PATH = "/ledgers/00/0000/L0000"


def store_on(coordination: InstantSession, seed: int = 1) -> LedgerStore:
    return LedgerStore(
        coordination, clock=SimulatedClock(), random=Random(seed), config=LedgerConfig()
    )


def close_at_3(metadata: LedgerMetadata) -> LedgerMetadata | None:
    return None if metadata.state is LedgerState.CLOSED else metadata.closed(3, 30)


async def test_a_ledger_is_stored_where_bookkeeper_looks_for_it() -> None:
    coordination = InstantSession()
    stored = await store_on(coordination).create(METADATA)
    assert (stored.ledger_id, stored.version) == (0, 0)
    read = LedgerMetadata.decode(coordination.zookeeper.tree.get(PATH)[0])
    assert replace(read, creation_token=0) == METADATA
    assert read.creation_token
    assert await store_on(coordination).read(0) == replace(stored, created_ms=WALL_START_MS)


async def test_a_taken_id_is_passed_over() -> None:
    coordination = InstantSession()
    coordination.zookeeper.put(PATH, METADATA.encode())
    assert (await store_on(coordination).create(METADATA)).ledger_id == 1


@pytest.mark.parametrize("is_done", [False, True])
async def test_creating_survives_a_lost_connection_without_a_second_ledger(
    *, is_done: bool
) -> None:
    coordination = InstantSession()
    coordination.lose("create", "/L0000", is_done=is_done)
    stored = await store_on(coordination).create(METADATA)
    assert stored.ledger_id == 0
    assert coordination.zookeeper.tree.children("/ledgers/00/0000") == ["L0000"]


async def test_a_missing_ledger_is_no_ledger() -> None:
    with pytest.raises(NoSuchLedger):
        await store_on(InstantSession()).read(5)


async def test_metadata_that_cannot_be_read_is_not_supported() -> None:
    coordination = InstantSession()
    coordination.zookeeper.put(PATH, b"garbage")
    with pytest.raises(UnsupportedLedger, match="cannot be read"):
        await store_on(coordination).read(0)


async def test_an_update_is_written_with_the_next_version() -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    updated = await store.update(await store.create(METADATA), close_at_3)
    assert (updated.metadata.state, updated.version) == (LedgerState.CLOSED, 1)
    assert await store.read(0) == updated


async def test_an_update_that_is_not_needed_writes_nothing() -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    stored = await store.update(await store.create(METADATA), close_at_3)
    assert await store.update(stored, close_at_3) is stored
    assert coordination.zookeeper.tree.get(PATH)[1].version == 1


async def test_an_update_that_met_another_is_decided_anew() -> None:
    coordination = InstantSession()
    store, other = store_on(coordination), store_on(coordination)
    stored = await store.create(METADATA)
    await other.update(stored, lambda metadata: metadata.closed(9, 90))
    seen: list[LedgerState] = []

    def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        seen.append(metadata.state)
        return close_at_3(metadata)

    updated = await store.update(stored, change)
    assert seen == [LedgerState.OPEN, LedgerState.CLOSED]
    assert updated.metadata.last_entry == 9


@pytest.mark.parametrize("is_done", [False, True])
async def test_an_update_whose_answer_is_lost_is_looked_up(*, is_done: bool) -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    stored = await store.create(METADATA)
    coordination.lose("set", PATH, is_done=is_done)
    updated = await store.update(stored, close_at_3)
    assert (updated.metadata.last_entry, updated.version) == (3, 1)


async def test_an_update_of_a_deleted_ledger_says_so() -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    stored = await store.create(METADATA)
    await store.delete(0)
    with pytest.raises(NoSuchLedger):
        await store.update(stored, close_at_3)


async def test_a_change_may_give_up() -> None:
    store = store_on(InstantSession())

    def refuse(metadata: LedgerMetadata) -> LedgerMetadata | None:
        raise NoSuchLedger(metadata.write_quorum)

    with pytest.raises(NoSuchLedger):
        await store.update(await store.create(METADATA), refuse)


async def test_deleting_takes_empty_parents_along_and_may_be_repeated() -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    first, second = await store.create(METADATA), await store.create(METADATA)
    await store.delete(first.ledger_id)
    assert coordination.zookeeper.tree.children("/ledgers/00/0000") == ["L0001"]
    await store.delete(first.ledger_id)
    await store.delete(second.ledger_id)
    assert coordination.zookeeper.tree.children("/ledgers") == ["idgen"]


async def test_zookeeper_that_stays_away_is_given_up_at_the_deadline() -> None:
    coordination = InstantSession()
    for _ in range(1000):
        coordination.lose("get", PATH, is_done=False)
    with pytest.raises(ConnectionLost):
        await store_on(coordination).read(0)


def watchers(coordination: InstantSession) -> int:
    return coordination.zookeeper.watch_count(PATH)


async def test_all_readers_of_a_ledger_share_one_watch_for_its_next_change() -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    stored = await store.create(METADATA)
    read, changed = await store.read_watched(0)
    assert read == replace(stored, created_ms=WALL_START_MS)
    assert not changed.is_set()
    # Others hear by the same watch.
    assert await store.read_watched(0) == (read, changed)
    assert watchers(coordination) == 1
    await store.update(stored, close_at_3)
    assert changed.is_set()
    read, changed = await store.read_watched(0)
    assert read.metadata.state is LedgerState.CLOSED
    assert watchers(coordination) == 1
    await store.delete(0)
    assert changed.is_set()
    with pytest.raises(NoSuchLedger):
        await store.read_watched(0)


async def test_a_change_while_it_is_read_is_heard_of() -> None:
    coordination = InstantSession()
    store = store_on(coordination)
    stored = await store.create(METADATA)
    _, changed = await store.read_watched(0)

    def change(method: str, path: str) -> None:
        if (method, path) == ("get", PATH):
            coordination.before = None
            coordination.zookeeper.put(PATH, METADATA.closed(3, 30).encode())

    coordination.before = change
    read, same = await store.read_watched(0)
    assert same is changed
    assert changed.is_set()
    assert read.version > stored.version
