"""Tenants are created, changed, and deleted once they are empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geminga_cluster.errors import TenantExists, TenantNotEmpty, TenantNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination
from geminga_simulation.zookeeper.interception import InterceptedSession

RECORD = TenantInfo(admin_roles=("boss",), allowed_clusters=("here",))
SHOP = NamespaceName("acme", "shop")


@pytest.fixture
def tenants(coordination: Coordination) -> Tenants:
    return Tenants(coordination)


async def test_before_the_first_there_are_none(tenants: Tenants) -> None:
    assert await tenants.names() == []


async def test_a_tenant_is_found_and_stands_where_pulsar_looks(
    tenants: Tenants, tree: Callable[[], dict[str, bytes]]
) -> None:
    await tenants.create("acme", RECORD)
    assert await tenants.names() == ["acme"]
    assert await tenants.get("acme") == RECORD
    stored = tree()["/admin/policies/acme"]
    assert stored == b'{"adminRoles":["boss"],"allowedClusters":["here"]}'


async def test_a_tenant_is_created_once(tenants: Tenants) -> None:
    await tenants.create("acme", RECORD)
    with pytest.raises(TenantExists, match="Tenant already exist"):
        await tenants.create("acme", RECORD)


async def test_a_change_is_seen_at_once(tenants: Tenants) -> None:
    await tenants.create("acme", RECORD)
    await tenants.get("acme")
    changed = TenantInfo(allowed_clusters=("here", "there"))
    await tenants.update("acme", changed)
    assert await tenants.get("acme") == changed


async def test_a_missing_tenant_is_not_found(tenants: Tenants) -> None:
    with pytest.raises(TenantNotFound, match="Tenant does not exist"):
        await tenants.get("acme")
    with pytest.raises(TenantNotFound):
        await tenants.update("acme", RECORD)
    with pytest.raises(TenantNotFound):
        await tenants.delete("acme")


async def test_a_tenant_with_namespaces_is_kept(
    tenants: Tenants, coordination: Coordination
) -> None:
    await tenants.create("acme", RECORD)
    await Namespaces(coordination).create(SHOP, Policies())
    with pytest.raises(TenantNotEmpty, match="The tenant still has active namespaces"):
        await tenants.delete("acme")


async def test_a_deleted_tenant_leaves_nothing_behind(
    tenants: Tenants, coordination: Coordination, tree: Callable[[], dict[str, bytes]]
) -> None:
    namespaces = Namespaces(coordination)
    await tenants.create("acme", RECORD)
    await namespaces.create(SHOP, Policies())
    await namespaces.bundles(SHOP)
    await coordination.create("/managed-ledgers/acme/shop/persistent", make_parents=True)
    await namespaces.delete(SHOP)
    await tenants.delete("acme")
    assert [path for path in tree() if "acme" in path] == []


async def test_a_tenant_of_a_shared_store_leaves_nothing_behind_in_either(
    coordination: Coordination,
    store: InterceptedSession,
    tree: Callable[[], dict[str, bytes]],
) -> None:
    tenants, namespaces = Tenants(coordination, store), Namespaces(coordination, store)
    await tenants.create("acme", RECORD)
    assert await tenants.names() == ["acme"]
    await namespaces.create(SHOP, Policies())
    await namespaces.bundles(SHOP)
    await store.create("/admin/partitioned-topics/acme/shop/persistent", make_parents=True)
    await namespaces.delete(SHOP)
    await tenants.delete("acme")
    assert [path for path in tree() if "acme" in path] == []
    assert await store.exists("/admin/partitioned-topics/acme") is None
    with pytest.raises(TenantNotFound):
        await Tenants(coordination, store).get("acme")
