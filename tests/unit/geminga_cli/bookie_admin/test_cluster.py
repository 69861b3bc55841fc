"""A cluster is found by the words given, or by what a running standalone says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import options_of, run

from geminga_cli.bookie_admin.cluster import Cluster, require_cluster, zookeeper_of
from geminga_cli.bookie_admin.errors import NoCluster, NotInitialized
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH


def endpoints(directory: Path, content: object) -> str:
    (directory / "endpoints.json").write_text(json.dumps(content))
    return str(directory)


def test_what_is_given_goes_before_all() -> None:
    assert zookeeper_of(options_of("list-bookies", "--zookeeper", "zk1:2181/a")) == "zk1:2181/a"


def test_a_standalone_says_where_its_zookeeper_is(tmp_path: Path) -> None:
    data = endpoints(tmp_path, {"version": 1, "zookeeper": {"address": "127.0.0.1:4711"}})
    assert zookeeper_of(options_of("list-bookies", "--data-dir", data)) == "127.0.0.1:4711"


def test_a_zookeeper_without_a_cluster_is_not_an_empty_cluster() -> None:
    async def scenario(_simulated: Simulated, cluster: Cluster) -> None:
        await require_cluster(cluster.coordination, "zk1:2181/a")
        await cluster.coordination.delete(INSTANCE_ID_PATH)
        with pytest.raises(NotInitialized, match="no cluster is at zk1:2181/a: "):
            await require_cluster(cluster.coordination, "zk1:2181/a")

    run(scenario)


@pytest.mark.parametrize("content", [[], {}, {"zookeeper": 1}, {"zookeeper": {"address": 7}}])
def test_one_that_does_not_say_is_refused(tmp_path: Path, content: object) -> None:
    data = endpoints(tmp_path, content)
    with pytest.raises(NoCluster, match="--zookeeper HOST:PORT"):
        zookeeper_of(options_of("list-bookies", "--data-dir", data))
