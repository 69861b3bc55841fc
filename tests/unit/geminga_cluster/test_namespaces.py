"""Namespaces keep their policies; their bundles are copied when they are first served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from geminga_cluster.errors import (
    NamespaceExists,
    NamespaceNotFound,
    RecordContended,
    TenantNotFound,
)
from geminga_cluster.namespaces import Namespaces, serves
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import BundlesData, LocalPolicies, Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination, CoordinationError, NodeNotEmpty
from geminga_simulation.conditions import INSTANT
from geminga_simulation.zookeeper.interception import InstantSession, InterceptedSession
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

SHOP = NamespaceName("acme", "shop")
FOUR = Policies(replication_clusters=("here",), bundles=BundlesData.equal(4))
POLICIES_PATH = "/admin/policies/acme/shop"
LOCAL_PATH = "/admin/local-policies/acme/shop"

Meddle = Callable[[str, bytes], None]


@pytest.fixture
async def namespaces(coordination: Coordination) -> Namespaces:
    """With the tenant ``acme``."""
    await Tenants(coordination).create("acme", TenantInfo())
    return Namespaces(coordination)


async def test_a_namespace_is_found(namespaces: Namespaces) -> None:
    await namespaces.create(SHOP, FOUR)
    assert await namespaces.names("acme") == [SHOP]
    assert await namespaces.exists(SHOP)
    assert await namespaces.policies(SHOP) == FOUR


async def test_a_namespace_is_created_once(namespaces: Namespaces) -> None:
    await namespaces.create(SHOP, FOUR)
    with pytest.raises(NamespaceExists, match="Namespace already exists"):
        await namespaces.create(SHOP, FOUR)


async def test_a_namespace_needs_its_tenant(namespaces: Namespaces) -> None:
    with pytest.raises(TenantNotFound):
        await namespaces.create(NamespaceName("missing", "shop"), FOUR)
    with pytest.raises(TenantNotFound):
        await namespaces.names("missing")


async def test_a_missing_namespace_is_not_found(namespaces: Namespaces) -> None:
    assert not await namespaces.exists(SHOP)
    for ask in (namespaces.policies, namespaces.bundles, namespaces.delete):
        with pytest.raises(NamespaceNotFound, match="Namespace not found"):
            await ask(SHOP)


async def test_a_namespace_is_seen_as_soon_as_it_is_made(namespaces: Namespaces) -> None:
    assert not await namespaces.exists(SHOP)
    await namespaces.create(SHOP, FOUR)
    assert await namespaces.exists(SHOP)


async def test_serving_it_first_copies_the_bundles_as_upstream_does(
    namespaces: Namespaces, tree: Callable[[], dict[str, bytes]]
) -> None:
    await namespaces.create(SHOP, FOUR)
    assert LOCAL_PATH not in tree()
    assert await namespaces.bundles(SHOP) == FOUR.bundles
    # tests/golden/records/zookeeper.jsonl has this very node of a real broker.
    assert tree()[LOCAL_PATH] == (
        b'{"bundles":{"boundaries":["0x00000000","0x40000000","0x80000000","0xc0000000",'
        b'"0xffffffff"],"numBundles":4},"migrated":false}'
    )


async def test_the_local_cut_counts_once_it_is_there(
    namespaces: Namespaces, coordination: Coordination
) -> None:
    await namespaces.create(SHOP, FOUR)
    split = BundlesData.equal(8)
    await coordination.create(LOCAL_PATH, LocalPolicies(bundles=split).encode(), make_parents=True)
    assert await namespaces.bundles(SHOP) == split


async def test_a_split_by_another_broker_is_seen(
    namespaces: Namespaces,
    session: Callable[[str], Coordination],
    settle: Callable[[], Awaitable[None]],
) -> None:
    await namespaces.create(SHOP, FOUR)
    await namespaces.bundles(SHOP)
    split = BundlesData.equal(8)
    await session("other").set(LOCAL_PATH, LocalPolicies(bundles=split).encode())
    await settle()
    assert await namespaces.bundles(SHOP) == split


async def test_policies_without_bundles_mean_one(namespaces: Namespaces) -> None:
    await namespaces.create(SHOP, Policies())
    assert (await namespaces.bundles(SHOP)).num_bundles == 1


async def test_known_bundles_cost_no_round_trip(
    namespaces: Namespaces, requests: list[str]
) -> None:
    await namespaces.create(SHOP, FOUR)
    assert namespaces.known_bundles(SHOP) is None
    record = await namespaces.bundles(SHOP)
    requests.clear()
    assert await namespaces.bundles(SHOP) is record
    assert namespaces.known_bundles(SHOP) is record
    assert requests == []


async def test_a_namespace_under_deletion_is_not_served(namespaces: Namespaces) -> None:
    await namespaces.create(SHOP, FOUR)
    await namespaces.bundles(SHOP)
    await namespaces.update(SHOP, lambda policies: replace(policies, deleted=True))
    assert (await namespaces.policies(SHOP)).deleted
    assert namespaces.known_bundles(SHOP) is None
    with pytest.raises(NamespaceNotFound):
        await namespaces.bundles(SHOP)


async def test_a_change_keeps_what_another_process_changed_meanwhile(
    namespaces: Namespaces, meddle: Meddle
) -> None:
    await namespaces.create(SHOP, FOUR)

    def set_ttl(policies: Policies) -> Policies:
        if policies.topics_max is None:
            meddle(POLICIES_PATH, replace(policies, topics_max=5).encode())
        return replace(policies, message_ttl_s=60)

    changed = await namespaces.update(SHOP, set_ttl)
    assert (changed.message_ttl_s, changed.topics_max) == (60, 5)
    assert await namespaces.policies(SHOP) == changed


async def test_a_change_that_always_comes_too_late_gives_up(
    namespaces: Namespaces, meddle: Meddle
) -> None:
    await namespaces.create(SHOP, FOUR)

    def interrupted(policies: Policies) -> Policies:
        meddle(POLICIES_PATH, policies.encode())
        return policies

    with pytest.raises(RecordContended):
        await namespaces.update(SHOP, interrupted)


async def test_a_deleted_namespace_leaves_nothing_behind(
    namespaces: Namespaces, coordination: Coordination, tree: Callable[[], dict[str, bytes]]
) -> None:
    await namespaces.create(SHOP, FOUR)
    await namespaces.bundles(SHOP)
    for path in ("partitioned-topics/acme/shop/persistent", "partitioned-topics/acme/shop"):
        await coordination.create(f"/admin/{path}/x", make_parents=True)
    await namespaces.delete(SHOP)
    assert [path for path in tree() if "shop" in path] == []
    assert not await namespaces.exists(SHOP)
    assert namespaces.known_bundles(SHOP) is None


async def test_a_namespace_in_which_a_topic_was_stored_just_now_stays_as_it_is(
    namespaces: Namespaces, coordination: Coordination, tree: Callable[[], dict[str, bytes]]
) -> None:
    """Without the topic's node its ledgers would be unknown."""
    await namespaces.create(SHOP, FOUR)
    await namespaces.bundles(SHOP)
    await coordination.create("/managed-ledgers/acme/shop/persistent/t", b"7", make_parents=True)
    before = tree()
    with pytest.raises(NodeNotEmpty):
        await namespaces.delete(SHOP)
    assert tree() == before
    await coordination.delete("/managed-ledgers/acme/shop/persistent/t")
    await namespaces.delete(SHOP)
    assert [path for path in tree() if "shop" in path] == []


async def test_bundles_stay_known_while_policies_change(
    namespaces: Namespaces, meddle: Meddle, settle: Callable[[], Awaitable[None]]
) -> None:
    await namespaces.create(SHOP, FOUR)
    bundles = await namespaces.bundles(SHOP)
    meddle(POLICIES_PATH, replace(FOUR, message_ttl_s=1).encode())
    await settle()
    assert namespaces.known_bundles(SHOP) == bundles
    meddle(POLICIES_PATH, replace(FOUR, deleted=True).encode())
    await settle()
    await namespaces.policies(SHOP)
    assert namespaces.known_bundles(SHOP) is None


async def test_clusters_that_share_a_store_share_policies_and_cut_bundles_each_for_itself(
    coordination: Coordination, store: InterceptedSession, tree: Callable[[], dict[str, bytes]]
) -> None:
    await Tenants(coordination, store).create("acme", TenantInfo())
    near, far = Namespaces(coordination, store), Namespaces(InstantSession(), store)
    await near.create(SHOP, FOUR)
    assert await far.names("acme") == [SHOP]
    await near.bundles(SHOP)
    await near.cut_bundle(SHOP, "0x00000000", "0x40000000", ["0x20000000"])
    assert (await near.bundles(SHOP)).num_bundles == 5
    assert (await far.bundles(SHOP)).num_bundles == 4
    await far.update(SHOP, lambda policies: replace(policies, message_ttl_s=7))
    assert (await near.policies(SHOP)).message_ttl_s == 7
    assert POLICIES_PATH not in tree()
    await near.delete(SHOP)
    assert not await far.exists(SHOP)
    assert LOCAL_PATH not in tree()


async def test_while_the_configuration_store_is_away_what_is_known_of_it_holds(
    coordination: Coordination, settle: Callable[[], Awaitable[None]]
) -> None:
    shared = SimulatedZooKeeper(conditions=INSTANT, name="configuration")
    store = shared.session("broker")
    await Tenants(coordination, store).create("acme", TenantInfo())
    namespaces = Namespaces(coordination, store)
    await namespaces.create(SHOP, FOUR)
    before = await namespaces.bundles(SHOP)
    shared.go_away()
    await settle()
    assert await namespaces.policies(SHOP) == FOUR
    assert await namespaces.bundles(SHOP) == before
    assert namespaces.known_bundles(SHOP) == before
    with pytest.raises(CoordinationError):
        await namespaces.update(SHOP, lambda policies: replace(policies, message_ttl_s=7))
    shared.come_back(keeps_sessions=False)
    await settle()
    assert await namespaces.policies(SHOP) == FOUR


@pytest.mark.parametrize(
    ("policies", "is_served"),
    [
        (Policies(), True),
        (Policies(replication_clusters=("here", "there")), True),
        (Policies(replication_clusters=("there",)), False),
        (Policies(replication_clusters=("there",), allowed_clusters=("here", "there")), True),
        (Policies(replication_clusters=("there",), allowed_clusters=("there",)), False),
    ],
)
def test_a_cluster_serves_a_namespace_whose_policies_name_it(
    policies: Policies, *, is_served: bool
) -> None:
    assert serves("here", policies) == is_served
