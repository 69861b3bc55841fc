"""A marked ledger is worked on by one worker at a time, and no lock outlives its holder's wish."""

from __future__ import annotations

from random import Random

import pytest

from geminga_autorecovery.zookeeper.claims import Claim, Claims
from geminga_autorecovery.zookeeper.underreplication_marks import (
    UnderreplicationMarks,
    prepare_underreplication,
)
from geminga_protocol.records.ledgers.underreplication import (
    LOCKS_PATH,
    MARKS_PATH,
    decode_lock,
    lock_path,
    mark_path,
)
from geminga_runtime.coordination import ConnectionLost
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.interception import InstantSession


async def make(*marked: int) -> tuple[InstantSession, Claims, Claims]:
    """Marked ledgers, and two workers."""
    coordination = InstantSession()
    await prepare_underreplication(coordination)
    for ledger_id in marked:
        await UnderreplicationMarks(coordination, SimulatedClock()).mark(ledger_id, ["b1"])
    one, other = (Claims(coordination, Random(seed), holder=f"w{seed}") for seed in (1, 2))
    return coordination, one, other


async def test_without_marks_there_is_nothing_to_take() -> None:
    _, claims, _ = await make()
    assert await claims.take() is None
    assert await Claims(InstantSession(), Random(1), holder="w").take() is None


async def test_each_ledger_is_taken_once() -> None:
    coordination, one, other = await make(1, 70_000, 1 << 40)
    taken = [await one.take(), await other.take(), await one.take()]
    assert {each.ledger_id for each in taken if each} == {1, 70_000, 1 << 40}
    assert await one.take() is None
    assert await other.take() is None
    value, stat = coordination.zookeeper.tree.get(lock_path(70_000))
    assert stat.ephemeral_owner == coordination.session_id
    assert decode_lock(value) in ("w1", "w2")


async def test_what_is_given_back_can_be_taken_by_another() -> None:
    _, one, other = await make(1)
    claim = await one.take()
    assert claim is not None
    assert await other.take() is None
    await one.give_back(claim)
    assert await other.take() == claim
    await one.give_back(claim)  # again, and too late
    assert await one.take() is None


async def test_a_claim_that_is_done_leaves_no_mark_and_no_lock() -> None:
    coordination, one, _ = await make(1)
    claim = await one.take()
    assert claim is not None
    await one.done(claim)
    assert coordination.zookeeper.tree.children(MARKS_PATH) == []
    assert coordination.zookeeper.tree.children(LOCKS_PATH) == []


async def test_the_mark_beside_it_stays() -> None:
    coordination, one, _ = await make(1, 2)
    claim = await one.take_ledger(1)
    assert claim is not None
    await one.done(claim)
    assert await UnderreplicationMarks(coordination, SimulatedClock()).ledgers() == [2]


@pytest.mark.parametrize("lost", ["b1", "b2"])
async def test_a_mark_renewed_meanwhile_stays_whatever_it_says(lost: str) -> None:
    """A bookie that came back may be lost again just when its ledgers were found whole."""
    coordination, one, _ = await make(1)
    claim = await one.take()
    assert claim is not None
    await UnderreplicationMarks(coordination, SimulatedClock()).mark(1, [lost])
    await one.done(claim)
    assert await UnderreplicationMarks(coordination, SimulatedClock()).ledgers() == [1]
    assert await one.take() == Claim(1, 1)


async def test_a_claim_is_lost_with_its_lock() -> None:
    coordination, one, other = await make(1)
    claim = await one.take()
    assert claim is not None
    assert await one.holds(claim)
    assert not await other.holds(claim)
    coordination.zookeeper.remove(lock_path(1))
    assert not await one.holds(claim)
    assert await other.take() == claim
    assert not await one.holds(claim)
    await one.give_back(claim)
    assert await other.holds(claim)


async def test_a_ledger_that_is_not_marked_can_be_claimed_by_name() -> None:
    coordination, one, other = await make()
    claim = await one.take_ledger(5)
    assert claim is not None
    assert await other.take_ledger(5) is None
    await one.done(claim)
    assert coordination.zookeeper.tree.children(LOCKS_PATH) == []


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_lock_whose_making_got_no_answer_is_settled(is_done: bool) -> None:  # noqa: FBT001
    coordination, one, _ = await make(1)
    coordination.lose("create", lock_path(1), is_done=is_done)
    with pytest.raises(ConnectionLost):
        await one.take()
    assert await one.take() == Claim(1, 0)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_lock_whose_deletion_got_no_answer_is_settled(
    is_done: bool,  # noqa: FBT001
) -> None:
    coordination, one, other = await make(1)
    claim = await one.take()
    assert claim is not None
    coordination.lose("delete", lock_path(1), is_done=is_done)
    with pytest.raises(ConnectionLost):
        await one.give_back(claim)
    assert await one.take() == claim
    await one.give_back(claim)
    assert await other.take() == claim


async def test_a_mark_whose_deletion_failed_does_not_keep_the_lock() -> None:
    coordination, one, _ = await make(1)
    claim = await one.take()
    assert claim is not None
    coordination.lose("delete", mark_path(1), is_done=False)
    with pytest.raises(ConnectionLost):
        await one.done(claim)
    assert coordination.zookeeper.tree.children(LOCKS_PATH) == []


async def test_a_lock_of_the_same_session_that_is_not_ours_stays() -> None:
    coordination, one, _ = await make(1)
    coordination.lose("create", lock_path(1), is_done=False)
    with pytest.raises(ConnectionLost):
        await one.take()
    await coordination.create(lock_path(1), b"the garbage collector's", ephemeral=True)
    assert await one.take() is None
    assert coordination.zookeeper.tree.children(LOCKS_PATH) == ["urL0000000001"]


async def test_a_new_mark_ends_the_wait() -> None:
    coordination, one, _ = await make()
    assert await one.take() is None
    await UnderreplicationMarks(coordination, SimulatedClock()).mark(3, ["b1"])
    await one.watches.wait(1e9)
    assert await one.take() == Claim(3, 0)


async def test_strange_nodes_are_passed_over() -> None:
    coordination, one, _ = await make(3)
    coordination.zookeeper.put(f"{MARKS_PATH}/0000/0000/0000/0004/who", b"")
    coordination.zookeeper.put(f"{MARKS_PATH}/stray", b"")
    claim = await one.take()
    assert claim == Claim(3, 0)
    assert await one.take() is None
