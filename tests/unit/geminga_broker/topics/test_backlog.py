"""A topic keeps its backlog within its quotas, and follows its namespace's policies at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    producer_of,
    publish,
    resolver_over,
)
from tests.unit.geminga_broker.log.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import ProducerHeldByQuota, ProducerRefusedByQuota
from geminga_broker.metadata.errors import NamespaceNotFound
from geminga_broker.policies.backlog import BacklogConfig, BacklogQuotas, Quota, QuotaPolicy
from geminga_broker.policies.unacknowledged import UnacknowledgedLimits
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.persistent import PersistentTopic
from geminga_broker.topics.producing.producers import Producer
from geminga_broker.topics.topic import SubscribeRequest
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.payload import encode_payload
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.namespaces import (
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import ConnectionLost, Coordination

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
    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(
        logs, SystemClock(), owns=lambda _: True, policies=resolver_over(logs, policies.of)
    ) as topics:
        yield topics


@pytest.fixture
async def topic(topics: TopicDirectory) -> PersistentTopic:
    """The topic under test, with one subscription."""
    topic = await topics.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    await topic.create_subscription("slow")
    return topic


class Connected:
    """A producer that notes whether the topic let it go."""

    def __init__(self, name: str = "p") -> None:
        self.closed = 0
        self.producer = producer_of(NotedSession(), name, on_closed=self._note)

    def _note(self, _: Producer) -> None:
        self.closed += 1


def payload(age_s: int) -> bytes:
    published_ms = SystemClock().wall_ms() - age_s * 1000
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=published_ms)
    return encode_payload(metadata, b"x" * 1000)


async def published(topic: PersistentTopic, *ages_s: int) -> Connected:
    """A producer that has published messages of these ages, stored by now."""
    connected = Connected()
    await topic.connect_producer(connected.producer)
    items = [(payload(age_s), 1, connected.producer, 0, 0) for age_s in ages_s]
    connected.producer.append_all(items)
    await asyncio.sleep(1)
    assert topic.messages_in == len(ages_s)
    return connected


async def test_only_what_durable_subscriptions_left_is_backlog(topics: TopicDirectory) -> None:
    topic = await topics.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    reader = SubscribeRequest(
        "reader", SubscriptionType.EXCLUSIVE, is_durable=False, starts_at_earliest=True
    )
    await topic.subscribe(reader)
    await published(topic, 0, 0)
    assert topic.backlog.size_bytes == 0
    assert await topic.backlog.oldest_s() is None
    await topic.create_subscription("slow", from_earliest=True)
    assert topic.backlog.size_bytes == topic.managed_ledger.chain.total_bytes


@pytest.mark.parametrize(
    ("policy", "error"), [(HOLD, ProducerHeldByQuota), (REFUSE, ProducerRefusedByQuota)]
)
async def test_producers_are_refused_while_the_backlog_is_too_large(
    policy: QuotaPolicy, error: type[Exception], topic: PersistentTopic
) -> None:
    first = await published(topic, 0, 0, 0)
    topic.backlog.quotas = BacklogQuotas(size=Quota(topic.backlog.size_bytes, policy))
    with pytest.raises(error, match="backlog quota exceeded"):
        await topic.connect_producer(Connected("q").producer)
    assert first.closed == 0
    await topic.enforce_quotas()
    assert first.closed == 1
    assert not len(topic.producers)
    topic.backlog.quotas = BacklogQuotas(size=Quota(topic.backlog.size_bytes + 1, policy))
    await topic.connect_producer(Connected("q").producer)


@pytest.mark.parametrize(
    ("policy", "error"), [(HOLD, ProducerHeldByQuota), (REFUSE, ProducerRefusedByQuota)]
)
async def test_producers_are_refused_while_the_backlog_is_too_old(
    policy: QuotaPolicy, error: type[Exception], topic: PersistentTopic
) -> None:
    first = await published(topic, 2 * HOUR_S, 0)
    topic.backlog.quotas = BacklogQuotas(age=Quota(HOUR_S, policy))
    with pytest.raises(error, match="backlog quota exceeded"):
        await topic.connect_producer(Connected("q").producer)
    assert topic.backlog.oldest is not None
    assert topic.backlog.oldest.subscription == "slow"
    await topic.enforce_quotas()
    assert first.closed == 1
    topic.backlog.quotas = BacklogQuotas(age=Quota(3 * HOUR_S, policy))
    await topic.connect_producer(Connected("q").producer)


async def test_an_eviction_by_size_leaves_the_newest_and_every_producer(
    topic: PersistentTopic,
) -> None:
    producer = await published(topic, *[0] * 20)
    limit = topic.backlog.size_bytes // 2
    topic.backlog.quotas = BacklogQuotas(size=Quota(limit, EVICT))
    await topic.connect_producer(Connected("q").producer)
    await topic.enforce_quotas()
    assert 0.8 * limit < topic.backlog.size_bytes <= 0.9 * limit
    assert topic.subscribing.named("slow").cursor.backlog_entries == 9
    assert producer.closed == 0
    await topic.enforce_quotas()
    assert topic.subscribing.named("slow").cursor.backlog_entries == 9


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE])
async def test_a_connected_consumer_is_sent_what_an_eviction_left(
    kind: SubscriptionType, topic: PersistentTopic
) -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    subscription = await topic.subscribe(SubscribeRequest("slow", kind))
    subscription.connected(consumer)
    await published(topic, *[0] * 20)
    topic.backlog.quotas = BacklogQuotas(size=Quota(topic.backlog.size_bytes // 2, EVICT))
    await topic.enforce_quotas()
    subscription.flow(consumer, 100)
    await asyncio.sleep(1)
    assert [entry_id for _, entry_id in session.positions()] == list(range(11, 20))


async def full_consumer(topic: PersistentTopic) -> NotedSession:
    """What a consumer is sent that holds as much as it may, with permits for more."""
    session = NotedSession()
    consumer = consumer_of(session)
    subscription = await topic.subscribe(SubscribeRequest("slow", SubscriptionType.SHARED))
    subscription.limit_unacknowledged(UnacknowledgedLimits(per_consumer=5))
    subscription.connected(consumer)
    subscription.flow(consumer, 100)
    await publish(topic, *[1] * 20)
    assert len(session.positions()) == 5
    return session


async def test_who_held_what_was_evicted_is_sent_what_was_left_at_once(
    topic: PersistentTopic,
) -> None:
    session = await full_consumer(topic)
    topic.backlog.quotas = BacklogQuotas(size=Quota(topic.backlog.size_bytes // 2, EVICT))
    await topic.enforce_quotas()
    assert [entry_id for _, entry_id in session.positions()[5:]] == list(range(11, 16))


async def test_who_held_what_was_deleted_is_sent_what_comes(topic: PersistentTopic) -> None:
    session = await full_consumer(topic)
    await topic.truncate()
    await publish(topic, 1, 1)
    assert len(session.positions()) == 7


async def test_an_eviction_by_age_leaves_what_is_young(topic: PersistentTopic) -> None:
    producer = await published(topic, 3 * HOUR_S, 2 * HOUR_S, 57 * 60, 50 * 60, 0)
    topic.backlog.quotas = BacklogQuotas(age=Quota(HOUR_S, EVICT))
    await topic.enforce_quotas()
    assert topic.subscribing.named("slow").cursor.backlog_entries == 2
    assert producer.closed == 0


async def test_a_backlog_within_its_quotas_is_left_alone(
    topic: PersistentTopic, topics: TopicDirectory
) -> None:
    producer = await published(topic, HOUR_S)
    quotas = BacklogQuotas(size=Quota(10_000, EVICT), age=Quota(2 * HOUR_S, REFUSE))
    topic.backlog.quotas = quotas
    await topics.enforce_quotas()
    assert producer.closed == 0
    assert topic.subscribing.named("slow").cursor.backlog_entries == 1
    await topic.connect_producer(Connected("q").producer)


async def test_a_topic_whose_oldest_message_cannot_be_read_goes_on(
    topic: PersistentTopic,
    topics: TopicDirectory,
    ledgers: MemoryLedgers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = await published(topic, HOUR_S)
    await topics.unload(NAME)
    assert producer.closed == 1
    again = await topics.get(NAME, create=False)
    assert isinstance(again, PersistentTopic)
    again.backlog.quotas = BacklogQuotas(age=Quota(1, REFUSE))
    del ledgers.entries[0]
    await topics.enforce_quotas()
    assert "backlog quota not checked" in caplog.text


async def test_a_new_topic_has_the_namespaces_policies_from_the_beginning(
    policies: NamespacePolicies, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    policies.now = Policies(
        persistence=PersistencePolicies(ensemble=3, write_quorum=3, ack_quorum=2),
        retention=RetentionPolicies(time_minutes=1, size_mib=-1),
    )
    topic = await topics.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    assert ledgers.quorums == [(3, 3, 2)]
    assert topic.managed_ledger.retention.time_ms == 60_000


async def test_a_topic_of_a_namespace_without_policies_follows_the_settings(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    async def of(namespace: NamespaceName) -> Policies:
        raise NamespaceNotFound(str(namespace))  # a broker's own, for its health check

    logs = logs_over(coordination, ledgers)
    backlog = BacklogConfig(
        backlog_quota_bytes=10, backlog_quota_policy="consumer_backlog_eviction"
    )
    async with TopicDirectory(
        logs, SystemClock(), owns=lambda _: True, policies=resolver_over(logs, of, backlog=backlog)
    ) as topics:
        topic = await topics.get(NAME, create=True)
        assert isinstance(topic, PersistentTopic)
        assert topic.backlog.quotas == BacklogQuotas(size=Quota(10, EVICT))
        assert ledgers.quorums == [(1, 1, 1)]


async def test_a_topic_whose_policies_cannot_be_read_is_not_left_open(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    answers = [Policies()]

    async def of(_: NamespaceName) -> Policies:
        if not answers:
            raise ConnectionLost("the policies")
        return answers.pop()

    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(
        logs, SystemClock(), owns=lambda _: True, policies=resolver_over(logs, of)
    ) as topics:
        with pytest.raises(ConnectionLost):
            await topics.get(NAME, create=True)
        assert ledgers.writers[0].is_closed
        answers += [Policies(), Policies()]
        await topics.get(NAME, create=False)


async def test_changed_policies_hold_for_the_next_ledgers_of_logs_and_cursors(
    topic: PersistentTopic, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    await published(topic, 0)
    assert set(ledgers.quorums) == {(1, 1, 1)}
    count = len(ledgers.quorums)
    persistence = PersistencePolicies(ensemble=3, write_quorum=2, ack_quorum=2)
    topics.apply_policies(NAME.namespace, Policies(persistence=persistence))
    topics.apply_policies(NamespaceName("t", "other"), Policies())
    await topic.managed_ledger.roll_over()
    await topic.subscribing.named("slow").seek(topic.managed_ledger.chain.last_confirmed)
    assert ledgers.quorums[count:] == [(3, 2, 2), (3, 2, 2)]
    topics.apply_policies(NAME.namespace, Policies())
    await topic.managed_ledger.trim()
    assert list(topics.namespaces()) == [NAME.namespace]


async def test_retention_that_ends_lets_ledgers_go_at_once(
    topic: PersistentTopic, topics: TopicDirectory
) -> None:
    keep = Policies(retention=RetentionPolicies(time_minutes=-1, size_mib=-1))
    topics.apply_policies(NAME.namespace, keep)
    await published(topic, 0)
    await topic.managed_ledger.roll_over()
    cursor = topic.subscribing.named("slow").cursor
    cursor.acknowledged.acknowledge_upto(topic.managed_ledger.chain.last_confirmed)
    await topic.managed_ledger.trim()
    assert len(topic.managed_ledger.chain.spans) == 2
    topics.apply_policies(NAME.namespace, Policies())
    await asyncio.sleep(1)
    assert len(topic.managed_ledger.chain.spans) == 1
