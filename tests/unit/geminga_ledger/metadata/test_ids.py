"""Ledger ids are ZooKeeper's numbers, in BookKeeper's two ways of counting."""

from __future__ import annotations

import pytest

from geminga_ledger.errors import LedgerIdsExhausted
from geminga_ledger.metadata.ids import COUNTER_END, LedgerIds
from geminga_runtime.coordination import ConnectionLost
from geminga_simulation.zookeeper.interception import InstantSession

IDS = "/ledgers/idgen"
LONG_IDS = "/ledgers/idgen-long"


async def test_ids_count_from_zero_and_leave_no_nodes() -> None:
    coordination = InstantSession()
    ids = LedgerIds(coordination)
    assert [await ids.next_id() for _ in range(3)] == [0, 1, 2]
    assert coordination.zookeeper.tree.children(IDS) == []


async def test_an_id_node_is_ephemeral() -> None:
    coordination = InstantSession()
    coordination.lose("delete", IDS, is_done=False)
    assert await LedgerIds(coordination).next_id() == 0
    _, stat = coordination.zookeeper.tree.get(f"{IDS}/ID-0000000000")
    assert stat.ephemeral_owner == coordination.session_id


async def test_a_lost_answer_wastes_a_number_and_no_more() -> None:
    coordination = InstantSession()
    ids = LedgerIds(coordination)
    coordination.lose("create", IDS, is_done=True)
    with pytest.raises(ConnectionLost):
        await ids.next_id()
    assert await ids.next_id() == 1


async def test_when_the_short_counter_ends_the_long_one_begins() -> None:
    coordination = InstantSession()
    ids = LedgerIds(coordination)
    coordination.zookeeper.put(IDS)
    coordination.zookeeper.tree.node(IDS).creations = COUNTER_END - 1
    assert await ids.next_id() == COUNTER_END - 1
    assert await ids.next_id() == 1 << 32
    assert await ids.next_id() == (1 << 32) + 1
    assert coordination.zookeeper.tree.children(LONG_IDS) == ["HOB-0000000001"]


async def test_a_cluster_that_counts_long_ids_goes_on_with_its_highest_directory() -> None:
    coordination = InstantSession()
    coordination.zookeeper.put(f"{LONG_IDS}/HOB-0000000002")
    coordination.zookeeper.put(f"{LONG_IDS}/HOB-0000000003")
    coordination.zookeeper.put(f"{LONG_IDS}/something else")
    coordination.zookeeper.tree.node(f"{LONG_IDS}/HOB-0000000003").creations = 5
    assert await LedgerIds(coordination).next_id() == (3 << 32) + 5


async def test_a_full_directory_is_followed_by_the_next_and_old_ones_go() -> None:
    coordination = InstantSession()
    for high in range(1, 6):
        coordination.zookeeper.put(f"{LONG_IDS}/HOB-{high:010d}")
    coordination.zookeeper.tree.node(f"{LONG_IDS}/HOB-0000000005").creations = COUNTER_END
    assert await LedgerIds(coordination).next_id() == 6 << 32
    assert coordination.zookeeper.tree.children(LONG_IDS) == [
        f"HOB-{high:010d}" for high in (3, 4, 5, 6)
    ]


async def test_at_the_very_end_there_are_no_more_ids() -> None:
    coordination = InstantSession()
    coordination.zookeeper.put(f"{LONG_IDS}/HOB-{COUNTER_END:010d}")
    with pytest.raises(LedgerIdsExhausted):
        await LedgerIds(coordination).next_id()
