"""Two brokers that share the bundles of a namespace, on a simulated ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.geminga_broker.ownership.two_brokers import HERE, SHOP, THERE

from geminga_broker.ownership.ownership import Ownership
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.records.cluster.namespaces import BundlesData, Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination


@pytest.fixture
async def ownership(coordination: Coordination) -> AsyncIterator[Ownership]:
    """Of the broker ``HERE``, with the namespace ``SHOP`` of four bundles."""
    await Tenants(coordination).create("acme", TenantInfo())
    namespaces = Namespaces(coordination)
    await namespaces.create(SHOP, Policies(bundles=BundlesData.equal(4)))
    async with Ownership(coordination, namespaces, HERE) as opened:
        yield opened


@pytest.fixture
async def rival(
    ownership: Ownership, session: Callable[[str], Coordination]
) -> AsyncIterator[Ownership]:
    """Of another broker, ``THERE``."""
    del ownership  # only for the namespace
    other = session("rival")
    async with Ownership(other, Namespaces(other), THERE) as opened:
        yield opened
