"""The daemon does all of it: elected, it marks; its worker repairs."""

from __future__ import annotations

from random import Random

from tests.unit.geminga_autorecovery.cluster import Cluster, metadata_of
from tests.unit.geminga_ledger.world import until

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.ledgers.underreplication import LEADER_PATH, VOTES_PATH


def daemon_of(cluster: Cluster) -> AutoRecovery:
    return AutoRecovery(
        "b0",
        coordination=cluster.coordination,
        network=cluster.network,
        clock=cluster.clock,
        random=Random(1),
    )


async def test_what_a_lost_bookie_had_is_copied() -> None:
    cluster = Cluster(3)
    for number in range(3):
        cluster.coordination.zookeeper.put(cookie_path(f"b{number}"), b"a cookie")
    cluster.put_ledger(1, metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=9))
    async with daemon_of(cluster) as daemon:
        await until(lambda: daemon.election.is_auditor)
        cluster.lose(1)
        await until(lambda: daemon.worker_counters.ledgers_replicated)
        assert cluster.metadata(1).fragments[0].ensemble == ("b0", "b2")
        assert cluster.bookies[2].stored(1) == list(range(10))
        assert daemon.auditor_counters.ledgers_marked >= 1
        assert daemon.election.attempts == 1


async def test_it_leaves_no_vote_behind() -> None:
    cluster = Cluster(1)
    async with daemon_of(cluster) as daemon:
        await until(lambda: daemon.election.is_auditor)
    assert cluster.coordination.zookeeper.tree.children(VOTES_PATH) == []
    assert cluster.coordination.zookeeper.tree.exists(LEADER_PATH) is None
