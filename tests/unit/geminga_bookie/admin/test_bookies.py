"""The bookies of the cluster are listed with their room, in upstream's words."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_bookie.admin.bookies import readable
from geminga_protocol.records.ledgers.underreplication import VOTES_PATH, encode_vote


def test_bookies_are_listed_by_what_they_take() -> None:
    async def scenario(cluster: Cluster) -> None:
        path = "/api/v1/bookie/list_bookies"
        assert (await cluster.get(path)).json == {"b1": None, "b2": None}
        hosts = (await cluster.get(f"{path}?print_hostnames=true")).json
        assert hosts == {"b1": "b1", "b2": "b2"}
        assert (await cluster.get(f"{path}?type=ro")).json == {}
        assert (await cluster.ask("POST", path)).status == 404

    run(scenario)


def test_the_cluster_is_summed_up_in_upstreams_words() -> None:
    async def scenario(cluster: Cluster) -> None:
        path = "/api/v1/bookie/cluster_info"
        assert (await cluster.get(path)).json == {
            "auditorElected": False,
            "auditorId": "",
            "clusterUnderReplicated": False,
            "ledgerReplicationEnabled": True,
            "totalBookiesCount": 2,
            "writableBookiesCount": 2,
            "readonlyBookiesCount": 0,
            "unavailableBookiesCount": 0,
        }
        await cluster.coordination.delete("/ledgers/available/b2")
        await cluster.coordination.create(
            f"{VOTES_PATH}/V_0000000001", encode_vote("b1"), make_parents=True
        )
        await UnderreplicationMarks(cluster.coordination, cluster.access.clock).mark(3, ["b2"])
        await controls.disable(cluster.coordination)
        found = (await cluster.get(path)).json
        assert list(found.values()) == [True, "b1", True, False, 2, 1, 0, 1]

    run(scenario)


def test_each_bookie_is_asked_for_its_room_and_one_that_is_gone_left_out() -> None:
    async def scenario(cluster: Cluster) -> None:
        path = "/api/v1/bookie/list_bookie_info"
        space = cluster.bookies[1].disk_space()
        found = (await cluster.get(path)).json
        assert list(found) == ["b1", "b2", "ClusterInfo: "]
        assert found["b2"].startswith(f": {{Free: {space.free_bytes}(")
        assert f"Total: {2 * space.total_bytes}" in found["ClusterInfo: "]
        await cluster.coordination.create("/ledgers/available/b3:3181")
        assert list((await cluster.get(path)).json) == ["b1", "b2", "ClusterInfo: "]

    run(scenario)


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, ""),
        (999, ""),
        (1000, "(1KB)"),
        (75_677_839_360, "(75.677GB)"),
        (75_660_976_128, "(75.66GB)"),
        (1_999_999, "(1.999MB)"),
        (5 * 10**15, "(5000TB)"),
    ],
)
def test_sizes_are_cut_off_as_upstream_does(size_bytes: int, words: str) -> None:
    assert readable(size_bytes) == words
