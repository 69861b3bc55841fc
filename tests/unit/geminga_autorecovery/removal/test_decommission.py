"""A bookie is taken out of service when no ledger has it any more, and not before."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.geminga_autorecovery.cluster import CONFIG, Cluster, metadata_of

from geminga_autorecovery.errors import BookieStillThere, DecommissionStalled, RecoveryDisabled
from geminga_autorecovery.removal.decommission import Progress, decommission, ledgers_of
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_autorecovery.replication.worker import ReplicationWorker
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_protocol.records.bookies.cookies import cookie_path

ON_B1 = metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=9)
NOT_ON_B1 = metadata_of((2, 2, 2), [(0, (0, 2))], last_entry=9)


def make_cluster() -> Cluster:
    """Ledgers 1 and 2 are on b1, ledger 3 is not."""
    cluster = Cluster(3)
    cluster.coordination.zookeeper.put(cookie_path("b1"), b"a cookie")
    cluster.put_ledger(1, ON_B1)
    cluster.put_ledger(2, ON_B1)
    cluster.put_ledger(3, NOT_ON_B1)
    return cluster


async def run(cluster: Cluster, repair: LedgerRepair, seen: list[Progress]) -> Progress:
    return await decommission(
        "b1",
        coordination=cluster.coordination,
        store=repair.store,
        clock=cluster.clock,
        on_progress=seen.append,
    )


async def test_the_workers_take_the_ledgers_and_the_cookie_goes() -> None:
    cluster = make_cluster()
    cluster.lose(1)
    seen: list[Progress] = []
    async with (
        cluster.repair() as repair,
        ReplicationWorker(cluster.coordination, Random(1), repair, CONFIG, holder="w"),
    ):
        assert await run(cluster, repair, seen) == Progress(2, 2)
        assert await ledgers_of("b1", cluster.coordination, repair.store) == []
    assert seen[0].ledgers == 2
    assert seen[-1] == Progress(2, 2)
    assert cluster.coordination.zookeeper.tree.exists(cookie_path("b1")) is None


async def test_a_bookie_without_ledgers_or_cookie_is_forgotten_at_once() -> None:
    cluster = Cluster(1)
    async with cluster.repair() as repair:
        assert await run(cluster, repair, []) == Progress(0, 0)


async def test_a_running_bookie_is_not_decommissioned() -> None:
    cluster = make_cluster()
    async with cluster.repair() as repair:
        with pytest.raises(BookieStillThere, match="b1"):
            await run(cluster, repair, [])
    assert cluster.coordination.zookeeper.tree.exists(cookie_path("b1"))


async def test_where_auto_recovery_is_off_decommissioning_is_refused() -> None:
    cluster = make_cluster()
    cluster.lose(1)
    await controls.disable(cluster.coordination)
    async with cluster.repair() as repair:
        with pytest.raises(RecoveryDisabled):
            await run(cluster, repair, [])
    assert cluster.coordination.zookeeper.tree.exists(cookie_path("b1"))


async def test_without_workers_it_is_given_up_in_the_end() -> None:
    cluster = make_cluster()
    cluster.lose(1)
    seen: list[Progress] = []
    async with cluster.repair() as repair:
        with pytest.raises(DecommissionStalled, match="2 ledgers are still on bookie b1"):
            await run(cluster, repair, seen)
    assert set(seen) == {Progress(2, 0)}
    assert await UnderreplicationMarks(cluster.coordination, cluster.clock).ledgers() == [1, 2]
