"""Changed policies come to those they concern, also when ZooKeeper was away meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest

from geminga_broker.policy_follower import PolicyFollower
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import BundlesData, Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination

SHOP = NamespaceName("acme", "shop")
PATH = "/admin/policies/acme/shop"
FIRST = Policies(bundles=BundlesData.equal(4))
SECOND = replace(FIRST, message_ttl_s=7)

Settle = Callable[[], Awaitable[None]]
Meddle = Callable[[str, bytes], None]


@pytest.fixture
async def namespaces(coordination: Coordination) -> Namespaces:
    """With ``acme/shop``, whose policies were read."""
    await Tenants(coordination).create("acme", TenantInfo())
    namespaces = Namespaces(coordination)
    await namespaces.create(SHOP, FIRST)
    await namespaces.policies(SHOP)
    return namespaces


@pytest.fixture
def in_use() -> list[NamespaceName]:
    """The namespaces that the follower asks for."""
    return [SHOP]


@pytest.fixture
async def brought(
    namespaces: Namespaces, in_use: list[NamespaceName]
) -> AsyncIterator[list[tuple[NamespaceName, Policies]]]:
    """What the follower brought."""
    brought: list[tuple[NamespaceName, Policies]] = []

    async def refresh(_: NamespaceName) -> None:
        """No topic has policies of its own."""

    async with PolicyFollower(
        namespaces,
        Random(1),
        in_use=lambda: in_use,
        apply=lambda namespace, policies, _: brought.append((namespace, policies)),
        refresh=refresh,
    ):
        yield brought


async def test_every_change_is_brought(
    brought: list[tuple[NamespaceName, Policies]],
    namespaces: Namespaces,
    meddle: Meddle,
    settle: Settle,
) -> None:
    await namespaces.update(SHOP, lambda _: SECOND)
    await settle()
    meddle(PATH, FIRST.encode())
    await settle()
    assert brought == [(SHOP, SECOND), (SHOP, FIRST)]


async def test_policies_of_a_namespace_without_loaded_topics_are_not_read(
    brought: list[tuple[NamespaceName, Policies]],
    in_use: list[NamespaceName],
    meddle: Meddle,
    settle: Settle,
    requests: list[str],
) -> None:
    in_use.clear()
    requests.clear()
    meddle(PATH, SECOND.encode())
    await settle()
    assert (brought, requests) == ([], [])


async def test_what_changed_while_zookeeper_was_away_is_brought(
    brought: list[tuple[NamespaceName, Policies]],
    meddle: Meddle,
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
    settle: Settle,
) -> None:
    await suspend("broker")
    meddle(PATH, SECOND.encode())
    await asyncio.sleep(1)
    assert brought == []
    await reconnect("broker")
    await asyncio.sleep(10)
    await settle()
    assert brought
    assert {policies for _, policies in brought if policies.message_ttl_s != 7} == set()


async def test_policies_that_cannot_be_decoded_change_nothing(
    brought: list[tuple[NamespaceName, Policies]],
    meddle: Meddle,
    settle: Settle,
    caplog: pytest.LogCaptureFixture,
) -> None:
    meddle(PATH, b"[")
    await settle()
    assert brought == []
    assert "policies not readable" in caplog.text
    meddle(PATH, SECOND.encode())
    await settle()


async def test_a_deleted_namespace_is_let_go(
    brought: list[tuple[NamespaceName, Policies]], namespaces: Namespaces, settle: Settle
) -> None:
    await namespaces.delete(SHOP)
    await settle()
    assert brought == []
