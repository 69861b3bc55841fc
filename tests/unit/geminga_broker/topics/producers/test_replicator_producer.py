"""Proves that a topic stores what another cluster's replicator sends once, and loses none of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.topics.producers.recognizing_repeats import open_topics, topics_over

from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.publish import PublishConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers.deduplication import UNKNOWN_REASON
from geminga_broker.topics.producers.producer import Producer, ProducerRequest
from geminga_broker.topics.producers.replicator_producer import NO_POSITION, ReplicatorProducer
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.integers import UINT64_MAX
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.messages.replication import replicated_front, replicator_producer
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.coordination import Coordination

NAME = TopicName.parse("persistent://t/n/topic")
REPLICATOR = replicator_producer("east", "standalone")
NOWHERE = (UINT64_MAX, UINT64_MAX)


def directory(
    coordination: Coordination, ledgers: MemoryLedgers, *, snapshot_entries: int = 1000
) -> TopicDirectory:
    publishing = PublishConfig(deduplication=True, deduplication_snapshot_entries=snapshot_entries)
    return topics_over(coordination, ledgers, publishing)


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers
) -> AsyncIterator[TopicDirectory]:
    """The topics of the remote broker."""
    publishing = PublishConfig(deduplication=True)
    async with open_topics(coordination, ledgers, publishing) as topics:
        yield topics


async def connected(
    topics: TopicDirectory, name: str = REPLICATOR, *, is_encrypting: bool = False
) -> tuple[ReplicatorProducer, NotedSession]:
    topic, session = await topics.get(NAME, create=True), NotedSession()
    closed: list[Producer] = []
    request = ProducerRequest(1, name, is_encrypting=is_encrypting)
    producer = ReplicatorProducer(session, request, connected_at_ms=0, on_closed=closed.append)
    producer.is_positioned = True
    await topic.publishing.connect(producer)
    return producer, session


def replicated(metadata: api.MessageMetadata, body: bytes, entry_id: int) -> bytes:
    """A payload as the replicator of ``east`` sends it."""
    front = replicated_front(metadata, memoryview(body), source="east", position=(5, entry_id))
    return front + body


def payload(entry_id: int, *, size: int = 1) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    return replicated(metadata, b"m" * size, entry_id)


def send(producer: Producer, payloads: Iterable[bytes]) -> None:
    requests = [(each, 1, producer, 7, 0) for each in payloads]
    producer.entries_taken += len(requests)
    producer.append_all(requests)


def stored(ledgers: MemoryLedgers) -> list[bytes]:
    return [entry for entries in ledgers.entries.values() for entry in entries]


def receipts(session: NotedSession) -> list[tuple[int, int, bool]]:
    """Source positions, and whether each was a repeat."""
    return [
        (
            each.send_receipt.sequence_id,
            each.send_receipt.highest_sequence_id,
            (each.send_receipt.message_id.ledgerId, each.send_receipt.message_id.entryId)
            == NOWHERE,
        )
        for each in session.commands()
        if each.type == api.BaseCommand.SEND_RECEIPT
    ]


def refusals(session: NotedSession) -> list[str]:
    return [
        each.send_error.message
        for each in session.commands()
        if each.type == api.BaseCommand.SEND_ERROR
    ]


async def settle() -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("comes_together", [True, False])
async def test_what_follows_a_refused_head_is_not_stored_before_it(
    topics: TopicDirectory, ledgers: MemoryLedgers, *, comes_together: bool
) -> None:
    """Upstream's #26113: a source that rewinds would find the head taken for a repeat."""
    producer, session = await connected(topics)
    ledgers.entry_bytes_max = 1000
    payloads = [payload(0, size=2000), payload(1), payload(2)]
    if comes_together:
        send(producer, payloads)
    else:
        send(producer, payloads[:1])
    await settle()
    assert stored(ledgers) == []
    assert receipts(session) == []
    assert len(refusals(session)) == 1
    assert producer.is_closed
    ledgers.entry_bytes_max = 5000
    again, session = await connected(topics)
    send(again, payloads)
    await settle()
    assert stored(ledgers) == payloads
    assert receipts(session) == [(5, 0, False), (5, 1, False), (5, 2, False)]


def delayed(entry_id: int) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    metadata.deliver_at_time = metadata.publish_time + 5000
    return replicated(metadata, b"m", entry_id)


def encrypted(entry_id: int) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    return replicated(metadata, b"m", entry_id)


def limit_delays(policies: EffectivePolicies) -> EffectivePolicies:
    return replace(policies, delayed=replace(policies.delayed, delay_max_ms=1000))


def require_encryption(policies: EffectivePolicies) -> EffectivePolicies:
    return replace(policies, publishing=replace(policies.publishing, requires_encryption=True))


@pytest.mark.parametrize(
    ("refusing", "payloads"),
    [
        (limit_delays, [payload(0), delayed(1), payload(2)]),
        (require_encryption, [encrypted(0), payload(1), encrypted(2)]),
    ],
)
async def test_what_follows_an_entry_that_a_policy_refuses_waits_until_that_changes(
    topics: TopicDirectory,
    ledgers: MemoryLedgers,
    refusing: Callable[[EffectivePolicies], EffectivePolicies],
    payloads: list[bytes],
) -> None:
    """It came in one run with the refused one, which would be a repeat once it is stored."""
    topic = await topics.get(NAME, create=True)
    allowing = topic.policies
    topic.apply(refusing(allowing))
    producer, session = await connected(topics, is_encrypting=True)
    send(producer, payloads)
    await settle()
    assert stored(ledgers) == payloads[:1]
    assert len(refusals(session)) == 1
    assert producer.is_closed
    topic.apply(allowing)
    again, session = await connected(topics)
    send(again, payloads)
    await settle()
    assert stored(ledgers) == payloads
    assert receipts(session) == [(5, 0, True), (5, 1, False), (5, 2, False)]


@pytest.mark.parametrize("snapshot_entries", [2, 1000])
async def test_the_watermark_is_found_in_the_log_after_a_crash(
    coordination: Coordination, ledgers: MemoryLedgers, snapshot_entries: int
) -> None:
    """Upstream's #25861: the topic is loaded again after entries that no snapshot has."""
    payloads = [payload(each) for each in range(5)]
    async with directory(coordination, ledgers, snapshot_entries=snapshot_entries) as crashed:
        producer, _ = await connected(crashed)
        for each in payloads[:3]:
            send(producer, [each])
            await settle()
        async with directory(coordination, ledgers) as next_owner:
            again, session = await connected(next_owner)
            send(again, payloads)
            await settle()
            assert receipts(session) == [(5, each, each < 3) for each in range(5)]
            assert stored(ledgers) == payloads


async def test_the_watermark_survives_an_unload(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, _ = await connected(topics)
    send(producer, [payload(0), payload(1)])
    await settle()
    await topics.unload(NAME)
    again, session = await connected(topics)
    send(again, [payload(1), payload(2)])
    await settle()
    assert receipts(session) == [(5, 1, True), (5, 2, False)]
    assert stored(ledgers)[-1] == payload(2)


async def test_a_repeats_receipt_waits_for_what_was_sent_before(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(topics)
    send(producer, [payload(0)])
    await settle()
    ledgers.is_prompt = False
    send(producer, [payload(1), payload(0)])
    assert receipts(session) == [(5, 0, False)]
    ledgers.writers[-1].confirm()
    assert receipts(session)[1:] == [(5, 1, False), (5, 0, True)]


async def test_an_entry_that_may_be_lost_ends_the_producer(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(topics)
    ledgers.is_prompt = False
    send(producer, [payload(0)])
    send(producer, [payload(0), payload(1)])
    assert refusals(session) == [UNKNOWN_REASON]
    assert producer.is_closed
    ledgers.writers[-1].confirm()
    assert stored(ledgers) == [payload(0)]


async def test_what_is_pending_when_deduplication_is_turned_on_is_not_stored_twice(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    """The source went back, as after each reconnect, while nothing recognized its repeats."""
    topic = await topics.get(NAME, create=True)
    topics.apply_policies(NAME.namespace, Policies(deduplication_enabled=False))
    await settle()
    assert topic.publishing.deduplication is None
    producer, session = await connected(topics)
    ledgers.is_prompt = False
    send(producer, [payload(0), payload(1), payload(2), payload(0)])
    topics.apply_policies(NAME.namespace, Policies(deduplication_enabled=True))
    await settle()
    send(producer, [payload(1)])
    assert refusals(session) == [UNKNOWN_REASON]
    coming = asyncio.ensure_future(connected(topics))
    await settle()
    assert not coming.done()
    ledgers.writers[-1].confirm()
    again, session = await coming
    ledgers.is_prompt = True
    send(again, [payload(1), payload(2), payload(3)])
    await settle()
    assert receipts(session) == [(5, 1, True), (5, 2, True), (5, 3, False)]


async def test_garbage_for_a_position_is_refused_and_ends_the_producer(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(topics)
    metadata = api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    metadata.properties.add(key="__MSG_PROP_REPL_SOURCE_POSITION", value="5:x")
    send(producer, [payload(0), encode_payload(metadata, b"m"), payload(2)])
    await settle()
    assert stored(ledgers) == [payload(0)]
    assert refusals(session) == [NO_POSITION]
    assert producer.is_closed
