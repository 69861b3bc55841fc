"""Proves how a replicator's pipeline ends and waits: it leaves nothing behind at the remote
cluster, and costs nothing while there is nothing that it may send."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga_broker.clients_and_logs import MemoryLog, cursor_over
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.replication.conftest import REMOTE
from tests.unit.geminga_broker.replication.far_rest import FarRest

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.policies.dispatch import UNLIMITED, DispatchLimit
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.replication.config import ReplicationConfig
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.replication.replicator import (
    ReplicationServices,
    Replicator,
    ReplicatorState,
    Route,
)
from geminga_broker.schemas.registry import SchemaRegistry, encode_version
from geminga_broker.schemas.rules.definitions import Schema
from geminga_broker.schemas.storage import SchemaStorage
from geminga_ledger import Ledgers
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.messages.payload import encode_payload, open_payload
from geminga_protocol.pulsar.messages.replication import source_position
from geminga_protocol.pulsar.send import encode_receipt
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

TOPIC = TopicName.parse("persistent://t/n/topic")
LARGE_BYTES = 5 * 1024 * 1024


class LargeEntries(MemoryLog):
    """Its entries are so large that a few of them are all that may be on their way."""

    def entry(self, entry_id: int) -> Entry:
        metadata = api.MessageMetadata(producer_name="p", sequence_id=entry_id, publish_time=1)
        return entry_id, encode_payload(metadata, bytes(LARGE_BYTES)), 1

    def _run(self, position: tuple[int, int], count_max: int) -> list[Entry]:
        self.reads += 1
        return super()._run(position, min(count_max, 2))  # type: ignore[arg-type]


def replicator_of(
    log: MemoryLog,
    remotes: RemoteClusters,
    config: ReplicationConfig | None = None,
    *,
    schemas: SchemaRegistry | None = None,
    topic: TopicName = TOPIC,
    partitions: int = 0,
) -> Replicator:
    async def partitions_of(_: TopicName) -> int:
        return partitions

    around = ReplicationServices(
        remotes=remotes,
        clock=SimulatedClock(),
        random=Random(1),
        config=config or ReplicationConfig(),
        partitions_of=partitions_of,
        remote_topics=RemoteTopics(remotes, is_enabled=True),
    )
    route = Route(topic=topic, source="east", target=REMOTE)
    registry = schemas or cast(SchemaRegistry, None)  # messages without a schema ask for none
    return Replicator(route, cast(ManagedLedger, log), cursor_over(log.chain), registry, around)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_a_replicator_that_is_stopped_while_receipts_are_missing_leaves_the_remote_broker(
    far: FakeBroker, remotes: RemoteClusters, turns: int
) -> None:
    far.on(BaseCommand.SEND)
    replicator = replicator_of(MemoryLog((1, 3)), remotes)
    loop = asyncio.get_running_loop()
    async with replicator:
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 3)
        replicator.stop()  # as a topic disconnects its clients, then closes
        for _ in range(turns):
            await asyncio.sleep(0)
        begun_s = loop.time()
    assert loop.time() - begun_s < 2
    await asyncio.sleep(1)
    assert len(far.of_type(BaseCommand.CLOSE_PRODUCER)) == 1
    far.drop_connections()
    await asyncio.sleep(60)
    assert len(far.of_type(BaseCommand.PRODUCER)) == 1
    assert replicator.cursor.mark_delete == replicator.cursor.chain.before_first


async def test_a_replicator_ends_soon_though_the_remote_broker_answers_nothing(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    far.on(BaseCommand.CLOSE_PRODUCER)
    loop = asyncio.get_running_loop()
    async with replicator_of(MemoryLog((1, 3)), remotes):
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 3)
        begun_s = loop.time()
    assert loop.time() - begun_s < 2


PARTITION = TOPIC.partition(2)
PATH = "persistent/t/n/topic"


async def test_a_topic_that_the_remote_cluster_does_not_have_is_made_there_with_its_partitions(
    far: FakeBroker, far_rest: FarRest, remotes: RemoteClusters
) -> None:
    def missing(session: Session, command: BaseCommand, _: bytes) -> None:
        request_id = command.partitionMetadata.request_id
        session.write(answers.encode_error(request_id, api.TopicNotFound, "not found"))

    far.on(BaseCommand.PARTITIONED_METADATA, missing)
    async with replicator_of(MemoryLog((1, 3)), remotes, topic=PARTITION, partitions=3):
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 3)
    (asked,) = [each.partitionMetadata for each in far.of_type(BaseCommand.PARTITIONED_METADATA)]
    assert asked.topic == str(TOPIC)
    assert not asked.metadata_auto_creation_enabled
    assert far_rest.topics[REMOTE] == {PATH: 3}
    (producer,) = far.of_type(BaseCommand.PRODUCER)
    assert producer.producer.topic == str(PARTITION)


@pytest.mark.parametrize("there", [0, 2, 4])
async def test_a_topic_that_has_other_partitions_in_the_remote_cluster_waits_and_says_so(
    there: int, far: FakeBroker, far_rest: FarRest, remotes: RemoteClusters
) -> None:
    def tell(session: Session, command: BaseCommand, _: bytes) -> None:
        asked = command.partitionMetadata.request_id
        session.write(answers.encode_partitions(asked, far_rest.topics[REMOTE][PATH]))

    far.on(BaseCommand.PARTITIONED_METADATA, tell)
    far_rest.topics[REMOTE][PATH] = there
    async with replicator_of(
        MemoryLog((1, 3)), remotes, topic=PARTITION, partitions=3
    ) as replicator:
        await until(lambda: bool(replicator.reason))
        assert replicator.reason == (
            f"{TOPIC} has 3 partitions here and {there or 'no'} partitions in {REMOTE}: give it "
            "as many there, or delete one of the two"
        )
        await asyncio.sleep(60)
        assert far.of_type(BaseCommand.PRODUCER) == []  # which would make a partition of its own
        assert far_rest.topics[REMOTE] == {PATH: there}
        far_rest.topics[REMOTE][PATH] = 3
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 3)


async def test_the_producer_of_a_replicator_may_send_encrypted_messages(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    async with replicator_of(MemoryLog((1, 1)), remotes):
        await until(lambda: len(far.of_type(BaseCommand.PRODUCER)) == 1)
    assert far.of_type(BaseCommand.PRODUCER)[0].producer.encrypted


@pytest.mark.usefixtures("confirming")
async def test_after_a_refusal_nothing_is_sent_behind_an_entry_before_it_is_stored(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    """A broker may store what came behind an entry that it refused: each time that comes again."""
    stored: list[int] = []
    refuses = True

    def judge(session: Session, command: BaseCommand, payload: bytes) -> None:
        send = command.send
        position = source_position(open_payload(payload, 0, len(payload))[0])
        assert position is not None
        if refuses and position[1] == 1:
            error = answers.encode_send_error(
                send.producer_id, send.sequence_id, api.MetadataError, "it has to be encrypted"
            )
            session.write(error)
            return
        stored.append(position[1])
        session.write(encode_receipt(send.producer_id, *position, 3, len(stored)))

    far.on(BaseCommand.SEND, judge)
    async with replicator_of(MemoryLog((1, 4)), remotes) as replicator:
        await until(lambda: "encrypted" in replicator.reason)
        assert stored == [0, 2, 3]
        await asyncio.sleep(60)
        assert stored == [0, 2, 3]
        refuses = False
        await until(lambda: len(stored) == 6)
    assert stored == [0, 2, 3, 1, 2, 3]


async def test_a_replicator_without_room_for_the_next_entry_waits_for_receipts(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    log = LargeEntries((1, 20))
    async with replicator_of(log, remotes) as replicator:
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 12)
        await asyncio.sleep(0.1)
        reads = log.reads
        for _ in range(50):
            await asyncio.sleep(0)
        assert log.reads == reads
        assert replicator.pending == 12


async def test_a_replicator_that_gets_no_receipts_says_so_and_begins_anew(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    async with replicator_of(MemoryLog((1, 2)), remotes) as replicator:
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 2)
        assert (replicator.state, replicator.reason) == (ReplicatorState.RUNNING, "")
        await asyncio.sleep(59)
        assert len(far.of_type(BaseCommand.PRODUCER)) == 1
        await until(lambda: replicator.reason == "west confirmed nothing for 60 seconds")
        assert (replicator.state, replicator.stalls) == (ReplicatorState.WAITING, 1)
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 4)
        assert replicator.reason == ""
        assert len(far.of_type(BaseCommand.CLOSE_PRODUCER)) == 1


async def test_a_replicator_that_has_sent_all_that_it_may_says_that_it_waits(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    config = ReplicationConfig(pending_messages_max=2)
    async with replicator_of(MemoryLog((1, 9)), remotes, config) as replicator:
        await until(lambda: replicator.reason == "2 entries wait for their receipts")
        far.drop_connections()
        await until(lambda: replicator.reason == "the connection to west is lost")


async def test_a_replicator_sends_no_faster_than_its_dispatch_rate(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    replicator = replicator_of(MemoryLog((1, 9)), remotes)
    replicator.limit(DispatchLimit(messages=3, period_s=10))
    async with replicator:
        for sent in (3, 6):
            await until(lambda: replicator.reason == "its dispatch rate lets nothing pass now")
            assert len(far.of_type(BaseCommand.SEND)) == sent
            await asyncio.sleep(10)
        replicator.limit(UNLIMITED)
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 9)


class EntriesWithSchemas(MemoryLog):
    """Two without a schema, then two of each version, from 0 on."""

    def entry(self, entry_id: int) -> Entry:
        metadata = api.MessageMetadata(producer_name="p", sequence_id=entry_id, publish_time=1)
        if entry_id >= 2:
            metadata.schema_version = encode_version(entry_id // 2 - 1)
        return entry_id, encode_payload(metadata, b"m"), 1


@pytest.fixture
async def schemas(coordination: Coordination, ledgers: MemoryLedgers) -> SchemaRegistry:
    """The registry of this cluster, with two versions for the topic."""
    storage = SchemaStorage(coordination, cast(Ledgers, ledgers), ManagedLedgerConfig())
    registry = SchemaRegistry(storage, SimulatedClock())
    for name in ("first", "second"):
        definition = f'{{"type": "record", "name": "{name}", "fields": []}}'
        schema = Schema(SchemaType.AVRO, definition.encode(), {"made": name})
        await registry.put(TOPIC, schema, SchemaStrategy.ALWAYS_COMPATIBLE)
    return registry


@pytest.fixture
def confirming(far: FakeBroker) -> None:
    """The remote broker stores what it is sent, and its receipts tell the source's positions."""

    def confirm(session: Session, command: BaseCommand, payload: bytes) -> None:
        far.keep(command, payload)
        position = source_position(open_payload(payload, 0, len(payload))[0])
        assert position is not None
        producer_id = command.send.producer_id
        session.write(encode_receipt(producer_id, *position, 3, len(far.payloads)))

    far.on(BaseCommand.SEND, confirm)


def versions_sent(far: FakeBroker) -> list[bytes | None]:
    sent = [open_payload(payload, 0, len(payload))[0] for payload in far.payloads]
    return [each.schema_version if each.HasField("schema_version") else None for each in sent]


@pytest.mark.usefixtures("confirming")
async def test_a_message_tells_the_version_of_its_schema_in_the_remote_cluster(
    far: FakeBroker, remotes: RemoteClusters, schemas: SchemaRegistry
) -> None:
    def answer(session: Session, command: BaseCommand, _: bytes) -> None:
        asked = command.getOrCreateSchema
        version = {"first": b"r7", "second": b"r9"}[asked.schema.properties[0].value]
        session.write(answers.encode_schema_version(asked.request_id, version))

    far.on(BaseCommand.GET_OR_CREATE_SCHEMA, answer)
    async with replicator_of(EntriesWithSchemas((1, 8)), remotes, schemas=schemas):
        await until(lambda: len(far.payloads) == 8)
    # The third is not in this cluster's registry any more.
    assert versions_sent(far) == [None, None, b"r7", b"r7", b"r9", b"r9", None, None]
    asked = [each.getOrCreateSchema for each in far.of_type(BaseCommand.GET_OR_CREATE_SCHEMA)]
    assert [(each.topic, each.schema.name) for each in asked] == [(str(TOPIC), "t/n/topic")] * 2
    assert {each.schema.type for each in asked} == {api.Schema.Avro}


@pytest.mark.usefixtures("confirming")
async def test_nothing_overtakes_a_message_whose_schema_the_remote_cluster_does_not_take(
    far: FakeBroker, remotes: RemoteClusters, schemas: SchemaRegistry
) -> None:
    def refuse(session: Session, command: BaseCommand, _: bytes) -> None:
        request_id = command.getOrCreateSchema.request_id
        session.write(answers.encode_error(request_id, api.IncompatibleSchema, "no such type"))

    far.on(BaseCommand.GET_OR_CREATE_SCHEMA, refuse)
    replicator = replicator_of(EntriesWithSchemas((1, 6)), remotes, schemas=schemas)
    async with replicator:
        reason = "west does not take version 0 of the schema of persistent://t/n/topic: "
        await until(lambda: replicator.reason.startswith(reason))
        assert "no such type" in replicator.reason
        await asyncio.sleep(30)
        assert set(versions_sent(far)) == {None}
        far.on(
            BaseCommand.GET_OR_CREATE_SCHEMA,
            lambda session, command, _: session.write(
                answers.encode_schema_version(command.getOrCreateSchema.request_id, b"r")
            ),
        )
        await until(lambda: versions_sent(far)[-4:] == [b"r"] * 4)
