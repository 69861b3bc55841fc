"""BookKeeper's Java client creates, writes, reads, recovers and deletes ledgers on our bookies."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.bookkeeper.clusters import Cluster, running_cluster
from tests.bookkeeper.java_bookkeeper import JavaBookKeeper
from tests.bookkeeper.words import words_of

V2_AND_V3 = pytest.mark.parametrize("version", ["v2", "v3"])


@pytest.fixture(scope="module")
def cluster(
    java: JavaBookKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Cluster, None, None]:
    """Three bookies of ours."""
    with running_cluster(tmp_path_factory.mktemp("ours"), java, ours=3, javas=0) as cluster:
        yield cluster


@V2_AND_V3
@pytest.mark.parametrize("entry_bytes", [0, 100, 1_000_000])
def test_what_it_writes_it_reads(
    java: JavaBookKeeper, cluster: Cluster, version: str, entry_bytes: int
) -> None:
    written = words_of(
        java.run_program(cluster.zookeeper, version, "write", "50", f"{entry_bytes}")
    )
    read = words_of(java.run_program(cluster.zookeeper, version, "read", written["ledger"]))
    assert read == {"last": "49", "length": str(50 * entry_bytes), "right": "50"}


@V2_AND_V3
def test_it_recovers_a_ledger_and_its_writer_is_fenced(
    java: JavaBookKeeper, cluster: Cluster, version: str
) -> None:
    words = words_of(java.run_program(cluster.zookeeper, version, "recover", "50"))
    assert words == {"last": "49", "right": "50", "writer": "fenced"}


@V2_AND_V3
def test_it_deletes_a_ledger(java: JavaBookKeeper, cluster: Cluster, version: str) -> None:
    words = words_of(java.run_program(cluster.zookeeper, version, "delete", "5"))
    assert words == {"ledger": "gone"}


def test_its_reader_waits_at_the_bookies_for_what_is_confirmed_next(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    words = words_of(java.run_program(cluster.zookeeper, "v3", "tail", "30"))
    assert words == {"right": "29"}


def test_its_writer_tells_what_is_confirmed_without_an_entry(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    words = words_of(java.run_program(cluster.zookeeper, "v3", "explicit-lac"))
    assert words == {"confirmed": "2"}


def test_its_writer_confirms_by_force(java: JavaBookKeeper, cluster: Cluster) -> None:
    words = words_of(java.run_program(cluster.zookeeper, "v3", "deferred-sync", "20"))
    assert words == {"before": "-1", "after": "19"}


def test_it_reads_several_entries_with_one_request(java: JavaBookKeeper, cluster: Cluster) -> None:
    written = words_of(java.run_program(cluster.zookeeper, "v2", "write", "50", "100"))
    words = words_of(
        java.run_program(cluster.zookeeper, "v2", "batch-read", written["ledger"], "50")
    )
    assert int(words["right"]) > 0


def test_its_auditor_is_told_which_entries_a_bookie_has(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    written = words_of(java.run_program(cluster.zookeeper, "v3", "write", "50", "100"))
    words = words_of(java.run_program(cluster.zookeeper, "v3", "list-entries", written["ledger"]))
    assert words == {"copies": "100", "misplaced": "0"}


async def test_a_java_client_can_ask_how_much_room_there_is(
    java: JavaBookKeeper, cluster: Cluster
) -> None:
    words = words_of(java.run_program(cluster.zookeeper, "v3", "disk-space"))
    assert words == dict.fromkeys(await cluster.bookies(), "sane")
