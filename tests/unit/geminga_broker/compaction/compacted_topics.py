"""Topics over memory that are published to, compacted, and read, for tests."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of, producer_of
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.compaction.report import CompactionStatus
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.retention import FOR_EVER, KEEP_NOTHING
from geminga_broker.managed_ledger.positions import EARLIEST, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import parse_command
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_payload,
    metadata_bounds,
    parse_metadata,
    split_batch,
)
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_simulation.conditions import INSTANT
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

NAME = TopicName.parse("persistent://t/n/topic")
READER = SubscribeRequest(
    "reader",
    SubscriptionType.EXCLUSIVE,
    is_durable=False,
    start_position=EARLIEST,
    reads_compacted=True,
)
DURABLE = SubscribeRequest(
    "sub", SubscriptionType.EXCLUSIVE, starts_at_earliest=True, reads_compacted=True
)

Keyed = tuple[str, bytes]
Seen = tuple[Position, int, str, bytes]
"""Where a message is, its batch index (-1: no batch), its key, its value."""


def single(key: str, value: bytes, *, time_ms: int = 1) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=time_ms,
        partition_key=key,
        uncompressed_size=len(value),
    )
    return encode_payload(metadata, value)


def chunks(key: str, value: bytes, uuid: str) -> list[bytes]:
    """A message in three parts, of a byte each."""
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        partition_key=key,
        uuid=uuid,
        num_chunks_from_msg=3,
        total_chunk_msg_size=len(value),
    )
    parts: list[bytes] = []
    for index in range(3):
        metadata.chunk_id = index
        parts.append(encode_payload(metadata, value[index : index + 1]))
    return parts


def batch(*messages: Keyed) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=len(messages),
    )
    body = encode_batch(
        (api.SingleMessageMetadata(partition_key=key, payload_size=0), value)
        for key, value in messages
    )
    return encode_payload(metadata, body)


class Rig:
    """A broker's topics over memory, to be unloaded and loaded."""

    def __init__(self, *, ledger_entries_max: int = 50_000) -> None:
        self.zookeeper = SimulatedZooKeeper(conditions=INSTANT)
        self.ledgers = MemoryLedgers()
        self.config = ManagedLedgerConfig(
            retry_first_s=0.05,
            retry_limit_s=5,
            ledger_entries_max=ledger_entries_max,
            ledger_age_min_s=0,
            retention_time_ms=FOR_EVER,
            retention_bytes=FOR_EVER,
        )
        self.loads = 0

    def directory(self) -> TopicDirectory:
        """The topics of a broker that begins now; an earlier one has lost its session."""
        self.loads += 1
        session = self.zookeeper.session(f"broker {self.loads}")
        factory = logs_over(session, self.ledgers, config=self.config)
        return TopicDirectory(factory, SimulatedClock(), owns=lambda _: True)

    def die(self) -> None:
        """The broker that began last dies: nothing it asks for from now on is heard."""
        for session in self.zookeeper.sessions(f"broker {self.loads}"):
            session.die()
        for writer in self.ledgers.writers:
            writer.detach()


async def loaded(topics: TopicDirectory, name: TopicName = NAME) -> Topic:
    return await topics.get(name, create=True)


async def publish(topic: Topic, *payloads: bytes) -> None:
    producer = producer_of(NotedSession(), f"p{topic.publishing.messages_in}")
    await topic.publishing.connect(producer)
    for number, payload in enumerate(payloads):
        producer.append_all([(payload, 1, producer, number, 0)])
        await asyncio.sleep(0.1)
    assert not topic.managed_ledger.pending_count
    topic.publishing.producers.remove(producer)


async def compact(topic: Topic) -> None:
    await topic.part(TopicCompaction).trigger()
    await asyncio.sleep(1)
    report = topic.part(TopicCompaction).report
    assert report.status is CompactionStatus.SUCCESS, report.last_error


async def trim(topic: Topic) -> None:
    """Delete what only compaction needs."""
    await topic.managed_ledger.roll_over()
    await topic.managed_ledger.trimmer.trim(KEEP_NOTHING)


async def attached(
    topic: Topic, session: NotedSession, request: SubscribeRequest = READER
) -> tuple[Subscription, Consumer]:
    subscription = await topic.part(PersistentSubscriptions).subscribe(request)
    consumer = consumer_of(session, reads_compacted=request.reads_compacted)
    subscription.connected(consumer)
    subscription.flow(consumer, 1000)
    await asyncio.sleep(0.1)
    return subscription, consumer


def seen_by(session: NotedSession) -> list[Seen]:
    """All messages sent so far; those compacted out of a batch are not seen by an application."""
    stream = b"".join(session.out)
    found: list[Seen] = []
    start = 0
    while start < len(stream):
        end = start + 4 + int.from_bytes(stream[start : start + 4], "big")
        command, payload_start = parse_command(stream, start + 4, end)
        if command.type == api.BaseCommand.MESSAGE:
            place = command.message.message_id
            at = Position(place.ledgerId, place.entryId)
            found += messages_in(at, stream[payload_start:end])
        start = end
    return found


def messages_in(at: Position, payload: bytes) -> list[Seen]:
    metadata = parse_metadata(payload)
    body = payload[metadata_bounds(payload, 0, len(payload))[1] :]
    if not metadata.HasField("num_messages_in_batch"):
        return [(at, -1, metadata.partition_key, body)]
    return [
        (at, index, each.partition_key, value)
        for index, (each, value) in enumerate(split_batch(body, metadata.num_messages_in_batch))
        if not each.compacted_out
    ]


def values(seen: list[Seen]) -> list[Keyed]:
    return [(key, value) for _, _, key, value in seen]


async def read(topic: Topic, request: SubscribeRequest = READER) -> list[Seen]:
    """What a consumer is sent that comes now, then goes."""
    session = NotedSession()
    subscription, consumer = await attached(topic, session, request)
    await subscription.disconnect(consumer)
    await asyncio.sleep(0.001)
    return seen_by(session)
