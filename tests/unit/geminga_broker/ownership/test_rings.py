"""A topic's bundle follows its namespace's record, and is found without asking once known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga_broker.ownership.assignment.bundles import broker_of_namespace
from geminga_broker.ownership.rings import Rings
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import BundlesData, LocalPolicies, Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination

SHOP = NamespaceName("acme", "shop")
ORDERS = TopicName.parse("persistent://acme/shop/orders")


@pytest.fixture
async def rings(coordination: Coordination) -> Rings:
    """With the namespace ``acme/shop`` of four bundles."""
    await Tenants(coordination).create("acme", TenantInfo())
    namespaces = Namespaces(coordination)
    await namespaces.create(SHOP, Policies(bundles=BundlesData.equal(4)))
    return Rings(namespaces)


async def test_a_topic_falls_into_a_bundle_of_its_namespace(rings: Rings) -> None:
    bundle = await rings.bundle_of(ORDERS)
    assert bundle in (await rings.ring_of(SHOP)).bundles
    assert bundle.lower <= ORDERS.hash < bundle.upper


async def test_partitions_fall_into_bundles_of_their_own(rings: Rings) -> None:
    bundles = {await rings.bundle_of(ORDERS.partition(index)) for index in range(20)}
    assert len(bundles) > 1


async def test_a_known_bundle_costs_no_round_trip(rings: Rings, requests: list[str]) -> None:
    assert rings.last_bundle_of(ORDERS) is None
    bundle = await rings.bundle_of(ORDERS)
    requests.clear()
    assert rings.last_bundle_of(ORDERS) is bundle
    assert await rings.bundle_of(ORDERS) is bundle
    assert requests == []


async def test_a_ring_whose_record_may_have_changed_is_still_told_as_the_last(
    rings: Rings, meddle: Callable[[str, bytes], None], settle: Callable[[], Awaitable[None]]
) -> None:
    assert rings.last_bundle_of(ORDERS) is None
    bundle = await rings.bundle_of(ORDERS)
    meddle("/admin/local-policies/acme/shop", LocalPolicies(bundles=BundlesData.equal(4)).encode())
    await settle()
    assert rings.last_bundle_of(ORDERS) == bundle


async def test_a_split_makes_a_new_ring(
    rings: Rings,
    session: Callable[[str], Coordination],
    settle: Callable[[], Awaitable[None]],
) -> None:
    await rings.ring_of(SHOP)
    split = LocalPolicies(bundles=BundlesData.equal(8))
    await session("other").set("/admin/local-policies/acme/shop", split.encode())
    await settle()
    assert len((await rings.ring_of(SHOP)).bundles) == 8


async def test_an_unknown_namespace_has_no_ring(rings: Rings) -> None:
    with pytest.raises(NamespaceNotFound):
        await rings.bundle_of(TopicName.parse("persistent://acme/nowhere/orders"))


async def test_a_brokers_own_namespace_is_one_bundle_without_any_record(
    rings: Rings, requests: list[str]
) -> None:
    topic = TopicName.parse("persistent://pulsar/127.0.0.1:8080/healthcheck")
    requests.clear()
    assert str(await rings.bundle_of(topic)) == "pulsar/127.0.0.1:8080/0x00000000_0xffffffff"
    assert rings.last_bundle_of(topic) == await rings.bundle_of(topic)
    assert requests == []


@pytest.mark.parametrize(
    ("namespace", "broker_id"),
    [
        ("pulsar/127.0.0.1:8080", "127.0.0.1:8080"),
        ("pulsar/broker-1.example.com:8080", "broker-1.example.com:8080"),
        ("pulsar/system", None),
        ("public/127.0.0.1:8080", None),
        ("pulsar/a:b", None),
    ],
)
def test_a_namespace_named_like_a_broker_is_that_brokers(
    namespace: str, broker_id: str | None
) -> None:
    assert broker_of_namespace(NamespaceName.parse(namespace)) == broker_id
