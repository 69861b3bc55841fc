"""Proves how a broker opens and ends (who comes early waits, who comes late is let go), and that it
answers for its listeners as a real Pulsar 4.0.6 was recorded to do (`golden/records`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest
from tests.project_files import GOLDEN
from tests.unit.geminga_broker.stand_ins import MemoryNetwork, MemoryPort

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.metrics.collector import BrokerMetrics
from geminga_broker.ownership.addresses.listeners import ListenerConfig
from geminga_broker.topics.backlog import Backlog, MessageExpiry
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.producers.topic_deduplication import TopicDeduplication
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.network import Network
from geminga_server.authorization import allow_all
from geminga_simulation.conditions import INSTANT
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

Settle = Callable[[], Awaitable[None]]
Tree = Callable[[], dict[str, bytes]]

WRITTEN = GOLDEN / "records" / "listeners.jsonl"
RECORDED: list[dict[str, Any]] = list(map(json.loads, WRITTEN.read_text().splitlines()))
RECORDED_TEXTS = {row["path"]: row["text"] for row in RECORDED if "path" in row}


def recorded_config() -> BrokerConfig:
    """What the recorded broker was told."""
    told = RECORDED[0]
    assert told["kind"] == "settings"
    listeners = ListenerConfig(
        advertised_listeners=tuple(told["advertisedListeners"].split(",")),
        internal_listener_name=told["internalListenerName"],
        bind_addresses=tuple(told["bindAddresses"].split(",")),
    )
    address = told["advertisedAddress"]
    return BrokerConfig(advertised_address=address, listeners=listeners, port=16601, web_port=18601)


with_recorded_listeners = pytest.mark.parametrize("broker", [recorded_config()], indirect=True)
# All that a broker does again and again: who does it, and what.
PERIODIC = [
    (BrokerMetrics, "renew"),
    (TopicMaintenance, "delete_unused"),
    (Backlog, "maintain_all"),
    (MessageExpiry, "maintain_all"),
    (TopicCompaction, "maintain_all"),
    (TopicDeduplication, "maintain_all"),
]
# Longer than two periods of any of it.
TWO_PERIODS_S = 3600.0


async def test_a_client_that_comes_while_the_broker_opens_is_answered_when_it_is_open(
    broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        early = network.clients[0]
        early.ask("lookupTopic", topic="public/default/topic")
        await settle()
        (answer,) = early.all_of("lookupTopicResponse")
        assert answer.brokerServiceUrl == "pulsar://here:6650"


async def test_a_broker_that_ends_closes_its_connections_and_takes_no_more(
    broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        client = network.come(6650)
        await settle()
    assert client.transport.is_closing()
    assert not network.is_listening


async def test_a_client_that_comes_while_the_broker_closes_its_topics_is_let_go_too(
    broker: Broker, network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = MemoryPort.close

    async def come_and_close(port: MemoryPort) -> None:
        network.come(6650)
        await close(port)

    monkeypatch.setattr(MemoryPort, "close", come_and_close)
    async with broker:
        early = len(network.clients)
    (late,) = network.clients[early:]
    assert late.transport.is_closing()


async def test_a_connection_that_the_event_loop_brings_after_the_end_is_closed(
    broker: Broker, network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(_: MemoryPort) -> None:
        """The port stays with the network, as its connections do that are accepted already."""

    monkeypatch.setattr(MemoryPort, "close", close)
    async with broker:
        pass
    assert network.come(6650).transport.is_closing()


@with_recorded_listeners
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{row['port']} {row['listener']}") for row in RECORDED[4:]],
)
async def test_a_lookup_is_answered_for_the_listener_named_or_else_for_the_port_it_came_by(
    row: dict[str, Any], broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        client = network.come(row["port"])
        client.ask(
            "lookupTopic", topic="public/default/t", advertised_listener_name=row["listener"]
        )
        await settle()
        (answer,) = client.all_of("lookupTopicResponse")
    if "error" in row:
        assert answer.response == api.CommandLookupTopicResponse.Failed
        assert answer.error == api.ServerError.Value(row["error"])
        assert answer.message == row["message"]
    else:
        assert answer.response == api.CommandLookupTopicResponse.Connect
        assert answer.brokerServiceUrl == row["brokerServiceUrl"]
        assert answer.brokerServiceUrlTls == row["brokerServiceUrlTls"]


@with_recorded_listeners
async def test_listeners_stand_in_the_brokers_records_as_upstream_writes_them(
    broker: Broker, network: MemoryNetwork, settle: Settle, tree: Tree
) -> None:
    async with broker:
        network.clients[0].ask("lookupTopic", topic="public/default/t")
        await settle()
        nodes = {path: value.decode() for path, value in tree().items()}
    (owned,) = (
        text for path, text in nodes.items() if path.startswith("/namespace/public/default/")
    )
    assert owned == RECORDED_TEXTS["/namespace/public/default/0x00000000_0x40000000"]
    assert nodes["/loadbalance/leader"] == RECORDED_TEXTS["/loadbalance/leader"]
    path = "/loadbalance/brokers/localhost:18601"
    registered, recorded = json.loads(nodes[path]), json.loads(RECORDED_TEXTS[path])
    told = ("webServiceUrl", "pulsarServiceUrl", "pulsarServiceUrlTls", "advertisedListeners")
    assert [registered[name] for name in told] == [recorded[name] for name in told]


@pytest.mark.parametrize(("owner", "work"), PERIODIC)
async def test_periodic_work_of_a_broker_goes_on_after_an_unforeseen_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, owner: type, work: str
) -> None:
    calls: list[str] = []

    def fail(*_: object) -> None:
        calls.append(work)
        raise ValueError(f"a bug in {work}")

    monkeypatch.setattr(owner, work, fail)
    async with broker:
        await asyncio.sleep(TWO_PERIODS_S)
    assert len(calls) > 1


EAST, WEST = "east", "west"
SHOP = NamespaceName("public", "shop")
TOPIC = "non-persistent://public/shop/orders"


@dataclass
class Site:
    """A broker of one cluster, whose first client is there."""

    broker: Broker
    network: MemoryNetwork
    zookeeper: SimulatedZooKeeper

    async def ask(self, kind: str, answer: str, **fields: object) -> Any:
        """The last answer to what a new client asks."""
        client = self.network.come(6650)
        client.ask(kind, **fields)
        await asyncio.sleep(0.001)
        return client.all_of(answer)[-1]


@pytest.fixture
async def shared() -> SimulatedZooKeeper:
    """The configuration store of both clusters."""
    return SimulatedZooKeeper(conditions=INSTANT, name="configuration")


@pytest.fixture
async def sites(shared: SimulatedZooKeeper) -> AsyncIterator[dict[str, Site]]:
    """Two clusters that share a store, with a ZooKeeper of its own each."""
    async with AsyncExitStack() as stack:
        made: dict[str, Site] = {}
        for name in (EAST, WEST):
            zookeeper = SimulatedZooKeeper(conditions=INSTANT, name=name)
            own, store = zookeeper.session(name), shared.session(name)
            urls = ClusterUrls(f"http://{name}:8080", f"pulsar://{name}:6650")
            await initialize_cluster_metadata(
                own, name, urls, configuration=store, instance_id=name
            )
            network = MemoryNetwork()
            broker = Broker(
                BrokerConfig(cluster=name, advertised_address=name, port=6650, web_port=8080),
                coordination=own,
                configuration_store=store,
                network=cast(Network, network),
                clock=SimulatedClock(),
                random=Random(1),
                authorize=allow_all,
            )
            made[name] = Site(await stack.enter_async_context(broker), network, zookeeper)
        yield made


async def test_a_namespace_made_in_one_cluster_is_served_where_its_policies_say(
    sites: dict[str, Site],
) -> None:
    east, west = sites[EAST], sites[WEST]
    await east.broker.namespaces.create(SHOP, Policies(replication_clusters=(EAST,)))
    owner = await east.ask("lookupTopic", "lookupTopicResponse", topic=TOPIC)
    assert owner.brokerServiceUrl == "pulsar://east:6650"
    for kind, answer in (
        ("lookupTopic", "lookupTopicResponse"),
        ("partitionMetadata", "partitionMetadataResponse"),
    ):
        refused = await west.ask(kind, answer, topic=TOPIC)
        assert refused.error == api.MetadataError
        assert refused.message == (
            "Namespace missing local cluster name in clusters list: "
            "local_cluster=west ns=public/shop clusters=[east]"
        )
    both = Policies(replication_clusters=(EAST, WEST))
    await west.broker.namespaces.update(SHOP, lambda _: both)
    owner = await west.ask("lookupTopic", "lookupTopicResponse", topic=TOPIC)
    assert owner.brokerServiceUrl == "pulsar://west:6650"
    # Each owns its bundles in its own ZooKeeper.
    for site in sites.values():
        owned = site.zookeeper.tree.values()
        assert any(path.startswith("/namespace/public/shop/0x") for path in owned)


async def test_clients_of_a_namespace_leave_when_it_does_not_name_their_cluster_any_more(
    sites: dict[str, Site],
) -> None:
    west = sites[WEST]
    both = Policies(replication_clusters=(EAST, WEST))
    await west.broker.namespaces.create(SHOP, both)
    client = west.network.clients[0]
    client.ask("producer", topic=TOPIC, producer_id=1)
    await asyncio.sleep(0.001)
    assert client.all_of("producer_success")
    alone = Policies(replication_clusters=(EAST,))
    await sites[EAST].broker.namespaces.update(SHOP, lambda _: alone)
    await asyncio.sleep(1)
    assert [each.producer_id for each in client.all_of("close_producer")] == [1]
    assert not any(topic.name.namespace == SHOP for topic in west.broker.topics.loaded.values())


async def test_what_is_known_is_served_while_the_configuration_store_is_away(
    sites: dict[str, Site], shared: SimulatedZooKeeper
) -> None:
    west = sites[WEST]
    both = Policies(replication_clusters=(EAST, WEST))
    await west.broker.namespaces.create(SHOP, both)
    client = west.network.clients[0]
    await west.ask("partitionMetadata", "partitionMetadataResponse", topic=TOPIC)
    client.ask("producer", topic=TOPIC, producer_id=1)
    await asyncio.sleep(0.001)
    shared.go_away()
    await asyncio.sleep(20)  # longer than a session lives
    parts = await west.ask("partitionMetadata", "partitionMetadataResponse", topic=TOPIC)
    assert (parts.partitions, parts.message) == (0, "")
    owner = await west.ask("lookupTopic", "lookupTopicResponse", topic=TOPIC)
    assert owner.brokerServiceUrl == "pulsar://west:6650"
    late = await west.ask(
        "producer", "producer_success", topic=TOPIC, producer_id=2, producer_name="late"
    )
    assert late.producer_name == "late"
    assert not client.all_of("close_producer")
    shared.come_back(keeps_sessions=False)
    await asyncio.sleep(3)
    alone = Policies(replication_clusters=(EAST,))
    await sites[EAST].broker.namespaces.update(SHOP, lambda _: alone)
    await asyncio.sleep(3)
    assert [each.producer_id for each in client.all_of("close_producer")] == [1]
