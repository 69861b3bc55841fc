"""Proves that a topic's replicators follow its policies whatever comes in between, and end with the
topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, until
from tests.unit.geminga_broker.clients_and_logs import maintain, publish, resolver_over
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    MemoryLedgers,
    MemoryReader,
    logs_over,
)
from tests.unit.geminga_broker.replication import conftest
from tests.unit.geminga_broker.replication.conftest import REMOTE

from geminga_broker.errors import TopicReplicated
from geminga_broker.managed_ledger.cursors.cursor_store import CursorStore
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.replication.config import ReplicationConfig
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.replication.replicator import ReplicationServices
from geminga_broker.topics.backlog import MessageExpiry
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_replication import TopicReplication
from geminga_ledger import NotEnoughBookies
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.topics.cursor import cursor_path
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

far_network = conftest.far_network
far = conftest.far
remotes = conftest.remotes
far_rest = conftest.far_rest

NAME = TopicName.parse("persistent://t/n/topic")
REPLICATED = Policies(replication_clusters=("standalone", REMOTE))
AT_HOME = Policies(replication_clusters=("standalone",))
CURSOR = cursor_path("t/n/persistent/topic", f"pulsar.repl.{REMOTE}")


async def no_partitions(_: TopicName) -> int:
    return 0


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers, remotes: RemoteClusters
) -> AsyncIterator[TopicDirectory]:
    """The topics of a broker that replicates them."""
    around = ReplicationServices(
        remotes=remotes,
        clock=SimulatedClock(),
        random=Random(1),
        config=ReplicationConfig(),
        partitions_of=no_partitions,
        remote_topics=RemoteTopics(remotes, is_enabled=True),
    )
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory),
        replication=around,
    ) as topics:
        yield topics


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """Not replicated yet."""
    return await topics.get(NAME, create=True)


class SlowCreation:
    """Lets no cursor be created before ``may_go`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_go = asyncio.Event(), asyncio.Event()
        create = ManagedLedgerFactory.create_cursor

        async def slowly(*arguments: object) -> object:
            self.has_begun.set()
            await self.may_go.wait()
            return await create(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(ManagedLedgerFactory, "create_cursor", slowly)


async def fails(*_: object) -> None:
    raise NotEnoughBookies(1, 0)


def has(topic: Topic) -> list[str]:
    return sorted(topic.part(TopicReplication).replicators)


async def test_a_replicator_comes_and_goes_with_the_policies(
    topics: TopicDirectory, topic: Topic, far: FakeBroker, coordination: Coordination
) -> None:
    topics.apply_policies(NAME.namespace, REPLICATED)
    await until(lambda: len(far.of_type(BaseCommand.PRODUCER)) == 1)
    assert has(topic) == [REMOTE]
    assert await coordination.exists(CURSOR) is not None
    topics.apply_policies(NAME.namespace, Policies())  # not said: nothing changes
    await asyncio.sleep(1)
    assert has(topic) == [REMOTE]
    topics.apply_policies(NAME.namespace, AT_HOME)
    await until(lambda: not has(topic))
    await asyncio.sleep(1)
    assert await coordination.exists(CURSOR) is None


async def test_a_replicator_that_is_being_started_when_the_topic_closes_never_runs(
    topics: TopicDirectory, topic: Topic, far: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ManagedLedgerFactory, "create_cursor", fails)
        topics.apply_policies(NAME.namespace, REPLICATED)
        await asyncio.sleep(0.1)
    creation = SlowCreation(monkeypatch)
    again = asyncio.create_task(maintain(topics, TopicReplication))
    await creation.has_begun.wait()
    unloading = asyncio.create_task(topics.unload(NAME))
    await asyncio.sleep(0.01)
    creation.may_go.set()
    await unloading
    await again
    await asyncio.sleep(10)
    assert topic.is_fenced
    assert not far.of_type(BaseCommand.PRODUCER)


async def test_a_cluster_that_is_taken_out_while_its_replicator_starts_goes_at_once(
    topics: TopicDirectory,
    topic: Topic,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    creation = SlowCreation(monkeypatch)
    topics.apply_policies(NAME.namespace, REPLICATED)
    await creation.has_begun.wait()
    topics.apply_policies(NAME.namespace, AT_HOME)
    creation.may_go.set()
    await asyncio.sleep(0.5)
    assert not has(topic)
    assert await coordination.exists(CURSOR) is None


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_cursor_that_could_not_be_deleted_is_deleted_later(
    topics: TopicDirectory,
    topic: Topic,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
    *,
    comes_back: bool,
) -> None:
    topics.apply_policies(NAME.namespace, REPLICATED)
    await until(lambda: has(topic) == [REMOTE])

    with monkeypatch.context() as patched:
        patched.setattr(CursorStore, "delete", fails)
        topics.apply_policies(NAME.namespace, AT_HOME)
        await asyncio.sleep(1)
    assert await coordination.exists(CURSOR) is not None
    assert [each.name for each in topic.part(TopicReplication).cursors()] == [
        f"pulsar.repl.{REMOTE}"
    ]
    if comes_back:
        topics.apply_policies(NAME.namespace, REPLICATED)
        await until(lambda: has(topic) == [REMOTE])
        (cursor,) = topic.part(TopicReplication).cursors()
        assert cursor.is_durable
        return
    await maintain(topics, TopicReplication)
    assert await coordination.exists(CURSOR) is None
    assert not topic.part(TopicReplication).cursors()


async def test_what_is_too_old_when_it_is_read_is_not_sent(
    topics: TopicDirectory, topic: Topic, far: FakeBroker
) -> None:
    far.on(BaseCommand.SEND)
    topics.apply_policies(NAME.namespace, replace(REPLICATED, message_ttl_s=60))
    await publish(topic, 1, 1, age_s=61)
    await publish(topic, 1)
    await until(lambda: len(far.of_type(BaseCommand.SEND)) == 1)  # the first two are too old
    cursor = topic.part(TopicReplication).replicators[REMOTE].cursor
    before = topic.managed_ledger.chain.previous_of(topic.managed_ledger.chain.last_confirmed)
    await until(lambda: cursor.mark_delete == before)


async def test_what_no_replicator_can_send_is_passed_over_when_it_is_too_old(
    topics: TopicDirectory, topic: Topic, far: FakeBroker
) -> None:
    """Upstream's #23937: the cursor kept it, and the log with it, for as long."""
    far.on(BaseCommand.PRODUCER)
    topics.apply_policies(NAME.namespace, replace(REPLICATED, message_ttl_s=60))
    await until(lambda: len(far.of_type(BaseCommand.PRODUCER)) == 1)
    await publish(topic, 1, 1, age_s=61)
    await publish(topic, 1)
    cursor = topic.part(TopicReplication).replicators[REMOTE].cursor
    assert cursor.backlog_entries == 3
    await maintain(topics, MessageExpiry)
    assert cursor.backlog_entries == 1


async def test_what_was_published_just_now_is_sent_without_a_read_of_its_ledger(
    topics: TopicDirectory, topic: Topic, far: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> list[bytes]:
        raise AssertionError("a ledger is read")

    far.on(BaseCommand.SEND)
    monkeypatch.setattr(MemoryReader, "read", never)
    monkeypatch.setattr(MemoryReader, "read_entries", never)
    topics.apply_policies(NAME.namespace, REPLICATED)
    await until(lambda: len(far.of_type(BaseCommand.PRODUCER)) == 1)
    await publish(topic, *([1] * 100))
    await until(lambda: len(far.of_type(BaseCommand.SEND)) == 100)


async def test_a_topic_with_several_silent_remote_clusters_closes_soon(
    topics: TopicDirectory, topic: Topic, far: FakeBroker, remotes: RemoteClusters
) -> None:
    names = [f"west{number}" for number in range(5)]
    for name in names:
        await remotes.clusters.create(name, await remotes.clusters.get(REMOTE))
    topics.apply_policies(NAME.namespace, Policies(replication_clusters=("standalone", *names)))
    await until(lambda: len(far.of_type(BaseCommand.PRODUCER)) == len(names))
    await asyncio.sleep(1)
    far.on(BaseCommand.CLOSE_PRODUCER)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await topics.unload(NAME)
    assert topic.is_fenced
    assert loop.time() - begun_s < 2


async def test_a_replicated_topic_is_deleted_by_force_only(
    topics: TopicDirectory, topic: Topic
) -> None:
    topics.apply_policies(NAME.namespace, REPLICATED)
    with pytest.raises(TopicReplicated) as refused:
        await topics.delete(NAME, force=False)
    words = f"Delete forbidden topic is replicated on clusters [{REMOTE}]"
    assert (str(refused.value), refused.value.clusters) == (words, [REMOTE])
    topics.apply_policies(NAME.namespace, AT_HOME)
    await topics.delete(NAME, force=False)
    again = await topics.get(NAME, create=True)
    topics.apply_policies(NAME.namespace, REPLICATED)
    await topics.delete(NAME, force=True)
    assert again is not topic
    assert not await topics.exists(NAME)


async def test_a_topic_stays_in_a_cluster_that_its_namespace_does_not_name_any_more(
    topics: TopicDirectory, topic: Topic, far: FakeBroker
) -> None:
    """As upstream's #24351: a list without the local cluster may be a mistake."""
    topics.apply_policies(NAME.namespace, REPLICATED)
    await until(lambda: len(far.of_type(BaseCommand.PRODUCER)) == 1)
    topics.apply_policies(NAME.namespace, Policies(replication_clusters=(REMOTE,)))
    await asyncio.sleep(600)
    assert has(topic) == [REMOTE]
    assert await topics.get(NAME, create=False) is topic
    topics.apply_policies(NAME.namespace, AT_HOME)
    await until(lambda: not has(topic))
    assert await topics.get(NAME, create=False) is topic
