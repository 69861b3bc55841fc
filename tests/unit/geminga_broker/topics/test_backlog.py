"""A topic keeps its backlog within its quotas, and follows its namespace's policies at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    maintain,
    producer_of,
    publish,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import ProducerHeldByQuota, ProducerRefusedByQuota
from geminga_broker.policies.backlog import BacklogConfig, BacklogQuotas, Quota, QuotaPolicy
from geminga_broker.policies.unacknowledged import UnacknowledgedLimits
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.backlog import Backlog
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import (
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

NAME = TopicName.parse("persistent://t/n/topic")
HOLD = QuotaPolicy.HOLD_PRODUCERS
REFUSE = QuotaPolicy.REFUSE_PRODUCERS
EVICT = QuotaPolicy.EVICT_BACKLOG
HOUR_S = 3600


class NamespacePolicies:
    """The policies of every namespace."""

    def __init__(self) -> None:
        self.now = Policies()

    async def of(self, _: NamespaceName) -> Policies:
        return self.now


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """The cluster's ledgers."""
    return MemoryLedgers()


@pytest.fixture
def policies() -> NamespacePolicies:
    """What the namespace's record says."""
    return NamespacePolicies()


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers, policies: NamespacePolicies
) -> AsyncIterator[TopicDirectory]:
    """Where the topic under test is opened."""
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, policies.of),
    ) as topics:
        yield topics


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """The topic under test, with one subscription."""
    topic = await topics.get(NAME, create=True)
    await topic.subscribing.create("slow")
    return topic


class Connected:
    """A producer that notes whether the topic let it go."""

    def __init__(self, name: str = "p") -> None:
        self.closed = 0
        self.producer = producer_of(NotedSession(), name, on_closed=self._note)

    def _note(self, _: Producer) -> None:
        self.closed += 1


def payload(age_s: int) -> bytes:
    published_ms = SimulatedClock().wall_ms() - age_s * 1000
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=published_ms)
    return encode_payload(metadata, b"x" * 1000)


async def published(topic: Topic, *ages_s: int) -> Connected:
    """A producer that has published messages of these ages, stored by now."""
    connected = Connected()
    await topic.publishing.connect(connected.producer)
    items = [(payload(age_s), 1, connected.producer, 0, 0) for age_s in ages_s]
    connected.producer.append_all(items)
    await asyncio.sleep(1)
    assert topic.publishing.messages_in == len(ages_s)
    return connected


async def test_only_what_durable_subscriptions_left_is_backlog(topics: TopicDirectory) -> None:
    topic = await topics.get(NAME, create=True)
    reader = SubscribeRequest(
        "reader", SubscriptionType.EXCLUSIVE, is_durable=False, starts_at_earliest=True
    )
    await topic.subscribing.subscribe(reader)
    await published(topic, 0, 0)
    assert topic.part(Backlog).size_bytes == 0
    assert await topic.part(Backlog).oldest_s() is None
    await topic.subscribing.create("slow", from_earliest=True)
    assert topic.part(Backlog).size_bytes == topic.managed_ledger.chain.total_bytes


@pytest.mark.parametrize("policy", [HOLD, EVICT])
async def test_a_check_that_moves_no_cursor_wakes_no_subscription(
    policy: QuotaPolicy, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await published(topic, 0, 0)
    woken = list[str]()
    monkeypatch.setattr(Subscription, "entries_available", lambda self: woken.append(self.name))
    hold_to(topic, BacklogQuotas(size=Quota(topic.part(Backlog).size_bytes + 1, policy)))
    await topic.part(Backlog).maintain()
    assert woken == []
    hold_to(topic, BacklogQuotas(size=Quota(1, policy)))
    await topic.part(Backlog).maintain()
    assert woken == (["slow"] if policy is EVICT else [])


@pytest.mark.parametrize(
    ("policy", "error"), [(HOLD, ProducerHeldByQuota), (REFUSE, ProducerRefusedByQuota)]
)
async def test_producers_are_refused_while_the_backlog_is_too_large(
    policy: QuotaPolicy, error: type[Exception], topic: Topic
) -> None:
    first = await published(topic, 0, 0, 0)
    hold_to(topic, BacklogQuotas(size=Quota(topic.part(Backlog).size_bytes, policy)))
    with pytest.raises(error, match="backlog quota exceeded"):
        await topic.publishing.connect(Connected("q").producer)
    assert first.closed == 0
    await topic.part(Backlog).maintain()
    assert first.closed == 1
    assert not len(topic.publishing.producers.by_name)
    hold_to(topic, BacklogQuotas(size=Quota(topic.part(Backlog).size_bytes + 1, policy)))
    await topic.publishing.connect(Connected("q").producer)


@pytest.mark.parametrize(
    ("policy", "error"), [(HOLD, ProducerHeldByQuota), (REFUSE, ProducerRefusedByQuota)]
)
async def test_producers_are_refused_while_the_backlog_is_too_old(
    policy: QuotaPolicy, error: type[Exception], topic: Topic
) -> None:
    first = await published(topic, 2 * HOUR_S, 0)
    hold_to(topic, BacklogQuotas(age=Quota(HOUR_S, policy)))
    with pytest.raises(error, match="backlog quota exceeded"):
        await topic.publishing.connect(Connected("q").producer)
    oldest = topic.part(Backlog).oldest
    assert oldest is not None
    assert oldest.subscription == "slow"
    await topic.part(Backlog).maintain()
    assert first.closed == 1
    hold_to(topic, BacklogQuotas(age=Quota(3 * HOUR_S, policy)))
    await topic.publishing.connect(Connected("q").producer)


async def test_an_eviction_by_size_leaves_the_newest_and_every_producer(
    topic: Topic,
) -> None:
    producer = await published(topic, *[0] * 20)
    limit = topic.part(Backlog).size_bytes // 2
    hold_to(topic, BacklogQuotas(size=Quota(limit, EVICT)))
    await topic.publishing.connect(Connected("q").producer)
    await topic.part(Backlog).maintain()
    assert 0.8 * limit < topic.part(Backlog).size_bytes <= 0.9 * limit
    assert topic.part(PersistentSubscriptions).named("slow").cursor.backlog_entries == 9
    assert producer.closed == 0
    await topic.part(Backlog).maintain()
    assert topic.part(PersistentSubscriptions).named("slow").cursor.backlog_entries == 9


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE])
async def test_a_connected_consumer_is_sent_what_an_eviction_left(
    kind: SubscriptionType, topic: Topic
) -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    subscription = await topic.subscribing.subscribe(SubscribeRequest("slow", kind))
    subscription.connected(consumer)
    await published(topic, *[0] * 20)
    hold_to(topic, BacklogQuotas(size=Quota(topic.part(Backlog).size_bytes // 2, EVICT)))
    await topic.part(Backlog).maintain()
    subscription.flow(consumer, 100)
    await asyncio.sleep(1)
    assert [entry_id for _, entry_id in session.positions()] == list(range(11, 20))


def hold_to(topic: Topic, quotas: BacklogQuotas) -> None:
    """Let ``topic`` have these quotas."""
    topic.apply(replace(topic.policies, quotas=quotas))


async def full_consumer(topic: Topic) -> NotedSession:
    """What a consumer is sent that holds as much as it may, with permits for more."""
    few = UnacknowledgedLimits(per_consumer=5)
    topic.apply(replace(topic.policies, unacknowledged=few))
    session = NotedSession()
    consumer = consumer_of(session)
    subscription = await topic.subscribing.subscribe(
        SubscribeRequest("slow", SubscriptionType.SHARED)
    )
    subscription.connected(consumer)
    subscription.flow(consumer, 100)
    await publish(topic, *[1] * 20)
    assert len(session.positions()) == 5
    return session


async def test_a_consumer_that_held_evicted_messages_is_sent_those_left_at_once(
    topic: Topic,
) -> None:
    session = await full_consumer(topic)
    hold_to(topic, BacklogQuotas(size=Quota(topic.part(Backlog).size_bytes // 2, EVICT)))
    await topic.part(Backlog).maintain()
    assert [entry_id for _, entry_id in session.positions()[5:]] == list(range(11, 16))


async def test_a_consumer_that_held_deleted_messages_is_sent_new_ones(topic: Topic) -> None:
    session = await full_consumer(topic)
    await topic.truncate()
    await publish(topic, 1, 1)
    assert len(session.positions()) == 7


async def test_an_eviction_by_age_leaves_what_is_young(topic: Topic) -> None:
    producer = await published(topic, 3 * HOUR_S, 2 * HOUR_S, 57 * 60, 50 * 60, 0)
    hold_to(topic, BacklogQuotas(age=Quota(HOUR_S, EVICT)))
    await topic.part(Backlog).maintain()
    assert topic.part(PersistentSubscriptions).named("slow").cursor.backlog_entries == 2
    assert producer.closed == 0


async def test_a_backlog_within_its_quotas_is_left_alone(
    topic: Topic, topics: TopicDirectory
) -> None:
    producer = await published(topic, HOUR_S)
    quotas = BacklogQuotas(size=Quota(10_000, EVICT), age=Quota(2 * HOUR_S, REFUSE))
    hold_to(topic, quotas)
    await maintain(topics, Backlog)
    assert producer.closed == 0
    assert topic.part(PersistentSubscriptions).named("slow").cursor.backlog_entries == 1
    await topic.publishing.connect(Connected("q").producer)


async def test_a_topic_whose_oldest_message_cannot_be_read_goes_on(
    topic: Topic,
    topics: TopicDirectory,
    ledgers: MemoryLedgers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = await published(topic, HOUR_S)
    await topics.unload(NAME)
    assert producer.closed == 1
    again = await topics.get(NAME, create=False)
    hold_to(again, BacklogQuotas(age=Quota(1, REFUSE)))
    del ledgers.entries[0]
    await maintain(topics, Backlog)
    (record,) = caplog.records
    assert (record.message, record.__dict__["part"]) == ("topic maintenance failed", "Backlog")


async def test_a_new_topic_has_the_namespaces_policies_from_the_beginning(
    policies: NamespacePolicies, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    policies.now = Policies(
        persistence=PersistencePolicies(ensemble=3, write_quorum=3, ack_quorum=2),
        retention=RetentionPolicies(time_minutes=1, size_mib=-1),
    )
    topic = await topics.get(NAME, create=True)
    assert ledgers.quorums == [(3, 3, 2)]
    assert topic.managed_ledger.trimmer.retention.time_ms == 60_000


async def test_a_topic_of_a_namespace_without_policies_follows_the_settings(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    async def of(namespace: NamespaceName) -> Policies:
        raise NamespaceNotFound(str(namespace))  # a broker's own, for its health check

    factory = logs_over(coordination, ledgers)
    backlog = BacklogConfig(
        backlog_quota_bytes=10, backlog_quota_policy="consumer_backlog_eviction"
    )
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, of, backlog=backlog),
    ) as topics:
        topic = await topics.get(NAME, create=True)
        assert topic.policies.quotas == BacklogQuotas(size=Quota(10, EVICT))
        assert ledgers.quorums == [(1, 1, 1)]


async def test_a_topic_whose_policies_cannot_be_read_is_not_left_open(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    answers = [Policies()]

    async def of(_: NamespaceName) -> Policies:
        if not answers:
            raise ConnectionLost("the policies")
        return answers.pop()

    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, of),
    ) as topics:
        with pytest.raises(ConnectionLost):
            await topics.get(NAME, create=True)
        assert ledgers.writers[0].is_closed
        answers += [Policies(), Policies()]
        await topics.get(NAME, create=False)


async def test_changed_policies_hold_for_the_next_ledgers_of_logs_and_cursors(
    topic: Topic, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    await published(topic, 0)
    assert set(ledgers.quorums) == {(1, 1, 1)}
    count = len(ledgers.quorums)
    persistence = PersistencePolicies(ensemble=3, write_quorum=2, ack_quorum=2)
    topics.apply_policies(NAME.namespace, Policies(persistence=persistence))
    topics.apply_policies(NamespaceName("t", "other"), Policies())
    await topic.managed_ledger.roll_over()
    await (
        topic.part(PersistentSubscriptions)
        .named("slow")
        .seek(topic.managed_ledger.chain.last_confirmed)
    )
    assert ledgers.quorums[count:] == [(3, 2, 2), (3, 2, 2)]
    topics.apply_policies(NAME.namespace, Policies())
    await topic.managed_ledger.trimmer.trim()
    assert list(topics.namespaces()) == [NAME.namespace]


async def test_retention_that_ends_lets_ledgers_go_at_once(
    topic: Topic, topics: TopicDirectory
) -> None:
    keep = Policies(retention=RetentionPolicies(time_minutes=-1, size_mib=-1))
    topics.apply_policies(NAME.namespace, keep)
    await published(topic, 0)
    await topic.managed_ledger.roll_over()
    cursor = topic.part(PersistentSubscriptions).named("slow").cursor
    cursor.acknowledged.acknowledge_upto(topic.managed_ledger.chain.last_confirmed)
    cursor.changed()
    await asyncio.sleep(1)
    await topic.managed_ledger.trimmer.trim()
    assert len(topic.managed_ledger.chain.spans) == 2
    topics.apply_policies(NAME.namespace, Policies())
    await asyncio.sleep(1)
    assert len(topic.managed_ledger.chain.spans) == 1
