"""Marked ledgers become whole one after the other; what cannot be is put off, longer each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from tests.unit.geminga_autorecovery.cluster import CONFIG, Cluster, metadata_of
from tests.unit.geminga_ledger.world import until

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.decisions.findings import FaultyFragment
from geminga_autorecovery.replication.repair import USUAL_OPTIONS, LedgerRepair, RepairOptions
from geminga_autorecovery.replication.worker import ReplicationWorker
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState
from geminga_protocol.records.ledgers.underreplication import LOCKS_PATH, lock_path, mark_path

CLOSED = metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=9)
UNCLOSED = metadata_of((2, 2, 2), [(0, (0, 1))])


@asynccontextmanager
async def working(
    cluster: Cluster, config: AutoRecoveryConfig = CONFIG
) -> AsyncGenerator[ReplicationWorker]:
    async with (
        cluster.repair(config) as repair,
        ReplicationWorker(cluster.coordination, Random(1), repair, config, holder="w") as worker,
    ):
        yield worker


def is_marked(cluster: Cluster, ledger_id: int) -> bool:
    return cluster.coordination.zookeeper.tree.exists(mark_path(ledger_id)) is not None


async def mark(cluster: Cluster, *ledger_ids: int) -> None:
    for ledger_id in ledger_ids:
        await UnderreplicationMarks(cluster.coordination, cluster.clock).mark(ledger_id, ["b1"])


async def test_marked_ledgers_are_repaired_and_their_marks_go() -> None:
    cluster = Cluster(3)
    for ledger_id in (1, 2, 3):
        cluster.put_ledger(ledger_id, CLOSED)
    cluster.lose(1)
    async with working(cluster):
        await mark(cluster, 1, 2, 3, 99)  # the last was deleted
        await until(lambda: not any(is_marked(cluster, each) for each in (1, 2, 3, 99)))
    for ledger_id in (1, 2, 3):
        assert cluster.metadata(ledger_id).fragments[0].ensemble == ("b0", "b2")
    assert cluster.coordination.zookeeper.tree.children(LOCKS_PATH) == []


async def test_a_ledger_that_cannot_be_repaired_stays_locked_for_longer_and_longer() -> None:
    cluster = Cluster(2)
    cluster.put_ledger(1, CLOSED)
    cluster.lose(1)
    await mark(cluster, 1)
    taken_s: list[float] = []
    loop = asyncio.get_running_loop()

    def note(method: str, path: str) -> None:
        if (method, path) == ("create", lock_path(1)):
            taken_s.append(loop.time())

    cluster.coordination.before = note
    async with working(cluster):
        await asyncio.sleep(700)
    waits_s = [later - sooner for sooner, later in pairwise(taken_s)]
    assert waits_s[:5] == [pytest.approx(300 / (1 << each), abs=1.5) for each in (5, 4, 3, 2, 1)]
    assert is_marked(cluster, 1)


async def test_a_ledger_that_was_put_off_is_repaired_when_it_can_be() -> None:
    cluster = Cluster(2)
    cluster.put_ledger(1, CLOSED)
    cluster.lose(1)
    await mark(cluster, 1)
    async with working(cluster):
        await asyncio.sleep(5)
        assert is_marked(cluster, 1)
        cluster.add_bookies(1)
        await until(lambda: not is_marked(cluster, 1))
    assert cluster.metadata(1).fragments[0].ensemble == ("b0", "b2")


async def test_an_unclosed_ledger_is_taken_over_after_its_grace() -> None:
    cluster = Cluster(4)
    metadata = metadata_of((3, 3, 2), [(0, (0, 1, 2))])
    cluster.put_ledger(1, metadata, last_stored=9)
    cluster.lose(1)
    await mark(cluster, 1)
    async with working(cluster):
        await asyncio.sleep(CONFIG.open_ledger_rereplication_grace_s - 2)
        assert cluster.metadata(1).state is LedgerState.OPEN
        await until(lambda: not is_marked(cluster, 1))
    closed = cluster.metadata(1)
    assert (closed.state, closed.last_entry) == (LedgerState.CLOSED, 9)
    assert closed.fragments[0].ensemble == ("b0", "b3", "b2")


async def test_a_writer_that_replaced_the_bookie_within_the_grace_goes_on() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(1, UNCLOSED)
    cluster.lose(1)
    await mark(cluster, 1)
    async with working(cluster):
        await asyncio.sleep(5)
        cluster.put_metadata(1, metadata_of((2, 2, 2), [(0, (0, 2))]))
        await until(lambda: not is_marked(cluster, 1))
    assert cluster.metadata(1).state is LedgerState.OPEN


async def test_a_worker_that_loses_the_lock_while_it_copies_leaves_the_metadata() -> None:
    """A collector may have deleted the copies already."""
    cluster = Cluster(3)
    cluster.put_ledger(1, CLOSED)
    cluster.lose(1)

    def lose_lock(method: str, path: str) -> None:
        if (method, path) == ("get", lock_path(1)):
            cluster.coordination.before = None
            assert cluster.bookies[2].entries[1]
            cluster.coordination.zookeeper.remove(path)

    async with working(cluster):
        cluster.coordination.before = lose_lock
        await mark(cluster, 1)
        await until(lambda: cluster.coordination.before is None)
        await asyncio.sleep(CONFIG.retry_s / 2)
        assert cluster.metadata(1) == CLOSED
        await until(lambda: not is_marked(cluster, 1))
    assert cluster.metadata(1).fragments[0].ensemble == ("b0", "b2")


async def test_nothing_is_done_while_auto_recovery_is_off() -> None:
    cluster = Cluster(3)
    cluster.put_ledger(1, CLOSED)
    cluster.lose(1)
    await controls.disable(cluster.coordination)
    await mark(cluster, 1)
    async with working(cluster):
        await asyncio.sleep(1000)
        assert is_marked(cluster, 1)
        await controls.enable(cluster.coordination)
        await until(lambda: not is_marked(cluster, 1))


async def test_a_worker_keeps_no_more_locks_than_it_may() -> None:
    cluster = Cluster(2)
    for ledger_id in range(5):
        cluster.put_ledger(ledger_id, CLOSED)
    cluster.lose(1)
    await mark(cluster, *range(5))
    async with working(cluster, replace(CONFIG, ledgers_deferred_max=2)):
        await asyncio.sleep(5)
        assert len(cluster.coordination.zookeeper.tree.children(LOCKS_PATH)) == 2


async def test_a_lost_connection_is_survived() -> None:
    cluster = Cluster(3)
    cluster.put_ledger(1, CLOSED)
    cluster.lose(1)
    async with working(cluster):
        await asyncio.sleep(1)
        cluster.coordination.lose("children", "/ledgers/available", is_done=False)
        cluster.coordination.lose("delete", mark_path(1), is_done=False)
        await mark(cluster, 1)
        await asyncio.sleep(1)
        await until(lambda: not is_marked(cluster, 1))


async def test_an_unforeseen_error_puts_its_ledger_off_and_others_are_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(3)
    for ledger_id in (1, 2):
        cluster.put_ledger(ledger_id, CLOSED)
    cluster.lose(1)
    async with working(cluster) as worker:
        check = LedgerRepair.check

        async def fail(
            repair: LedgerRepair, ledger_id: int, terms: RepairOptions = USUAL_OPTIONS
        ) -> list[FaultyFragment]:
            if ledger_id == 1:
                raise ValueError("a bug")
            return await check(repair, ledger_id, terms)

        with monkeypatch.context() as patch:
            patch.setattr(LedgerRepair, "check", fail)
            await mark(cluster, 1, 2)
            await until(lambda: not is_marked(cluster, 2))
            await until(lambda: cluster.coordination.zookeeper.tree.exists(lock_path(1)))
            await until(lambda: worker.faults)
        await until(lambda: not is_marked(cluster, 1))
        assert worker.faults == 1


async def test_a_worker_that_ends_gives_its_locks_back() -> None:
    cluster = Cluster(2)
    cluster.put_ledger(1, CLOSED)
    cluster.lose(1)
    await mark(cluster, 1)
    async with working(cluster):
        await asyncio.sleep(5)
        assert cluster.coordination.zookeeper.tree.children(LOCKS_PATH) == ["urL0000000001"]
    assert cluster.coordination.zookeeper.tree.children(LOCKS_PATH) == []


async def test_what_a_marked_bookie_lacks_in_the_middle_it_is_given_back() -> None:
    cluster = Cluster(2)
    cluster.put_ledger(1, CLOSED, without=[(1, 4)])
    async with working(cluster):
        await mark(cluster, 1)
        await until(lambda: not is_marked(cluster, 1))
    assert 4 in cluster.bookies[1].entries[1]
    assert cluster.metadata(1).fragments[0].ensemble == ("b0", "b1")
