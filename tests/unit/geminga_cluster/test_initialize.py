"""A new cluster's records are those of a real one; repeating and interrupting do no harm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from tests.project_files import GOLDEN

from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import NotInitialized
from geminga_cluster.initialize import (
    ATTEMPTS_MAX,
    ClusterUrls,
    check_initialized,
    initialize_cluster_metadata,
)
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import Policies, RetentionPolicies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination, VersionMismatch
from geminga_simulation.zookeeper.interception import InstantSession

RECORDED = GOLDEN / "records" / "zookeeper.jsonl"
URLS = ClusterUrls("http://127.0.0.1:28080", "pulsar://127.0.0.1:26650")
INSTANCE = "d88a2434-bdf5-46c7-9cad-a0ec2ee75481"

Tree = Callable[[], dict[str, bytes]]


async def initialize(coordination: Coordination, cluster: str = "golden") -> None:
    await initialize_cluster_metadata(coordination, cluster, URLS, instance_id=INSTANCE)


def real_tree() -> dict[str, bytes]:
    """What a real cluster had in ZooKeeper."""
    nodes = {}
    for line in RECORDED.read_text().splitlines():
        node = json.loads(line)
        text = node.get("text")
        nodes[node["path"]] = text.encode() if text is not None else bytes.fromhex(node["hex"])
    return nodes


async def test_the_records_are_a_real_clusters_to_the_byte(
    coordination: Coordination, tree: Tree
) -> None:
    await initialize(coordination)
    real, ours = real_tree(), {path: value for path, value in tree().items() if value}
    shared = ours.keys() & real.keys()
    assert {path: ours[path] for path in shared} == {path: real[path] for path in shared}
    assert shared >= {
        "/admin/clusters/global",
        "/admin/clusters/golden",
        "/admin/configuration",
        "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
        "/admin/policies/public",
        "/admin/policies/public/default",
        "/admin/policies/pulsar",
        "/admin/policies/pulsar/system",
        "/bookies",
        "/ledgers/INSTANCEID",
    }
    # Beyond the recorded cluster: what BookKeeper's own tools want, and the functions' namespace.
    assert ours.keys() - real.keys() == {"/ledgers/LAYOUT", "/admin/policies/public/functions"}


async def test_the_empty_nodes_that_others_expect_are_there(
    coordination: Coordination, tree: Tree
) -> None:
    await initialize(coordination)
    assert tree().keys() >= {
        "/ledgers/available/readonly",
        "/ledgers/cookies",
        "/managed-ledgers",
        "/namespace",
        "/loadbalance/brokers",
        "/schemas",
        "/admin/local-policies",
    }


async def test_functions_keep_their_messages_for_ever(coordination: Coordination) -> None:
    await initialize(coordination)
    policies = await Namespaces(coordination).policies(NamespaceName("public", "functions"))
    assert policies.retention == RetentionPolicies(time_minutes=-1, size_mib=-1)
    assert policies.bundles is not None
    assert policies.bundles.num_bundles == 4


async def test_a_fresh_zookeeper_takes_one_round_trip(
    coordination: Coordination, requests: list[str]
) -> None:
    await initialize(coordination)
    assert len(requests) == 1


async def test_repeating_changes_nothing(coordination: Coordination, tree: Tree) -> None:
    await initialize(coordination)
    before = tree()
    other_urls = ClusterUrls("http://elsewhere:1", "pulsar://elsewhere:2")
    await initialize_cluster_metadata(coordination, "golden", other_urls, instance_id="another")
    assert tree() == before


async def test_a_standalones_urls_follow_its_ports(coordination: Coordination) -> None:
    await initialize(coordination)
    moved = ClusterUrls("http://127.0.0.1:1", "pulsar://127.0.0.1:2")
    await initialize_cluster_metadata(
        coordination, "golden", moved, instance_id=INSTANCE, replace_urls=True
    )
    assert await Clusters(coordination).get("golden") == moved.record()


@pytest.mark.parametrize("kept", range(0, 40, 3))
async def test_an_attempt_that_was_cut_short_is_completed(
    kept: int, coordination: Coordination, session: Callable[[str], Coordination], tree: Tree
) -> None:
    await initialize(coordination)
    whole = tree()
    # As if only the first nodes had been written: children go before their parents.
    for path in reversed(sorted(whole)[kept:]):
        await session("other").delete(path)
    await initialize(coordination)
    assert tree() == whole


async def test_records_that_another_program_wrote_are_kept(
    coordination: Coordination, tree: Tree
) -> None:
    await coordination.create("/ledgers/INSTANCEID", b"older", make_parents=True)
    await coordination.create("/ledgers/cookies/b1", b"cookie", make_parents=True)
    tenant = TenantInfo(admin_roles=("boss",), allowed_clusters=("first",))
    await Tenants(coordination).create("public", tenant)
    default = NamespaceName("public", "default")
    policies = Policies(replication_clusters=("first",), message_ttl_s=60)
    await Namespaces(coordination).create(default, policies)
    await initialize(coordination, "second")
    assert tree()["/ledgers/INSTANCEID"] == b"older"
    assert tree()["/ledgers/cookies/b1"] == b"cookie"


async def test_a_second_cluster_enters_tenants_and_namespaces(coordination: Coordination) -> None:
    await initialize(coordination, "first")
    await initialize(coordination, "second")
    assert await Clusters(coordination).names() == ["first", "second"]
    tenant = await Tenants(coordination).get("public")
    assert tenant.allowed_clusters == ("first", "second")
    policies = await Namespaces(coordination).policies(NamespaceName("public", "default"))
    assert policies.replication_clusters == ("first", "second")


async def test_a_broker_on_an_empty_zookeeper_is_told_what_to_do(
    coordination: Coordination,
) -> None:
    with pytest.raises(NotInitialized, match="initialize-cluster-metadata --cluster golden"):
        await check_initialized(coordination, "golden")


async def test_a_broker_of_an_initialized_cluster_may_start(coordination: Coordination) -> None:
    await initialize(coordination)
    await check_initialized(coordination, "golden")
    with pytest.raises(NotInitialized):
        await check_initialized(coordination, "other")


async def test_brokers_that_enter_a_cluster_together_all_succeed(
    session: Callable[[str], Coordination], tree: Tree
) -> None:
    """Each changes the records of tenants and namespaces that the others change."""
    await initialize(session("0"), "first")
    await asyncio.gather(*(initialize(session(str(number)), "second") for number in range(3)))
    tenant = TenantInfo.decode(tree()["/admin/policies/public"])
    assert tenant.allowed_clusters == ("first", "second")


async def test_a_record_that_keeps_changing_is_given_up() -> None:
    rival = InstantSession()
    await initialize(rival, "first")
    attempts = 0

    def change(verb: str, path: str) -> None:
        nonlocal attempts
        if (verb, path) == ("set", "/admin/policies/public"):
            attempts += 1
            rival.zookeeper.put(path, TenantInfo(allowed_clusters=("first",)).encode())

    rival.before = change
    with pytest.raises(VersionMismatch):
        await initialize(rival, "second")
    assert attempts == ATTEMPTS_MAX


async def test_a_configuration_store_gets_what_clusters_share_and_zookeeper_the_rest(
    coordination: Coordination, tree: Tree
) -> None:
    await initialize(coordination)
    whole = tree()
    own, shared = InstantSession(), InstantSession()
    await initialize_cluster_metadata(
        own, "golden", URLS, configuration=shared, instance_id=INSTANCE
    )
    here, there = own.zookeeper.tree.values(), shared.zookeeper.tree.values()
    assert here | there == whole
    assert here.keys() & there.keys() == {"/admin"}
    roots = ("/admin/clusters", "/admin/policies", "/admin/partitioned-topics")
    assert all(path.startswith(roots) for path in there.keys() - {"/admin"})
    assert not any(path.startswith(roots) for path in here)


async def test_clusters_that_share_a_store_share_the_default_namespace_but_no_functions() -> None:
    shared = InstantSession()
    for name in ("first", "second"):
        own = InstantSession()
        for _ in range(2):  # repeated, it is as it was
            await initialize_cluster_metadata(
                own, name, URLS, configuration=shared, instance_id=INSTANCE
            )
        assert "/ledgers/INSTANCEID" in own.zookeeper.tree.values()
    assert await Clusters(shared).names() == ["first", "second"]
    namespaces = Namespaces(InstantSession(), shared)
    both = await namespaces.policies(NamespaceName("public", "default"))
    assert both.replication_clusters == ("first", "second")
    functions = await namespaces.policies(NamespaceName("public", "functions"))
    assert functions.replication_clusters == ("first",)
