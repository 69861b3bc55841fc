"""A ledger is repaired by fragments; its metadata changes only when the copies are there."""

from __future__ import annotations

import pytest
from tests.unit.geminga_autorecovery.cluster import Cluster, metadata_of

from geminga_autorecovery.replication.repair import RepairOptions, RepairResult
from geminga_ledger.errors import LedgerError, UnsupportedLedger
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState, ledger_path

CLOSED = metadata_of((3, 3, 2), [(0, (0, 1, 2)), (10, (0, 1, 3))], last_entry=14)
UNCLOSED = metadata_of((3, 3, 2), [(0, (0, 1, 2)), (10, (0, 1, 3))])


async def test_a_whole_ledger_is_left_as_it_is() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, CLOSED)
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.WHOLE
    assert cluster.metadata(7) == CLOSED
    assert all(bookie.count(Operation.ADD) == 0 for bookie in cluster.bookies)


async def test_a_deleted_ledger_needs_nothing() -> None:
    async with Cluster(1).repair() as repair:
        assert await repair.repair(7) is RepairResult.WHOLE
        await repair.take_over(7)


async def test_a_lost_bookie_is_replaced_in_each_fragment() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, CLOSED)
    cluster.lose(1)
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.WHOLE
    first, last = (each.ensemble for each in cluster.metadata(7).fragments)
    assert (first[0], first[2]) == ("b0", "b2")
    assert first[1] in ("b3", "b4")
    assert last == ("b0", last[1], "b3")
    assert last[1] in ("b2", "b4")
    for ensemble, entry_ids in ((first, range(10)), (last, range(10, 15))):
        for bookie_id in ensemble:
            assert set(entry_ids) <= set(cluster.bookie(bookie_id).stored(7))


async def test_where_there_is_no_other_a_bookie_gets_back_what_it_lost() -> None:
    cluster = Cluster(3)
    metadata = metadata_of((3, 3, 2), [(0, (0, 1, 2))], last_entry=9)
    cluster.put_ledger(7, metadata)
    del cluster.bookies[2].entries[7]
    async with cluster.repair() as repair:
        terms = RepairOptions(is_replacing_preferred=True)
        assert await repair.repair(7, terms) is RepairResult.WHOLE
    assert cluster.bookies[2].stored(7) == list(range(10))
    assert cluster.metadata(7) == metadata


async def test_without_a_successor_the_ledger_stays_faulty() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, CLOSED)
    cluster.lose(1)
    cluster.lose(2)
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.FAULTY
    # What could be done was done: b3 took one of the two places in the first fragment.
    assert "b3" in cluster.metadata(7).fragments[0].ensemble


async def test_metadata_stays_when_the_copies_could_not_be_made() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, CLOSED)
    cluster.lose(1)
    for number in (2, 3, 4):
        cluster.bookies[number].refusals[Operation.ADD] = ReturnCode.EIO
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.FAULTY
    assert cluster.metadata(7) == CLOSED


async def test_an_entry_that_is_lost_keeps_the_fragment_and_is_counted() -> None:
    cluster = Cluster(5)
    metadata = metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=4)
    cluster.put_ledger(7, metadata, without=[(0, 2)])
    cluster.lose(1)
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.FAULTY
        assert repair.counters.entries_unreadable == 1
    assert cluster.metadata(7) == metadata


async def test_the_open_last_fragment_is_left_and_told() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, UNCLOSED, last_stored=14)
    cluster.lose(1)
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.UNCLOSED
    fragments = cluster.metadata(7).fragments
    assert "b1" not in fragments[0].ensemble
    assert fragments[1] == UNCLOSED.fragments[1]
    assert not any(bookie.fenced for bookie in cluster.bookies)


async def test_a_ledger_taken_over_can_be_repaired() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, UNCLOSED, last_stored=14)
    cluster.lose(1)
    async with cluster.repair() as repair:
        await repair.take_over(7)
        assert await repair.repair(7) is RepairResult.WHOLE
    closed = cluster.metadata(7)
    assert (closed.state, closed.last_entry) == (LedgerState.CLOSED, 14)


async def test_a_ledger_with_all_its_bookies_is_not_taken_over() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, UNCLOSED, last_stored=14)
    cluster.lose(2)  # in the first fragment only
    async with cluster.repair() as repair:
        await repair.take_over(7)
    assert cluster.metadata(7).state is LedgerState.OPEN


async def test_a_writer_is_not_stopped_where_no_bookie_could_replace_the_lost_one() -> None:
    cluster = Cluster(3)
    metadata = metadata_of((3, 3, 2), [(0, (0, 1, 2))])
    cluster.put_ledger(7, metadata, last_stored=14)
    cluster.lose(1)
    async with cluster.repair() as repair:
        await repair.take_over(7)
    assert cluster.metadata(7).state is LedgerState.OPEN
    assert not any(bookie.fenced for bookie in cluster.bookies)


async def test_a_bookie_that_counts_as_lost_is_replaced_though_it_runs() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, CLOSED)
    async with cluster.repair() as repair:
        assert await repair.repair(7, RepairOptions(lost=frozenset({"b0"}))) is RepairResult.WHOLE
    assert all("b0" not in each.ensemble for each in cluster.metadata(7).fragments)


async def test_a_change_of_the_metadata_by_another_process_is_not_overwritten() -> None:
    cluster = Cluster(5)
    metadata = metadata_of((3, 3, 2), [(0, (0, 1, 2))], last_entry=9)
    cluster.put_ledger(7, metadata)
    cluster.lose(1)
    theirs = metadata_of((3, 3, 2), [(0, (0, 3, 2))], last_entry=9)

    def interfere(method: str, path: str) -> None:
        if (method, path) == ("set", ledger_path(7)):
            cluster.coordination.before = None
            cluster.put_ledger(7, theirs)

    cluster.coordination.before = interfere
    async with cluster.repair() as repair:
        assert await repair.repair(7) is RepairResult.WHOLE
    assert cluster.metadata(7) == theirs


async def test_metadata_that_says_nothing_is_an_error() -> None:
    cluster = Cluster(1)
    cluster.coordination.zookeeper.put(ledger_path(7), b"nothing")
    async with cluster.repair() as repair:
        with pytest.raises(UnsupportedLedger):
            await repair.repair(7)
        with pytest.raises(LedgerError):
            await repair.take_over(7)
