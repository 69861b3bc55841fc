"""A check says of every bookie of every fragment whether it has what it should."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

from tests.unit.geminga_autorecovery.cluster import LEDGER_OPTIONS, Cluster, metadata_of

from geminga_autorecovery.decisions.findings import Finding
from geminga_autorecovery.replication.checker import LedgerChecker
from geminga_autorecovery.replication.copies import Copies
from geminga_autorecovery.replication.entry_lists import EntryLists
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import Operation
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata

METADATA = metadata_of((3, 2, 2), [(0, (0, 1, 2)), (10, (0, 1, 3))], last_entry=19)
ALL = frozenset({"b0", "b1", "b2", "b3"})

Found = dict[int, dict[int, Finding]]


@asynccontextmanager
async def checker_of(cluster: Cluster, percentage: int = 0) -> AsyncGenerator[LedgerChecker]:
    registry, links = cluster.links()
    async with registry, links:
        timeout_s = LEDGER_OPTIONS.answer_timeout_s
        copies = Copies(links, answer_timeout_s=timeout_s)
        lists = EntryLists(links, answer_timeout_s=timeout_s)
        yield LedgerChecker(copies, lists, Random(1), percentage=percentage)


async def check(
    cluster: Cluster,
    metadata: LedgerMetadata = METADATA,
    registered: frozenset[str] = ALL,
    percentage: int = 0,
    suspects: frozenset[str] = frozenset(),
) -> Found:
    """The findings by the first entry of their fragment."""
    async with checker_of(cluster, percentage) as checker:
        stored = StoredMetadata(7, metadata, 0)
        faults = await checker.check(stored, registered, suspects=suspects)
    return {fault.fragment.first_entry: dict(fault.findings) for fault in faults}


async def test_a_whole_ledger_is_well_and_only_its_ends_are_read() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA)
    assert await check(cluster) == {}
    assert sum(bookie.count(Operation.READ) for bookie in cluster.bookies) == 2 * 3 * 2


async def test_a_lost_bookie_is_told_in_all_its_fragments_and_not_asked() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA)
    found = await check(cluster, registered=ALL - {"b1"})
    assert found == {0: {1: Finding.GONE}, 10: {1: Finding.GONE}}
    assert cluster.bookies[1].count(Operation.READ) == 0


async def test_a_bookie_without_the_last_entry_lacks_it() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA, without=[(3, 19)])
    assert await check(cluster) == {10: {2: Finding.LACKING}}


async def test_a_bookie_that_does_not_answer_is_silent() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA)
    cluster.bookies[2].is_silent = True
    assert await check(cluster) == {0: {2: Finding.SILENT}}


async def test_what_is_damaged_in_the_middle_is_found_when_all_is_read() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA)
    cluster.damage(0, 7, 3)
    assert await check(cluster) == {}
    assert await check(cluster, percentage=100) == {0: {0: Finding.LACKING}}


async def test_of_an_open_fragment_only_its_bookies_are_asked_for() -> None:
    unclosed = metadata_of((3, 2, 2), [(0, (0, 1, 2)), (10, (0, 1, 3))])
    cluster = Cluster(4)
    cluster.put_ledger(7, unclosed, last_stored=19, without=[(3, 19)])
    assert await check(cluster, unclosed) == {}
    assert await check(cluster, unclosed, ALL - {"b3"}) == {10: {2: Finding.GONE}}


async def test_an_empty_fragment_needs_its_bookies_all_the_same() -> None:
    empty = metadata_of((3, 2, 2), [(0, (0, 1, 2))], last_entry=-1)
    cluster = Cluster(4)
    assert await check(cluster, empty) == {}
    assert await check(cluster, empty, ALL - {"b0"}) == {0: {0: Finding.GONE}}


async def test_of_a_suspect_every_entry_is_asked_after() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA, without=[(1, 13)])
    assert await check(cluster) == {}
    assert await check(cluster, suspects=frozenset({"b0", "b9"})) == {}
    assert await check(cluster, suspects=frozenset({"b1"})) == {10: {1: Finding.LACKING}}
    assert cluster.bookies[1].v3.count(pb.GET_LIST_OF_ENTRIES_OF_LEDGER) == 1
    assert cluster.bookies[2].v3.count(pb.GET_LIST_OF_ENTRIES_OF_LEDGER) == 0
