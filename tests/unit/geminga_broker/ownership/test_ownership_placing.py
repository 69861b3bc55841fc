"""Proves which broker acquires a bundle where there are several, and how it is handed on to one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.ownership.two_brokers import HERE, ORDERS, THERE

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import BrokerAddress, LookupReason, Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.placement import BrokersView, Loads
from geminga_broker.ownership.owned_bundles import Successor
from geminga_broker.ownership.ownership import DESTINED_MAX, DESTINED_S, Ownership
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.records.cluster.brokers import LocalBrokerData
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_simulation.zookeeper.interception import InterceptedSession

Session = Callable[[str], Coordination]
Settle = Callable[[], Awaitable[None]]
OnName = Callable[[str], Awaitable[None]]


def view_with(*, leader: BrokerAddress | None = None) -> Callable[[], Awaitable[BrokersView]]:
    """Both brokers live, and one of them leads, or none."""
    loads = {
        each.broker_id: LocalBrokerData(
            pulsar_service_url=each.broker_url, web_service_url=each.http_url
        )
        for each in (HERE, THERE)
    }

    async def view() -> BrokersView:
        return BrokersView(loads, leader.broker_id if leader else None)

    return view


class Always:
    """Whatever is asked, that broker is to have it."""

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address

    def choose(self, bundle: Bundle, loads: Loads) -> str:
        del bundle, loads
        return self.address.broker_id


async def test_the_leader_chooses_and_the_chosen_broker_acquires_on_authority(
    ownership: Ownership, session: Session
) -> None:
    del ownership  # only for the namespace
    here, there = session("here"), session("there")
    view, placement = view_with(leader=HERE), Always(THERE)
    async with (
        Ownership(
            here, Namespaces(here), HERE, placement=placement.choose, view_brokers=view
        ) as leading,
        Ownership(
            there, Namespaces(there), THERE, placement=placement.choose, view_brokers=view
        ) as following,
    ):
        asked = await following.owner(ORDERS)
        assert (asked.broker_url, asked.reason) == (HERE.broker_url, LookupReason.DECIDES)
        chosen = await leading.owner(ORDERS)
        assert (chosen.broker_url, chosen.reason) == (THERE.broker_url, LookupReason.CHOSEN)
        assert list(following.owned.generations) == list(leading.owned.generations) == []
        assert (await following.owner(ORDERS, authoritative=True)).is_self
        owner = await leading.owner(ORDERS)
        assert (owner.broker_url, owner.reason) == (THERE.broker_url, LookupReason.OWNS)
        placement.address = HERE
        assert (await following.owner(ORDERS)).is_self  # an owned bundle is not placed again
        await following.unload(await following.rings.bundle_of(ORDERS))
        assert (await following.owner(ORDERS)).reason is LookupReason.DECIDES
        assert (await leading.owner(ORDERS)).is_self


async def test_a_bundle_whose_acquisition_was_not_answered_is_not_placed_elsewhere(
    ownership: Ownership, session: Session
) -> None:
    bundle = await ownership.rings.bundle_of(ORDERS)
    connection, view = InterceptedSession(session("here")), view_with(leader=THERE)
    async with Ownership(connection, Namespaces(connection), HERE, view_brokers=view) as following:
        connection.lose("create", bundle.path, is_done=True)
        with pytest.raises(CoordinationError):
            await following.owner(ORDERS, authoritative=True)
        # The node names this broker: the leader sends clients here, and would for ever.
        assert (await following.owner(ORDERS)).is_self


async def test_authority_takes_no_bundle_from_its_owner(
    ownership: Ownership, rival: Ownership
) -> None:
    await rival.owner(ORDERS)
    owner = await ownership.owner(ORDERS, authoritative=True)
    assert (owner.broker_url, owner.is_self) == (THERE.broker_url, False)


async def test_what_a_lost_session_gave_up_is_taken_back_without_asking_the_leader(
    ownership: Ownership, session: Session, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    del ownership  # only for the namespace
    here, view = session("here"), view_with(leader=THERE)
    async with Ownership(here, Namespaces(here), HERE, view_brokers=view) as following:
        assert (await following.owner(ORDERS, authoritative=True)).is_self
        await expire("here")
        await reconnect("here")
        await settle()
        assert following.owns(ORDERS)


async def test_a_bundle_is_handed_on_before_its_clients_are_told(
    ownership: Ownership, rival: Ownership, session: Session
) -> None:
    del ownership  # only for the namespace
    here, asked = session("here"), list[str]()

    async def assign(bundle: Bundle, owner: Owner) -> None:
        asked.append(f"{owner.http_url} {owner.is_authoritative}")
        await rival.owner_of(bundle, authoritative=True)

    successors: list[Successor] = []

    async def note(_: Bundle, successor: Successor) -> None:
        successors.append(successor)

    view = view_with(leader=HERE)
    async with Ownership(here, Namespaces(here), HERE, view_brokers=view, assign=assign) as moving:
        moving.owned.on_release.append(note)
        await moving.owner(ORDERS)
        bundle = await moving.rings.bundle_of(ORDERS)
        await moving.unload(bundle, THERE.broker_id)
        (successor,) = successors
        next_owner = successor.result()
        assert next_owner is not None
        assert next_owner.broker_url == THERE.broker_url
        assert asked == [f"{THERE.http_url} True"]
        assert list(rival.owned.generations) == [bundle]


async def test_a_hand_over_that_fails_leaves_the_bundle_to_any_broker(
    ownership: Ownership, session: Session
) -> None:
    del ownership  # only for the namespace
    here, successors = session("here"), list[Successor]()

    async def refuse(_: Bundle, __: Owner) -> None:
        raise ServiceNotReady("it closes")

    async def note(_: Bundle, successor: Successor) -> None:
        successors.append(successor)

    view = view_with(leader=HERE)
    async with Ownership(here, Namespaces(here), HERE, view_brokers=view, assign=refuse) as moving:
        moving.owned.on_release.append(note)
        await moving.owner(ORDERS)
        await moving.unload(await moving.rings.bundle_of(ORDERS), THERE.broker_id)
        assert [each.result() for each in successors] == [None]
        assert (await moving.owner(ORDERS)).is_self


@pytest.mark.parametrize("leader", [HERE, THERE, None])
async def test_a_broker_that_ends_hands_its_bundles_on_to_those_that_live(
    ownership: Ownership, session: Session, leader: BrokerAddress | None
) -> None:
    del ownership  # only for the namespace
    here, there = session("here"), session("there")
    view = view_with(leader=leader)
    asked: list[tuple[str, LookupReason]] = []
    successors: list[Successor] = []

    async def assign(bundle: Bundle, broker: Owner) -> None:
        asked.append((broker.http_url, broker.reason))
        await remaining.owner_of(bundle, authoritative=True)

    async def release(bundle: Bundle, successor: Successor) -> None:
        del bundle
        successors.append(successor)

    def first_of_all(bundle: Bundle, loads: Loads) -> str:
        del bundle
        return next(iter(loads))  # this broker, if it were among them

    async with (
        Ownership(there, Namespaces(there), THERE, view_brokers=view) as remaining,
        Ownership(
            here,
            Namespaces(here),
            HERE,
            placement=first_of_all,
            view_brokers=view,
            assign=assign,
        ) as ending,
    ):
        ending.owned.on_release.append(release)
        bundles = (await ending.rings.ring_of(ORDERS.namespace)).bundles
        for bundle in bundles:
            await ending.owner_of(bundle, authoritative=True)
        await ending.retire(1.0)
        assert list(ending.owned.generations) == []
        assert set(remaining.owned.generations) == set(bundles)
        reason = LookupReason.DECIDES if leader is THERE else LookupReason.CHOSEN
        assert asked == [(THERE.http_url, reason)] * len(bundles)
        told = [successor.result() for successor in successors]
        assert [owner.broker_url for owner in told if owner] == [THERE.broker_url] * len(bundles)


async def test_a_broker_that_ends_acquires_nothing_and_sends_clients_on(
    ownership: Ownership, session: Session
) -> None:
    del ownership  # only for the namespace
    here, view = session("here"), view_with(leader=None)
    async with Ownership(
        here, Namespaces(here), HERE, placement=Always(THERE).choose, view_brokers=view
    ) as ending:
        await ending.retire(1.0)
        owner = await ending.owner(ORDERS)
        assert (owner.broker_url, owner.reason) == (THERE.broker_url, LookupReason.CHOSEN)
        with pytest.raises(ServiceNotReady, match="ends"):
            await ending.owner(ORDERS, authoritative=True)
        assert list(ending.owned.generations) == []


async def test_a_broker_that_ends_alone_or_late_leaves_its_bundles_to_its_closing(
    ownership: Ownership, session: Session
) -> None:
    await ownership.owner(ORDERS)
    await ownership.retire(1.0)  # it knows no other broker
    assert ownership.owns(ORDERS)
    here, view = session("here"), view_with(leader=None)
    await ownership.unload(await ownership.rings.bundle_of(ORDERS))
    async with Ownership(here, Namespaces(here), HERE, view_brokers=view) as hurried:
        await hurried.owner(ORDERS, authoritative=True)
        await hurried.retire(0.0)
        assert hurried.owns(ORDERS)


async def test_the_leader_remembers_for_a_while_where_a_bundle_is_to_go(
    ownership: Ownership, session: Session
) -> None:
    del ownership  # only for the namespace
    here, view = session("here"), view_with(leader=HERE)
    async with Ownership(
        here, Namespaces(here), HERE, placement=Always(HERE).choose, view_brokers=view
    ) as leading:
        bundle = await leading.rings.bundle_of(ORDERS)
        leading.destine(bundle, "127.0.0.1:3")
        leading.destine(bundle, THERE.broker_id)  # the last word counts
        owner = await leading.owner(ORDERS)
        assert (owner.broker_url, owner.reason) == (THERE.broker_url, LookupReason.CHOSEN)
        leading.destine(bundle, "127.0.0.1:3")  # which does not live
        assert (await leading.owner(ORDERS)).is_self
        await leading.unload(bundle)
        leading.destine(bundle, THERE.broker_id)
        await asyncio.sleep(DESTINED_S)
        assert (await leading.owner(ORDERS)).is_self
        leading.destine(bundle, THERE.broker_id)
        await leading.unload(bundle)
        for lower in range(DESTINED_MAX):
            leading.destine(Bundle(ORDERS.namespace, lower, lower + 1), THERE.broker_id)
        assert (await leading.owner(ORDERS)).is_self  # forgotten for so many others
