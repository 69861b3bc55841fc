"""What is known of owners: "not looked up yet" is never taken for "no broker owns it"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.owners import BundleNode, OwnerCache, Unowned
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.ownership import BundleOwner
from geminga_runtime.coordination import ConnectionLost, Coordination

BUNDLE = Bundle(NamespaceName("acme", "shop"), 0, 0x40000000)
PAST_URL = "http://before:8080"

Session = Callable[[str], Coordination]
Settle = Callable[[], Awaitable[None]]


@pytest.fixture
def owners(coordination: Coordination) -> OwnerCache:
    """Of a broker that was at ``PAST_URL`` before."""
    return OwnerCache(coordination, is_past=lambda record: record.http_url == PAST_URL)


@pytest.fixture
def other(session: Session) -> Coordination:
    """Another broker's session."""
    return session("other")


async def own(session: Coordination, url: str, *, disabled: bool = False) -> None:
    record = BundleOwner(http_url=url, disabled=disabled)
    await session.create(BUNDLE.path, record.encode(), ephemeral=True, make_parents=True)


async def test_nothing_is_known_before_it_is_asked(
    owners: OwnerCache, other: Coordination, requests: list[str]
) -> None:
    await own(other, "http://there:8080")
    assert owners.known(BUNDLE) is Unowned.NOT_KNOWN
    assert requests == []


async def test_that_no_broker_owns_a_bundle_is_known_until_one_does(
    owners: OwnerCache, other: Coordination, requests: list[str], settle: Settle
) -> None:
    assert await owners.read(BUNDLE) is Unowned.NO_BROKER
    requests.clear()
    assert owners.known(BUNDLE) is Unowned.NO_BROKER
    assert await owners.read(BUNDLE) is Unowned.NO_BROKER
    assert requests == []
    await own(other, "http://there:8080")
    await settle()
    assert owners.known(BUNDLE) is Unowned.NOT_KNOWN


async def test_an_owner_is_kept_with_its_generation_until_the_node_changes(
    owners: OwnerCache, other: Coordination, requests: list[str], settle: Settle
) -> None:
    await own(other, "http://there:8080")
    first = await owners.read(BUNDLE)
    assert isinstance(first, BundleNode)
    assert first.owner.http_url == "http://there:8080"
    requests.clear()
    assert await owners.read(BUNDLE) is first
    assert requests == []

    await other.delete(BUNDLE.path)
    await own(other, "http://there:8080")
    await settle()
    assert owners.known(BUNDLE) is Unowned.NOT_KNOWN
    second = await owners.read(BUNDLE)
    assert isinstance(second, BundleNode)
    assert second.generation > first.generation


async def test_what_this_brokers_past_left_behind_is_no_owner(
    owners: OwnerCache, other: Coordination
) -> None:
    await own(other, PAST_URL)
    assert await owners.read(BUNDLE) is Unowned.OWN_PAST


async def test_an_owner_that_gives_a_bundle_up_is_none(
    owners: OwnerCache, other: Coordination
) -> None:
    await own(other, "http://there:8080", disabled=True)
    assert await owners.read(BUNDLE) is Unowned.GIVEN_UP


async def test_a_forgotten_owner_is_read_again(owners: OwnerCache, requests: list[str]) -> None:
    await owners.read(BUNDLE)
    requests.clear()
    owners.forget(BUNDLE)
    assert owners.known(BUNDLE) is Unowned.NOT_KNOWN
    await owners.read(BUNDLE)
    assert requests != []


async def test_an_owner_that_is_known_to_be_none_any_more_is_not_named_while_zookeeper_is_away(
    owners: OwnerCache,
    other: Coordination,
    suspend: Callable[[str], Awaitable[None]],
    settle: Settle,
) -> None:
    await own(other, "http://there:8080")
    assert isinstance(await owners.read(BUNDLE), BundleNode)
    await other.delete(BUNDLE.path)
    await settle()
    await suspend("broker")
    assert owners.known(BUNDLE) is Unowned.NOT_KNOWN
    with pytest.raises(ConnectionLost):
        await owners.read(BUNDLE)
