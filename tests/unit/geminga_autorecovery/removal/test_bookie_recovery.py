"""A bookie is emptied at once, beside workers or without any, and what stays is told with why."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from tests.unit.geminga_autorecovery.cluster import CONFIG, Cluster, metadata_of

from geminga_autorecovery.removal.bookie_recovery import BUSY_WAIT_S, recover
from geminga_autorecovery.removal.decommission import Progress
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_autorecovery.zookeeper.claims import Claims
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState
from geminga_protocol.records.ledgers.underreplication import LOCKS_PATH
from geminga_runtime.coordination import Coordination

ON_B1 = metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=9)
UNCLOSED = metadata_of((2, 2, 2), [(0, (0, 1))])


@dataclass
class Heard:
    """What was told on the way."""

    progress: list[Progress] = field(default_factory=list[Progress])
    troubles: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def trouble(self, ledger_id: int, why: str) -> None:
        self.troubles.append((ledger_id, why))


def make_cluster() -> Cluster:
    """Ledgers 1 and 2 are on b1."""
    cluster = Cluster(3)
    cluster.coordination.zookeeper.put(cookie_path("b1"), b"a cookie")
    cluster.put_ledger(1, ON_B1)
    cluster.put_ledger(2, ON_B1)
    return cluster


async def run(cluster: Cluster, repair: LedgerRepair, heard: Heard) -> Progress:
    return await recover(
        "b1",
        coordination=cluster.coordination,
        repair=repair,
        clock=cluster.clock,
        random=Random(1),
        on_progress=heard.progress.append,
        on_trouble=heard.trouble,
    )


async def test_it_needs_no_workers_and_no_dead_bookie() -> None:
    cluster, heard = make_cluster(), Heard()
    cluster.put_ledger(4, UNCLOSED, last_stored=5)
    async with cluster.repair() as repair:
        told = await run(cluster, repair, heard)
    assert told == heard.progress[-1] == Progress(3, 3)
    assert not heard.troubles
    for ledger_id in (1, 2, 4):
        metadata = cluster.metadata(ledger_id)
        assert metadata.fragments[0].ensemble == ("b0", "b2")
        assert metadata.state is LedgerState.CLOSED
    assert cluster.metadata(4).last_entry == 5
    assert cluster.coordination.zookeeper.tree.children(LOCKS_PATH) == []
    assert cluster.coordination.zookeeper.tree.exists(cookie_path("b1"))


async def give_back_later(claims: Claims, delay_s: float) -> None:
    claim = await claims.take_ledger(1)
    assert claim is not None
    await asyncio.sleep(delay_s)
    await claims.give_back(claim)


def claims_of(coordination: Coordination) -> Claims:
    return Claims(coordination, Random(2), holder="w")


async def test_what_a_worker_is_busy_with_is_waited_for() -> None:
    cluster, heard = make_cluster(), Heard()
    async with cluster.repair() as repair, asyncio.TaskGroup() as tasks:
        tasks.create_task(give_back_later(claims_of(cluster.coordination), CONFIG.retry_s))
        await asyncio.sleep(0.1)
        told = await run(cluster, repair, heard)
    assert Progress(2, 1, busy=1) in heard.progress
    assert told == Progress(2, 2)
    assert not heard.troubles


async def test_what_a_worker_moves_meanwhile_is_done_though_it_holds_the_lock_still() -> None:
    cluster, heard = make_cluster(), Heard()
    cluster.put_ledger(4, UNCLOSED, last_stored=5)
    cluster.lose(1)
    claims = claims_of(cluster.coordination)
    async with (
        cluster.repair() as repair,
        cluster.repair() as workers,
        asyncio.TaskGroup() as tasks,
    ):
        assert await claims.take_ledger(4)
        running = tasks.create_task(run(cluster, repair, heard))
        await asyncio.sleep(CONFIG.open_ledger_rereplication_grace_s)
        assert not running.done()
        await workers.take_over(4)
        await workers.repair(4)
        assert await running == Progress(3, 3)
    assert not heard.troubles


async def test_what_a_worker_never_gives_back_is_named_with_the_worker() -> None:
    cluster, heard = make_cluster(), Heard()
    async with cluster.repair() as repair:
        assert await claims_of(cluster.coordination).take_ledger(1)
        began_s = cluster.clock.monotonic()
        told = await run(cluster, repair, heard)
        assert cluster.clock.monotonic() - began_s < 2 * BUSY_WAIT_S
    assert told == Progress(2, 1, 1)
    ((ledger_id, why),) = heard.troubles
    assert ledger_id == 1
    assert "a replication worker (w) has been on it for 120 s" in why


async def test_ledgers_that_no_bookie_can_take_stay_and_each_is_reported_with_its_reason() -> None:
    cluster, heard = make_cluster(), Heard()
    cluster.put_ledger(4, UNCLOSED, last_stored=5)
    cluster.lose(2)
    async with asyncio.timeout(600), cluster.repair() as repair:
        told = await run(cluster, repair, heard)
    assert told == Progress(3, 0, 3)
    assert [ledger_id for ledger_id, _ in heard.troubles] == [1, 2, 4]
    assert "nothing can take the place of b1" in heard.troubles[0][1]
    assert "open fragment that begins with entry 0, b1 is lost" in heard.troubles[2][1]
    assert cluster.metadata(1) == ON_B1
    assert cluster.coordination.zookeeper.tree.children(LOCKS_PATH) == []


async def test_other_faults_of_a_ledger_are_told_and_keep_none_on_the_bookie() -> None:
    cluster, heard = make_cluster(), Heard()
    cluster.put_ledger(4, metadata_of((2, 2, 2), [(0, (0, 1)), (5, (0, 2))], last_entry=9))
    for number in (0, 2):
        cluster.damage(number, 4, 5)
    async with cluster.repair() as repair:
        assert await run(cluster, repair, heard) == Progress(3, 3)
    ((ledger_id, why),) = heard.troubles
    assert ledger_id == 4
    assert why.startswith("it is off b1, but: ")
    assert "cannot be read from any bookie" in why
    assert "b0 lacks copies, b2 lacks copies" in why
    assert cluster.metadata(4).fragments[0].ensemble == ("b0", "b2")
