"""Clusters that replicate a topic to each other, on simulated hosts, and what clients do there.

Each cluster is a site with a ZooKeeper, bookies and brokers of its own, and knows where the others
are. One application in each sends numbered messages, and reads all that there is in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.replication.geo_book import END, LAST_MESSAGES, Book, schema_of

from geminga import (
    Batching,
    BytesSchema,
    Client,
    ClientError,
    ConsumerOptions,
    Message,
    MessageId,
    Producer,
)
from geminga_broker.replication.config import ReplicationConfig
from geminga_broker.topics.topic_replication import TopicReplication
from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import PartitionedTopicExists, PartitionedTopicNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.cluster.namespaces import DelayedDelivery, DispatchRate, Policies
from geminga_runtime.coordination import Coordination
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import PATIENT, Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host
from geminga_simulation.world import World

NAMESPACE = NamespaceName("public", "geo")
TOPIC = TopicName.parse(f"persistent://{NAMESPACE}/orders")
READER = "reader"
FROM_THE_FIRST = ConsumerOptions(initial_position="earliest")
# What one application sends while there are faults, so many without a pause between.
MESSAGES = 60
BURST = 5
# Of so many messages one has a delay, where there are any with one. The readers here, which are
# alone on their subscriptions, get it at once.
DELAYED_EACH = 7
DELAY_S = 2.0
# Of so many one is for some of the other clusters, or for none, where any are.
SELECTED_EACH = 4
# Without faults nothing takes so long: a minute passes before a connection gone dark is noticed.
CALM_S_MAX = 200.0
# What is so for so long remains so: no event is on its way that a policy has changed.
SETTLED_S = 3.0
LOOK_S = 0.1
RETRY_S = 0.5


class GeoClusters:
    """Clusters of these shapes in ``world``, by name; ``await open()`` first."""

    def __init__(
        self,
        world: World,
        shapes: Mapping[str, Shape],
        replication: ReplicationConfig,
        ledgers: LedgerConfig = PATIENT,
    ) -> None:
        self.world = world
        self.clusters = {
            name: Cluster(world, shape, ledgers, site=world.site(name), replication=replication)
            for name, shape in shapes.items()
        }
        # To which others each is replicated.
        self.remotes = {name: self.others(name) for name in self.clusters}

    async def open(self) -> None:
        """Start all clusters, each with a namespace that is replicated to all others."""
        for cluster in self.clusters.values():
            await cluster.open()
        for name, cluster in self.clusters.items():
            async with cluster.place.host("setup").coordination() as setup:
                for remote in self.others(name):
                    await Clusters(setup).create(remote, self.record(remote))
            policies = Policies(
                deduplication_enabled=True, replication_clusters=tuple(self.clusters)
            )
            await cluster.create_namespace(NAMESPACE, policies)

    @property
    def hosts(self) -> list[Host]:
        """Those of all bookies, brokers and proxies."""
        return [
            host
            for each in self.clusters.values()
            for host in (*each.storage.bookies, *each.brokers, *each.proxies)
        ]

    def others(self, name: str) -> list[str]:
        """The clusters besides ``name``."""
        return [each for each in self.clusters if each != name]

    def record(self, name: str) -> ClusterData:
        """What others have to know of a cluster."""
        return ClusterData(broker_service_url=self.clusters[name].service_url)

    def behind(self) -> str:
        """Say why not everything is replicated everywhere; empty where it is. Asks the brokers that
        have the topic for certain."""
        for name, cluster in self.clusters.items():
            topics = [
                broker.topics.loaded.get(TOPIC)
                for broker, has_session in cluster.serving()
                if has_session
                and broker.ownership.owned.is_certain
                and broker.ownership.owns(TOPIC)
            ]
            if not topics:
                return f"no broker of {name} has the topic"
            for topic in topics:
                if topic is None or topic.is_fenced:
                    return f"{name} has not loaded the topic"
                replicators = topic.part(TopicReplication).replicators
                if sorted(replicators) != sorted(self.remotes[name]):
                    return f"{name} replicates to {sorted(replicators)}"
                for remote, replicator in replicators.items():
                    backlog = replicator.cursor.backlog_entries
                    if backlog or replicator.pending or not replicator.is_connected:
                        why = f"{replicator.state.value}: {replicator.reason}"
                        return f"{backlog} entries from {name} to {remote}, {why}"
        return ""

    async def until_replicated(self) -> None:
        """Return when everything is replicated everywhere and remains so. Raises
        ``InvariantViolated`` where that does not come."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + CALM_S_MAX
        since_s = loop.time()
        while loop.time() - since_s < SETTLED_S:
            await asyncio.sleep(LOOK_S)
            why = self.behind()
            if why:
                since_s = loop.time()
            if loop.time() > end_s:
                raise InvariantViolated(f"not replicated after {CALM_S_MAX} s: {why}")

    # What operators do

    async def replicate(self, name: str, remotes: Iterable[str]) -> None:
        """Have the namespace replicated from cluster ``name`` to ``remotes``."""
        self.remotes[name] = list(remotes)
        await self._change(name, replication_clusters=(name, *self.remotes[name]))

    async def limit_delays(self, name: str, limit_ms: int) -> None:
        """Let cluster ``name`` refuse messages with a longer delay; 0: it takes any."""
        policy = DelayedDelivery(tick_ms=1000, active=True, delay_max_ms=limit_ms)
        await self._change(name, delayed_delivery=policy)

    async def limit_rate(self, name: str, messages_per_s: int) -> None:
        """Limit the rate of replication from cluster ``name``; -1: no limit."""
        await self._change(
            name, replicator_dispatch_rate={name: DispatchRate(messages=messages_per_s)}
        )

    async def limit_schemas(self, name: str, *, takes_new: bool) -> None:
        """Let cluster ``name`` refuse schemas that the topic does not have, or take them again."""
        await self._change(name, is_allow_auto_update_schema=takes_new)

    async def divide(self, name: str, partitions: int) -> None:
        """Have a topic with so many partitions in cluster ``name`` by the name of the one that is
        there; 0: there is none any more."""

        async def change(setup: Coordination) -> None:
            topics = PartitionedTopics(setup)
            with suppress(PartitionedTopicExists, PartitionedTopicNotFound):
                await (topics.create(TOPIC, partitions) if partitions else topics.delete(TOPIC))

        self.world.note(f"the topic has {partitions} partitions in {name}")
        await self._do(name, change)

    async def _change(self, name: str, **policies: Any) -> None:
        self.world.note(f"policies of {name}: {policies}")

        async def update(setup: Coordination) -> None:
            await Namespaces(setup).update(NAMESPACE, lambda known: replace(known, **policies))

        await self._do(name, update)

    async def register(self, name: str, remote: str, record: ClusterData) -> None:
        """Tell cluster ``name`` where ``remote`` is."""
        self.world.note(f"{name} is told that {remote} is at {record.broker_service_url}")
        await self._do(name, lambda setup: Clusters(setup).update(remote, record))

    async def _do(self, name: str, what: Callable[[Coordination], Awaitable[None]]) -> None:
        """Again until it is done."""
        while True:
            try:
                async with self.clusters[name].place.host("setup").coordination() as setup:
                    await what(setup)
            except GemingaError:
                await asyncio.sleep(RETRY_S)
            else:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """How one sends so many ``messages`` in its cluster, for about so many ``seconds``.

    ``keeps``: there is a subscription that keeps all messages; else the cluster's own are there
    until they are replicated, and no client reads. ``delays``: some messages have a delay.
    ``selects``: some are not for all clusters. ``has_schema``: all have their cluster's schema.
    """

    seconds: float
    messages: int = MESSAGES
    batching: Batching | None = None
    keeps: bool = True
    delays: bool = False
    selects: bool = False
    has_schema: bool = False


async def live(cluster: Cluster, book: Book, application: Application) -> None:
    """What the application of a cluster does: it sends, goes away until all is replicated without
    it, sends the last messages, and reads everything in the end."""
    name = cluster.name
    async with cluster.client("client") as client:
        if application.keeps:
            async with await client.consumer(str(TOPIC), READER, **FROM_THE_FIRST):
                pass
        producer = await _producer(client, name, application)
        book.sent[name] = []
        book.is_ready.release()
        await book.are_replicating.wait()
        await _send(producer, book, name, application)
    book.has_sent.release()
    await book.is_calm.wait()
    async with cluster.client("client") as client:
        producer = await _producer(client, name, application)
        await _send(producer, book, name, replace(application, messages=LAST_MESSAGES, seconds=0.0))
        book.has_sent.release()
        await book.is_replicated.wait()
        end = name.encode() + END
        await producer.send(end)
        if application.keeps:
            read = [each async for each in _read(client, end)]
            book.read[name] = [each.data for each in read]
            book.schemas[name] = await _definitions(client, read)


async def tell(
    geo: GeoClusters,
    book: Book,
    applications: Mapping[str, Application],
    go_on: Callable[[], Awaitable[None]],
) -> None:
    """Have the ``applications`` live, by cluster, while ``go_on`` tells the story. Raises what the
    first that failed did."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, cluster in geo.clusters.items():
                client = cluster.place.host("client")
                client.start(lambda _: asyncio.Event().wait())
                life = live(cluster, book, applications[name])
                tasks.create_task(_done(client.run(life)))
            await book.told(book.is_ready)
            await go_on()
            await geo.until_replicated()
            book.is_calm.set()
            await book.told(book.has_sent)
            await geo.until_replicated()
            book.is_replicated.set()
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    raise_loop_failures(geo.world)


async def _done(future: asyncio.Future[None]) -> None:
    await future


async def _producer(client: Client, name: str, application: Application) -> Producer[bytes]:
    """A producer, however often no broker takes it at first."""
    schema = BytesSchema(schema_of(name) if application.has_schema else None)
    while True:
        try:
            return await client.producer(
                str(TOPIC),
                schema=schema,
                name=name,
                send_timeout_s=None,
                batching=application.batching,
            )
        except ClientError:
            await asyncio.sleep(RETRY_S)


async def _send(producer: Producer[bytes], book: Book, name: str, application: Application) -> None:
    """Send so many more, and wait for all receipts. Raises where one is refused."""
    receipts: list[asyncio.Task[MessageId]] = []
    sent = book.sent[name]
    for number in range(application.messages):
        payload = b"%s/%06d" % (name.encode(), len(sent))
        sent.append(payload)
        is_delayed = application.delays and number % DELAYED_EACH == 0
        delay_s = DELAY_S if is_delayed else None
        chosen = None
        if application.selects and number % SELECTED_EACH == 1:
            others = [each for each in book.names if each != name]
            chosen = book.only_for[payload] = tuple(others[number % (len(others) + 1) :])
        sending = producer.send(payload, deliver_after=delay_s, replicate_to=chosen)
        receipts.append(asyncio.ensure_future(sending))
        if number % BURST == 0:
            await asyncio.sleep(application.seconds / application.messages * BURST)
    await asyncio.gather(*receipts)


async def _definitions(client: Client, messages: Iterable[Message[bytes]]) -> dict[bytes, bytes]:
    """The definitions of their schemas in this cluster; of those that have one."""
    by_version: dict[bytes, bytes] = {}
    found: dict[bytes, bytes] = {}
    for message in messages:
        version = message.schema_version
        if version is None:
            continue
        if version not in by_version:
            info = await client.schema(str(TOPIC), version)
            by_version[version] = b"" if info is None else info.definition
        found[message.data] = by_version[version]
    return found


async def _read(client: Client, end: bytes) -> AsyncIterator[Message[bytes]]:
    """Everything in the topic before ``end``."""
    consumer = await client.consumer(str(TOPIC), READER, **FROM_THE_FIRST)
    while True:
        async with asyncio.timeout(CALM_S_MAX):
            message = await consumer.receive()
        if message.data == end:
            return
        consumer.ack(message)
        yield message
