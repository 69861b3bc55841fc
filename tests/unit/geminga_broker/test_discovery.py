"""Proves that discovery answers when the broker is open, from the cluster's records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from geminga_broker.discovery import Discovery
from geminga_broker.errors import NotAllowed, TopicNotFound
from geminga_broker.non_persistent_topics import NonPersistentTopics
from geminga_broker.ownership.addresses.address import BrokerAddress, Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics, topic_path
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import AutoTopicCreation
from geminga_runtime.coordination import Coordination
from geminga_server.errors import ServerUnreachable

Settle = Callable[[], Awaitable[None]]
Session = Callable[[str], Coordination]
PARTED = TopicName.parse("persistent://public/default/parted")
ELSEWHERE = TopicName.parse("non-persistent://public/default/elsewhere")
VOLATILE = TopicName.parse("non-persistent://public/default/volatile")
URLS = ClusterUrls("http://here:8080", "pulsar://here:6650")


@pytest.fixture
def asked() -> list[Bundle]:
    """The bundles that other brokers were asked about."""
    return []


@pytest.fixture
def unreachable() -> set[Bundle]:
    """Bundles whose owners do not answer."""
    return set()


@pytest.fixture
async def there(discovery: Discovery, session: Session) -> AsyncIterator[Ownership]:
    """What another broker of the same cluster owns."""
    del discovery  # only for the cluster
    other = session("there")
    address = BrokerAddress("there:8080", "pulsar://there:6650", "http://there:8080")
    async with Ownership(other, Namespaces(other), address) as opened:
        yield opened


@pytest.fixture
async def discovery(
    coordination: Coordination, asked: list[Bundle], unreachable: set[Bundle]
) -> Discovery:
    """Discovery of an initialized cluster with one topic of three partitions; not open yet."""

    async def ask(bundle: Bundle, owner: Owner) -> list[TopicName]:
        asked.append(bundle)
        if bundle in unreachable:
            raise ServerUnreachable(f"{owner.http_url} does not answer")
        return [ELSEWHERE]

    await initialize_cluster_metadata(coordination, "standalone", URLS, instance_id="i")
    namespaces, partitioned = Namespaces(coordination), PartitionedTopics(coordination)
    await partitioned.create(PARTED, 3)
    address = BrokerAddress("here:8080", "pulsar://here:6650", "http://here:8080")
    ownership = Ownership(coordination, namespaces, address)
    return Discovery(
        ownership,
        namespaces,
        partitioned,
        PersistentTopics(coordination),
        NonPersistentTopics(ownership, here=lambda _: [VOLATILE], ask_owner=ask),
        auto_creation=AutoCreationConfig(),
    )


async def test_who_asks_before_the_broker_is_open_waits(
    discovery: Discovery, settle: Settle
) -> None:
    asking = asyncio.ensure_future(discovery.partitions(PARTED, create=False))
    await settle()
    assert not asking.done()
    discovery.is_open.set()
    assert await asking == 3


async def test_a_partition_has_no_partitions(discovery: Discovery) -> None:
    discovery.is_open.set()
    assert await discovery.partitions(PARTED.partition(1), create=True) == 0
    assert await discovery.partitions(VOLATILE, create=True) == 0


async def test_a_namespace_that_is_not_there_is_said_for_a_topic_and_is_empty_for_a_list(
    discovery: Discovery,
) -> None:
    discovery.is_open.set()
    with pytest.raises(NamespaceNotFound):
        await discovery.partitions(TopicName.parse("public/nowhere/topic"), create=True)
    nowhere = NamespaceName.parse("nobody/nowhere")
    assert await discovery.persistent_topics_of(nowhere) == []
    assert await discovery.non_persistent_topics_of(nowhere) == []


async def test_non_persistent_topics_are_those_of_this_broker_and_of_every_other_owner(
    discovery: Discovery,
    there: Ownership,
    asked: list[Bundle],
) -> None:
    discovery.is_open.set()
    assert await discovery.non_persistent_topics_of(VOLATILE.namespace) == [VOLATILE]
    assert asked == [], "no other broker owns a bundle"
    await there.owner(ELSEWHERE)
    topics = await discovery.non_persistent_topics_of(VOLATILE.namespace)
    assert topics == [ELSEWHERE, VOLATILE]
    assert asked == [await there.rings.bundle_of(ELSEWHERE)], (
        "its owner, for its bundle, and no other"
    )


async def test_the_owner_of_a_non_persistent_topic_is_asked_whether_it_is_there(
    discovery: Discovery, there: Ownership, unreachable: set[Bundle], settle: Settle
) -> None:
    discovery.is_open.set()
    assert await discovery.partitions(VOLATILE, create=False) == 0
    with pytest.raises(TopicNotFound):  # no broker has its bundle
        await discovery.partitions(ELSEWHERE, create=False)
    await there.owner(ELSEWHERE)
    await settle()
    assert await discovery.partitions(ELSEWHERE, create=False) == 0
    bundle = await there.rings.bundle_of(ELSEWHERE)
    beside = [TopicName.parse(f"{ELSEWHERE}-{number}") for number in range(100)]
    missing = next(topic for topic in beside if bundle.covers(topic.hash))
    with pytest.raises(TopicNotFound):
        await discovery.partitions(missing, create=False)
    unreachable.add(bundle)
    with pytest.raises(ServerUnreachable):
        await discovery.partitions(ELSEWHERE, create=False)


async def test_an_owner_that_does_not_answer_leaves_the_list_unknown(
    discovery: Discovery, there: Ownership, unreachable: set[Bundle]
) -> None:
    discovery.is_open.set()
    await there.owner(ELSEWHERE)
    unreachable.add(await there.rings.bundle_of(ELSEWHERE))
    with pytest.raises(ServerUnreachable):
        await discovery.non_persistent_topics_of(VOLATILE.namespace)
    assert len(await discovery.persistent_topics_of(VOLATILE.namespace)) == 3


# Making topics by using them

PLAIN = TopicName.parse("persistent://public/default/plain")
BY_DEFAULT = AutoTopicCreation(allowed=True, topic_type="non-partitioned")
FORBIDDEN = AutoTopicCreation(allowed=False)
IN_THREE = AutoTopicCreation(allowed=True, topic_type="partitioned", default_num_partitions=3)


async def set_rule(coordination: Coordination, rule: AutoTopicCreation) -> None:
    """What holds in public/default from now on."""
    namespaces = Namespaces(coordination)
    await namespaces.update(
        PLAIN.namespace, lambda old: replace(old, auto_topic_creation_override=rule)
    )


async def keep(coordination: Coordination, topic: TopicName) -> None:
    """Let a persistent topic exist."""
    await coordination.create(topic_path(topic), make_parents=True)


async def test_a_topic_is_told_as_if_it_were_there_where_using_it_makes_it(
    discovery: Discovery, coordination: Coordination
) -> None:
    discovery.is_open.set()
    for rule in (None, BY_DEFAULT):
        if rule is not None:
            await set_rule(coordination, rule)
        assert await discovery.may_create(PLAIN)
        assert await discovery.partitions(PLAIN, create=True) == 0
        with pytest.raises(TopicNotFound):
            await discovery.partitions(PLAIN, create=False)
    await keep(coordination, PLAIN)
    assert await discovery.partitions(PLAIN, create=False) == 0


async def test_where_the_namespace_forbids_it_no_topic_is_made(
    discovery: Discovery, coordination: Coordination
) -> None:
    discovery.is_open.set()
    await set_rule(coordination, FORBIDDEN)
    assert not await discovery.may_create(PLAIN)
    with pytest.raises(TopicNotFound, match="plain"):
        await discovery.partitions(PLAIN, create=True)
    await keep(coordination, PLAIN)
    assert await discovery.partitions(PLAIN, create=True) == 0
    assert await discovery.partitions(PARTED, create=True) == 3


async def test_where_topics_are_partitioned_the_question_makes_them_so(
    discovery: Discovery, coordination: Coordination
) -> None:
    discovery.is_open.set()
    await set_rule(coordination, IN_THREE)
    await keep(coordination, PLAIN)
    assert await discovery.partitions(PLAIN, create=True) == 0, "it is there already"
    fresh = TopicName.parse("persistent://public/default/fresh")
    with pytest.raises(TopicNotFound):
        await discovery.partitions(fresh, create=False)
    answers = await asyncio.gather(*(discovery.partitions(fresh, create=True) for _ in range(3)))
    assert answers == [3, 3, 3]
    assert await discovery.partitions(fresh.partition(7), create=True) == 0


async def test_the_brokers_rule_holds_where_a_namespace_has_none(
    discovery: Discovery, coordination: Coordination
) -> None:
    discovery.auto_creation = AutoCreationConfig(auto_topic_creation=False)
    discovery.is_open.set()
    assert not await discovery.may_create(PLAIN)
    system = TopicName.parse("persistent://public/default/__change_events")
    assert await discovery.may_create(system), "brokers need theirs everywhere"
    await set_rule(coordination, BY_DEFAULT)
    assert await discovery.may_create(PLAIN)


async def test_a_partition_is_made_only_of_a_topic_that_has_it(
    discovery: Discovery, coordination: Coordination
) -> None:
    discovery.is_open.set()
    assert await discovery.may_create(PARTED.partition(2))
    with pytest.raises(NotAllowed, match="max allowed 3 partitions"):
        await discovery.may_create(PARTED.partition(3))
    assert await discovery.may_create(PLAIN.partition(0)), "a name like any other"
    assert not await discovery.may_create(VOLATILE.partition(0))
    await PartitionedTopics(coordination).create(VOLATILE, 2)
    await set_rule(coordination, FORBIDDEN)
    assert await discovery.may_create(VOLATILE.partition(1)), "it is as good as made"
    assert await discovery.may_create(PARTED.partition(1)), "it was deleted alone"
    await set_rule(coordination, BY_DEFAULT)
    await PartitionedTopics(coordination).set_deleted(PARTED, deleted=True)
    assert not await discovery.may_create(PARTED.partition(1))
