"""Bundles are owned by one broker at a time, given up with the session, and cheap to look up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.ownership.two_brokers import HERE, ORDERS, SHOP, THERE

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.errors import NotOwned
from geminga_broker.ownership.owned_bundles import Successor
from geminga_broker.ownership.ownership import Ownership
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.ownership import BundleOwner
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

Session = Callable[[str], Coordination]
Settle = Callable[[], Awaitable[None]]
OnName = Callable[[str], Awaitable[None]]
Kill = Callable[[str], None]

# Ten times as long as a session lives.
AWAY_S = 60.0


async def test_an_unowned_bundle_becomes_ours_as_pulsar_records_it(
    ownership: Ownership, tree: Callable[[], dict[str, bytes]]
) -> None:
    owner = await ownership.owner(ORDERS)
    assert owner.is_self
    assert owner.broker_url == HERE.broker_url
    bundle = await ownership.rings.bundle_of(ORDERS)
    assert list(ownership.owned.generations) == [bundle]
    # tests/golden/records/zookeeper.jsonl has this very node of a real broker.
    assert tree()[bundle.path] == (
        b'{"nativeUrl":"pulsar://127.0.0.1:26650","httpUrl":"http://127.0.0.1:28080",'
        b'"disabled":false,"advertisedListeners":{}}'
    )


async def test_a_repeated_lookup_sends_no_request(
    ownership: Ownership, requests: list[str]
) -> None:
    assert not ownership.owns(ORDERS)
    owner = await ownership.owner(ORDERS)
    requests.clear()
    assert await ownership.owner(ORDERS) is owner
    assert ownership.owns(ORDERS)
    assert requests == []


async def test_topics_of_owned_bundles_cost_no_writes(
    ownership: Ownership, requests: list[str]
) -> None:
    for number in range(50):
        await ownership.owner(TopicName.parse(f"persistent://acme/shop/t{number}"))
    assert len(ownership.owned.generations) == 4
    requests.clear()
    for number in range(50, 100):
        await ownership.owner(TopicName.parse(f"persistent://acme/shop/t{number}"))
    assert requests == []


async def test_many_askers_at_once_acquire_once(ownership: Ownership, requests: list[str]) -> None:
    owners = await asyncio.gather(*(ownership.owner(ORDERS) for _ in range(20)))
    assert all(owner.is_self for owner in owners)
    assert sum(request.startswith("create /namespace") for request in requests) == 1


async def test_an_impatient_asker_leaves_the_others_unharmed(ownership: Ownership) -> None:
    first = asyncio.ensure_future(ownership.owner(ORDERS))
    second = asyncio.ensure_future(ownership.owner(ORDERS))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_self


async def test_an_unknown_namespace_has_no_owner(ownership: Ownership) -> None:
    with pytest.raises(NamespaceNotFound):
        await ownership.owner(TopicName.parse("persistent://acme/nowhere/orders"))


async def test_another_brokers_bundle_is_told_and_remembered(
    ownership: Ownership, rival: Ownership, requests: list[str]
) -> None:
    await rival.owner(ORDERS)
    owner = await ownership.owner(ORDERS)
    assert (owner.is_self, owner.broker_url, owner.http_url) == (
        False,
        THERE.broker_url,
        THERE.http_url,
    )
    assert not ownership.owns(ORDERS)
    requests.clear()
    assert await ownership.owner(ORDERS) is owner
    assert requests == []


async def test_a_lookup_of_another_brokers_bundle_writes_nothing(
    ownership: Ownership, rival: Ownership, requests: list[str]
) -> None:
    await rival.owner(ORDERS)
    await ownership.rings.bundle_of(ORDERS)
    requests.clear()
    assert not (await ownership.owner(ORDERS)).is_self
    assert [request.partition(" ")[0] for request in requests] == ["get"]


async def test_only_one_of_two_brokers_wins_a_race(ownership: Ownership, rival: Ownership) -> None:
    one, other = await asyncio.gather(ownership.owner(ORDERS), rival.owner(ORDERS))
    assert one.broker_url == other.broker_url
    assert one.is_self != other.is_self


async def test_a_dead_brokers_bundle_is_taken(
    ownership: Ownership, rival: Ownership, expire: OnName, settle: Settle
) -> None:
    await rival.owner(ORDERS)
    assert not (await ownership.owner(ORDERS)).is_self
    await expire("rival")
    await settle()
    assert (await ownership.owner(ORDERS)).is_self


async def test_what_was_ours_before_a_kill_is_ours_again_at_once(
    ownership: Ownership, session: Session, kill: Kill
) -> None:
    killed = session("killed")
    before = await Ownership(killed, Namespaces(killed), HERE).__aenter__()
    await before.owner(ORDERS)
    old_generation = before.owned.generations[await before.rings.bundle_of(ORDERS)]
    kill("killed")
    assert (await ownership.owner(ORDERS)).is_self
    assert ownership.owned.generations[await ownership.rings.bundle_of(ORDERS)] > old_generation


async def test_a_kill_is_recognised_though_the_ports_changed(
    coordination: Coordination, rival: Ownership, kill: Kill
) -> None:
    await rival.owner(ORDERS)
    kill("rival")
    again = Ownership(
        coordination, Namespaces(coordination), HERE, former_broker_ids=[THERE.broker_id]
    )
    async with again:
        assert (await again.owner(ORDERS)).is_self


async def test_a_kill_is_recognised_though_a_listeners_url_is_not_made_of_the_brokers_id(
    ownership: Ownership, session: Session, kill: Kill
) -> None:
    del ownership  # only for the namespace
    address = replace(HERE, http_url="http://outside:8080")
    killed, again = session("killed"), session("again")
    before = await Ownership(killed, Namespaces(killed), address).__aenter__()
    await before.owner(ORDERS)
    kill("killed")
    async with Ownership(again, Namespaces(again), address) as after:
        assert (await after.owner(ORDERS)).is_self


async def test_what_is_owned_is_kept_while_zookeeper_is_not_heard_of(
    ownership: Ownership, expire: OnName
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    certain = [ownership.owned.is_certain]
    assert (await ownership.owner(ORDERS)).is_self
    await expire("broker")
    assert [*certain, ownership.owned.is_certain] == [True, False]
    assert ownership.owns(ORDERS)
    assert (await ownership.owner(ORDERS)).is_self
    assert lost == []


async def test_a_lost_session_gives_every_bundle_up_at_once(
    ownership: Ownership, rival: Ownership, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    bundle = await ownership.rings.bundle_of(ORDERS)
    await ownership.owner(ORDERS)
    await expire("broker")
    await rival.owner(ORDERS)
    await reconnect("broker")
    await settle()
    assert lost == [bundle]
    assert list(ownership.owned.generations) == []
    assert not ownership.owns(ORDERS)
    assert bundle not in ownership.owned.generations


async def test_without_a_session_nothing_is_acquired(ownership: Ownership, expire: OnName) -> None:
    await ownership.rings.bundle_of(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    await expire("broker")
    with pytest.raises(ServiceNotReady):
        await ownership.owner_of(bundle)


async def test_a_new_session_takes_back_what_was_given_up(
    ownership: Ownership, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    old_generation = ownership.owned.generations[bundle]
    await expire("broker")
    await reconnect("broker")
    await settle()
    assert list(ownership.owned.generations) == [bundle]
    assert ownership.owned.generations[bundle] > old_generation


async def test_a_bundle_whose_acquisition_was_not_answered_is_ours_with_the_next_connection(
    ownership: Ownership,
    zookeeper: SimulatedZooKeeper,
    suspend: OnName,
    reconnect: OnName,
    settle: Settle,
) -> None:
    bundle = await ownership.rings.bundle_of(ORDERS)
    looking = asyncio.create_task(ownership.owner(ORDERS))
    while not zookeeper.tree.exists(bundle.path):  # noqa: ASYNC110 - virtual time stands still meanwhile
        await asyncio.sleep(0)
    await suspend("broker")
    with pytest.raises(ConnectionLost):
        await looking
    assert list(ownership.owned.generations) == []
    await reconnect("broker")
    await settle()
    assert list(ownership.owned.generations) == [bundle], (
        "its node sends clients here for as long as it stands"
    )


async def test_a_bundle_that_another_broker_acquired_meanwhile_stays_with_it(
    ownership: Ownership, rival: Ownership, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    await ownership.owner(ORDERS)
    await expire("broker")
    assert (await rival.owner(ORDERS)).is_self
    await reconnect("broker")
    await settle()
    assert list(ownership.owned.generations) == []
    assert (await ownership.owner(ORDERS)).broker_url == THERE.broker_url


async def test_a_lost_connection_alone_costs_no_bundle(
    ownership: Ownership, suspend: OnName, reconnect: OnName, settle: Settle
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    generation = ownership.owned.generations[bundle]
    await suspend("broker")
    assert ownership.owns(ORDERS)
    await reconnect("broker")
    await settle()
    assert ownership.owned.generations[bundle] == generation
    assert lost == []


async def test_what_is_owned_is_the_same_ownership_when_zookeeper_was_away(
    ownership: Ownership, zookeeper: SimulatedZooKeeper, settle: Settle
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    generation = ownership.owned.generations[bundle]
    ring = await ownership.rings.ring_of(bundle.namespace)
    other = next(each for each in ring.bundles if each != bundle)
    zookeeper.go_away()
    await asyncio.sleep(AWAY_S)
    assert (await ownership.owner(ORDERS)).is_self
    with pytest.raises(ServiceNotReady):  # at once, and not when a request's time is over
        await asyncio.wait_for(ownership.owner_of(other), 1)
    zookeeper.come_back(keeps_sessions=True)
    await settle()
    assert ownership.owned.generations[bundle] == generation
    assert lost == []


async def test_a_fenced_log_ends_an_ownership_that_cannot_be_confirmed(
    ownership: Ownership, rival: Ownership, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    await expire("broker")
    await rival.owner(ORDERS)
    for _ in range(2):  # of two topics, say
        ownership.suspect(ORDERS)
    assert lost == [bundle]
    assert not ownership.owns(ORDERS)
    await reconnect("broker")
    await settle()
    assert lost == [bundle]
    assert (await ownership.owner(ORDERS)).broker_url == THERE.broker_url


async def test_a_bundle_that_was_suspected_for_nothing_stays_or_is_taken_back(
    ownership: Ownership, suspend: OnName, reconnect: OnName, settle: Settle
) -> None:
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    ownership.suspect(ORDERS)
    await settle()
    assert list(ownership.owned.generations) == [bundle], (
        "ZooKeeper says that it is still this broker's"
    )
    await suspend("broker")
    ownership.suspect(ORDERS)
    assert list(ownership.owned.generations) == []
    await reconnect("broker")
    await settle()
    assert list(ownership.owned.generations) == [bundle]


async def test_a_node_that_was_made_anew_is_another_ownership(
    ownership: Ownership, zookeeper: SimulatedZooKeeper, coordination: Coordination, settle: Settle
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    value, _ = zookeeper.tree.get(bundle.path)
    zookeeper.tree.delete(bundle.path)
    zookeeper.tree.create(bundle.path, value, coordination.session_id)
    await settle()
    assert lost == [bundle]


async def test_a_node_deleted_behind_our_back_is_noticed(
    ownership: Ownership, session: Session, settle: Settle
) -> None:
    lost: list[Bundle] = []
    ownership.owned.on_lost.append(lost.append)
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    await session("other").delete(bundle.path)
    await settle()
    assert lost == [bundle]
    assert (await ownership.owner(ORDERS)).is_self


async def test_a_node_taken_behind_our_back_is_noticed(
    ownership: Ownership, rival: Ownership, session: Session, settle: Settle
) -> None:
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    await session("other").delete(bundle.path)
    await rival.owner(ORDERS)
    await settle()
    assert list(ownership.owned.generations) == []
    assert not (await ownership.owner(ORDERS)).is_self


async def test_unloading_closes_topics_before_another_broker_may_have_them(
    ownership: Ownership, rival: Ownership, settle: Settle
) -> None:
    order: list[str] = []
    closed = asyncio.Event()

    async def close_topics(bundle: Bundle, _: Successor) -> None:
        order.append(f"closing, owns: {ownership.owns(ORDERS)}")
        await closed.wait()
        order.append(f"closed, rival's: {(await rival.owner_of(bundle)).is_self}")

    ownership.owned.on_release.append(close_topics)
    await ownership.owner(ORDERS)
    bundle = await ownership.rings.bundle_of(ORDERS)
    unloading = asyncio.ensure_future(ownership.unload(bundle))
    await settle()
    closed.set()
    await unloading
    assert order == ["closing, owns: False", "closed, rival's: False"]
    await settle()
    assert (await rival.owner(ORDERS)).is_self
    assert not (await ownership.owner(ORDERS)).is_self


async def test_a_lookup_during_unloading_waits_for_its_end(
    ownership: Ownership, settle: Settle
) -> None:
    closed = asyncio.Event()

    async def close_topics(_: Bundle, __: Successor) -> None:
        await closed.wait()

    ownership.owned.on_release.append(close_topics)
    await ownership.owner(ORDERS)
    unloading = asyncio.ensure_future(ownership.unload(await ownership.rings.bundle_of(ORDERS)))
    await settle()
    assert not ownership.owns(ORDERS)
    asking = asyncio.ensure_future(ownership.owner(ORDERS))
    await settle()
    assert not asking.done()
    closed.set()
    await unloading
    assert (await asking).is_self


async def test_only_what_is_ours_can_be_unloaded(ownership: Ownership) -> None:
    with pytest.raises(NotOwned):
        await ownership.unload(await ownership.rings.bundle_of(ORDERS))


async def test_a_namespace_is_unloaded_as_a_whole(ownership: Ownership) -> None:
    for number in range(50):
        await ownership.owner(TopicName.parse(f"persistent://acme/shop/t{number}"))
    assert len(ownership.owned.generations) == 4
    await ownership.unload_namespace(SHOP)
    assert list(ownership.owned.generations) == []


async def test_each_bundle_takes_its_own_topics_along_and_those_that_are_in_none_of_ours(
    ownership: Ownership,
) -> None:
    topics = [TopicName.parse(f"persistent://acme/shop/t{number}") for number in range(50)]
    taken: dict[TopicName, list[Bundle]] = {topic: [] for topic in topics}

    async def note(bundle: Bundle, _: Successor) -> None:
        for topic in topics:
            if ownership.leaves_with(bundle, topic):
                taken[topic].append(bundle)

    ownership.owned.on_release.append(note)
    at = {topic: await ownership.rings.bundle_of(topic) for topic in topics}
    for topic in topics:
        await ownership.owner(topic)
    await ownership.unload_namespace(SHOP)
    assert taken == {topic: [bundle] for topic, bundle in at.items()}
    assert all(ownership.leaves_with(at[topics[0]], topic) for topic in topics)


async def test_closing_lets_others_begin_at_once(
    coordination: Coordination, rival: Ownership
) -> None:
    async with Ownership(coordination, Namespaces(coordination), HERE) as closing:
        await closing.owner(ORDERS)
    assert (await rival.owner(ORDERS)).is_self
    with pytest.raises(ServiceNotReady):
        await closing.owner(ORDERS)


async def test_a_brokers_own_namespace_is_served_by_no_other_broker(
    ownership: Ownership, rival: Ownership
) -> None:
    ours = TopicName.parse(f"persistent://pulsar/{HERE.broker_id}/healthcheck")
    with pytest.raises(ServiceNotReady):
        await rival.owner(ours)
    assert (await ownership.owner(ours)).is_self
    owner = await rival.owner(ours)
    assert (owner.is_self, owner.broker_url) == (False, HERE.broker_url)


async def test_a_bundle_that_its_owner_is_giving_up_has_no_owner_to_name(
    ownership: Ownership, session: Session
) -> None:
    bundle = await ownership.rings.bundle_of(ORDERS)
    record = BundleOwner(native_url=THERE.broker_url, http_url=THERE.http_url, disabled=True)
    other = session("other")
    await other.create(bundle.path, record.encode(), ephemeral=True, make_parents=True)
    with pytest.raises(ServiceNotReady, match="is giving it up"):
        await ownership.owner(ORDERS)
    await other.delete(bundle.path)
    assert (await ownership.owner(ORDERS)).is_self
