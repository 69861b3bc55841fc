"""A lock is ours or another's, is given back once, and is none any more when its session ends."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.fakes import MemoryCoordination

from geminga_autorecovery.ledger_locks import LedgerLocks
from geminga_protocol.records.underreplication import encode_lock, lock_path
from geminga_runtime.coordination import ConnectionLost, NodeStat

CONTENT = b""
LEDGER = 5
PATH = lock_path(LEDGER)


def make(session_id: int = 7) -> tuple[MemoryCoordination, LedgerLocks]:
    coordination = MemoryCoordination(session_id)
    return coordination, LedgerLocks(coordination, CONTENT, answer_timeout_s=10.0)


async def test_a_ledger_is_locked_by_one_at_a_time() -> None:
    coordination, locks = make()
    other = LedgerLocks(coordination.another_session(8), CONTENT, answer_timeout_s=10.0)
    assert await locks.take(LEDGER)
    assert coordination.nodes[PATH][1].ephemeral_owner == 7
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
    coordination.renew_session(9)
    assert not await locks.holds(LEDGER)
    coordination.nodes[PATH] = b"", NodeStat(0, 1, 1, 77)
    assert not await locks.holds(LEDGER)
    await locks.release(LEDGER)
    assert PATH in coordination.nodes


async def test_the_lock_of_a_copier_in_the_same_process_is_left_alone() -> None:
    coordination, locks = make()
    await coordination.create(PATH, encode_lock("bookie-1"), ephemeral=True, make_parents=True)
    assert not await locks.take(LEDGER)
    assert not await locks.holds(LEDGER)
    await locks.release(LEDGER)
    assert PATH in coordination.nodes


async def test_what_could_not_be_given_back_is_later() -> None:
    coordination, locks = make()
    await locks.take(LEDGER)
    coordination.failures = [ConnectionLost(PATH)]
    with pytest.raises(ConnectionLost):
        await locks.release(LEDGER)
    assert PATH in coordination.nodes
    await locks.settle()
    assert PATH not in coordination.nodes
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
    assert PATH in coordination.nodes
    await locks.settle()
    assert PATH not in coordination.nodes
