"""Proves how a replicator's pipeline ends and waits: it leaves nothing behind at the remote
cluster, and costs nothing while there is nothing that it may send."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, until
from tests.unit.geminga_broker.clients_and_logs import MemoryLog, cursor_over
from tests.unit.geminga_broker.replication.conftest import REMOTE

from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.policies.dispatching import UNLIMITED, DispatchLimit
from geminga_broker.replication.config import ReplicationConfig
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_broker.replication.replicator import (
    Replicator,
    ReplicatorState,
    Route,
    Surroundings,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.payload import encode_payload
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_simulation.clock import SimulatedClock

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
    log: MemoryLog, remotes: RemoteClusters, config: ReplicationConfig | None = None
) -> Replicator:
    async def no_partitions(_: TopicName) -> int:
        return 0

    around = Surroundings(
        remotes=remotes,
        clock=SimulatedClock(),
        random=Random(1),
        config=config or ReplicationConfig(),
        partitions_of=no_partitions,
    )
    route = Route(topic=TOPIC, source="east", target=REMOTE)
    return Replicator(route, cast(ManagedLedger, log), cursor_over(log.chain), around)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_one_that_is_stopped_while_receipts_are_missing_leaves_the_remote_broker(
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


async def test_one_ends_soon_though_the_remote_broker_answers_nothing(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    far.on(BaseCommand.CLOSE_PRODUCER)
    loop = asyncio.get_running_loop()
    async with replicator_of(MemoryLog((1, 3)), remotes):
        await until(lambda: len(far.of_type(BaseCommand.SEND)) == 3)
        begun_s = loop.time()
    assert loop.time() - begun_s < 2


async def test_one_that_has_no_room_for_the_next_entry_waits_for_receipts(
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


async def test_one_that_gets_no_receipts_says_so_and_begins_anew(
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


async def test_one_that_has_sent_all_that_it_may_says_that_it_waits(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    far.on(BaseCommand.SEND)
    config = ReplicationConfig(pending_messages_max=2)
    async with replicator_of(MemoryLog((1, 9)), remotes, config) as replicator:
        await until(lambda: replicator.reason == "2 entries wait for their receipts")
        far.drop_connections()
        await until(lambda: replicator.reason == "the connection to west is lost")


async def test_one_sends_no_faster_than_its_dispatch_rate(
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
