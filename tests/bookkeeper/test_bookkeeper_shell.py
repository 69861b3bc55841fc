"""``bookkeeper shell`` works on a cluster of our bookies as on one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest
from tests.bookkeeper.clusters import Cluster, running_cluster
from tests.bookkeeper.java_bookkeeper import JavaBookKeeper
from tests.bookkeeper.words import words_of


@pytest.fixture(scope="module")
def cluster(
    java: JavaBookKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Cluster, None, None]:
    """Three bookies of ours."""
    with running_cluster(tmp_path_factory.mktemp("shell"), java, ours=3, javas=0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ledger(java: JavaBookKeeper, cluster: Cluster) -> str:
    """The id of a closed ledger of twenty entries."""
    return words_of(java.run_program(cluster.zookeeper, "v3", "write", "20", "30"))["ledger"]


def test_simpletest_writes_and_reads(java: JavaBookKeeper, cluster: Cluster) -> None:
    sizes = ("-ensemble", "3", "-writeQuorum", "2", "-ackQuorum", "2", "-numEntries", "50")
    assert "50 entries written to ledger" in java.run_shell(cluster.zookeeper, "simpletest", *sizes)


def test_listbookies_lists_them(java: JavaBookKeeper, cluster: Cluster) -> None:
    output = java.run_shell(cluster.zookeeper, "listbookies", "-rw", "-h")
    for bookie_id in asyncio.run(cluster.bookies()):
        assert bookie_id in output
    assert "No bookie exists!" in java.run_shell(cluster.zookeeper, "listbookies", "-ro", "-h")


def test_ledgermetadata_shows_a_ledger(java: JavaBookKeeper, cluster: Cluster, ledger: str) -> None:
    output = java.run_shell(cluster.zookeeper, "ledgermetadata", "-ledgerid", ledger)
    assert "state=CLOSED, length=600, lastEntryId=19" in output
    assert "digestType=CRC32C" in output


def test_listledgers_lists_it_with_and_without_its_bookie(
    java: JavaBookKeeper, cluster: Cluster, ledger: str
) -> None:
    bookies = asyncio.run(cluster.bookies())
    everywhere = java.run_shell(cluster.zookeeper, "listledgers", "-meta")
    assert f"ledgerID: {ledger}" in everywhere
    on_one = java.run_shell(cluster.zookeeper, "listledgers", "-bookieid", bookies[0])
    assert f"ledgerID: {ledger}" in on_one


def test_readledger_reads_entries(java: JavaBookKeeper, cluster: Cluster, ledger: str) -> None:
    span = ("-firstentryid", "0", "-lastentryid", "19")
    output = java.run_shell(cluster.zookeeper, "readledger", "-ledgerid", ledger, "-msg", *span)
    assert all(f"entry {entry_id} entry {entry_id} " in output for entry_id in range(20))


def test_listunderreplicated_finds_nothing(java: JavaBookKeeper, cluster: Cluster) -> None:
    output = java.run_shell(cluster.zookeeper, "listunderreplicated")
    assert "Under replicated ledger count: 0" in output


def test_bookiesanity_writes_to_one_bookie_and_reads_from_it(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    bookie_id = asyncio.run(cluster.bookies())[0]
    output = java.run_shell(cluster.zookeeper, "bookiesanity", bookie_id=bookie_id)
    assert "Bookie sanity test succeeded" in output


def test_whatisinstanceid_and_bookieinfo_tell_of_the_cluster(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    assert "InstanceId: " in java.run_shell(cluster.zookeeper, "whatisinstanceid")
    output = java.run_shell(cluster.zookeeper, "bookieinfo")
    for bookie_id in asyncio.run(cluster.bookies()):
        assert bookie_id in output
