"""A lock is ours or another's, is given back once, and is none any more when its session ends."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.fakes import bookie_session, end_session

from geminga_autorecovery.zookeeper.ledger_locks import LedgerLocks
from geminga_protocol.records.ledgers.underreplication import encode_lock, lock_path
from geminga_runtime.coordination import ConnectionLost
from geminga_simulation.zookeeper.interception import InstantSession

CONTENT = b""
LEDGER = 5
PATH = lock_path(LEDGER)


def make() -> tuple[InstantSession, LedgerLocks]:
    coordination = bookie_session()
    return coordination, LedgerLocks(coordination, CONTENT, answer_timeout_s=10.0)


async def test_a_ledger_is_locked_by_one_at_a_time() -> None:
    coordination, locks = make()
    other = LedgerLocks(coordination.another(), CONTENT, answer_timeout_s=10.0)
    assert await locks.take(LEDGER)
    assert coordination.zookeeper.tree.get(PATH)[1].ephemeral_owner == coordination.session_id
    assert not await other.take(LEDGER)
    assert await locks.holds(LEDGER)
    assert not await other.holds(LEDGER)
    await other.release(LEDGER)
    assert await locks.holds(LEDGER)
    await locks.release(LEDGER)
    assert await other.take(LEDGER)
    assert not await locks.holds(LEDGER)


async def test_a_lock_goes_with_its_session_and_its_successor_is_left_alone() -> None:
    coordination, locks = make()
    await locks.take(LEDGER)
    await end_session(coordination)
    assert not await locks.holds(LEDGER)
    coordination.zookeeper.put(PATH, b"")
    assert not await locks.holds(LEDGER)
    await locks.release(LEDGER)
    assert coordination.zookeeper.tree.exists(PATH)


async def test_the_lock_of_a_copier_in_the_same_process_is_left_alone() -> None:
    coordination, locks = make()
    await coordination.create(PATH, encode_lock("bookie-1"), ephemeral=True, make_parents=True)
    assert not await locks.take(LEDGER)
    assert not await locks.holds(LEDGER)
    await locks.release(LEDGER)
    assert coordination.zookeeper.tree.exists(PATH)


async def test_a_lock_that_could_not_be_released_is_released_later() -> None:
    coordination, locks = make()
    await locks.take(LEDGER)
    coordination.lose("", is_done=False)
    with pytest.raises(ConnectionLost):
        await locks.release(LEDGER)
    assert coordination.zookeeper.tree.exists(PATH)
    await locks.settle()
    assert coordination.zookeeper.tree.exists(PATH) is None
    await locks.settle()


async def test_so_is_a_lock_whose_making_got_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    coordination, locks = make()
    create = coordination.create

    async def lose_answer(path: str, value: bytes, *, ephemeral: bool, make_parents: bool) -> str:
        await create(path, value, ephemeral=ephemeral, make_parents=make_parents)
        raise ConnectionLost(path)

    with monkeypatch.context() as patch:
        patch.setattr(coordination, "create", lose_answer)
        with pytest.raises(ConnectionLost):
            await locks.take(LEDGER)
    assert coordination.zookeeper.tree.exists(PATH)
    await locks.settle()
    assert coordination.zookeeper.tree.exists(PATH) is None
