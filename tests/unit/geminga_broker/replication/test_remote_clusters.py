"""Proves that replicators get the client that a cluster's record asks for now, and none waits for
another cluster's broker."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NoReturn

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.fake_network import FakeNetwork
from tests.unit.geminga_broker.replication.conftest import REMOTE

from geminga._channels.producer_channel import ProducerChannel, ProducerChannelOptions
from geminga._channels.registry import Access
from geminga.errors import InvalidServiceUrl
from geminga.tls import Tls
from geminga_broker.replication import remote_clusters
from geminga_broker.replication.errors import ClusterUnreachable
from geminga_broker.replication.remote_clusters import RemoteClusters, tls_of
from geminga_cluster.clusters import Clusters
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_runtime.coordination import Coordination
from geminga_server.tls.config import BrokerClientTlsConfig

TOPIC = TopicName.parse("persistent://t/n/topic")
ELSEWHERE = ClusterData(broker_service_url="pulsar://elsewhere:6650")


async def test_a_client_that_closes_slowly_holds_up_no_other_cluster(
    far: FakeBroker, far_network: FakeNetwork, remotes: RemoteClusters
) -> None:
    other = FakeBroker(far_network, "other")
    await remotes.clusters.create("other", ClusterData(broker_service_url=other.url))
    channels = await remotes.channels(REMOTE)
    channel: ProducerChannel[int] = ProducerChannel(channels, TOPIC, ProducerChannelOptions())
    await channel.open()
    far.on(BaseCommand.SEND)
    far.on(BaseCommand.CLOSE_PRODUCER)
    channel.send(b"never confirmed", 0, 0)
    await remotes.clusters.update(REMOTE, ELSEWHERE)
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await remotes.channels("other")
    assert await remotes.channels(REMOTE) is not channels
    assert loop.time() - begun_s < 1
    await asyncio.sleep(30)
    assert channel.error is not None
    assert not far.open_sessions


async def test_all_clients_are_closed_when_the_broker_ends_though_one_was_closing(
    far: FakeBroker, remotes: RemoteClusters
) -> None:
    channels = await remotes.channels(REMOTE)
    channel: ProducerChannel[int] = ProducerChannel(channels, TOPIC, ProducerChannelOptions())
    await channel.open()
    far.on(BaseCommand.SEND)
    channel.send(b"never confirmed", 0, 0)
    await remotes.clusters.update(REMOTE, ELSEWHERE)
    await asyncio.sleep(0.1)
    await remotes.__aexit__(None, None, None)
    assert channel.error is not None
    await asyncio.sleep(2)
    assert not far.open_sessions


async def test_a_record_that_changes_while_it_is_read_is_read_again(
    remotes: RemoteClusters, coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = remotes.clusters.get
    others = Clusters(coordination)

    async def overtaken(name: str) -> ClusterData:
        record = await get(name)
        if record != ELSEWHERE:
            await others.update(name, ELSEWHERE)
            await asyncio.sleep(0.1)
        return record

    with monkeypatch.context() as patched:
        patched.setattr(remotes.clusters, "get", overtaken)
        first = await remotes.channels(REMOTE)
    await asyncio.sleep(1)
    assert await remotes.channels(REMOTE) is first, "the client of the former record went on"


@pytest.mark.parametrize(
    "record",
    [
        ClusterData(),
        ClusterData(broker_service_url="garbage"),
        ClusterData(broker_service_url="pulsar://"),
        ClusterData(broker_service_url="pulsar://host:port"),
        ClusterData(
            broker_client_tls_enabled=True,
            broker_service_url_tls="pulsar+ssl://far:6651",
            broker_client_key_file_path="key.pem",
        ),
    ],
)
async def test_a_record_that_makes_no_client_is_told_as_the_reason(
    remotes: RemoteClusters, record: ClusterData
) -> None:
    await remotes.clusters.create("odd", record)
    with pytest.raises(ClusterUnreachable):
        await remotes.channels("odd")


async def test_insecure_connections_need_no_file_and_may_have_one(
    remotes: RemoteClusters,
) -> None:
    record = ClusterData(
        broker_client_tls_enabled=True,
        broker_service_url_tls="pulsar+ssl://far:6651",
        broker_client_trust_certs_file_path="ca.pem",
        tls_allow_insecure_connection=True,
    )
    await remotes.clusters.create("insecure", record)
    await remotes.channels("insecure")


@pytest.mark.parametrize("name", ["none", "../x", "a/b", "", "global", "ü ü"])
async def test_an_odd_name_is_no_cluster(remotes: RemoteClusters, name: str) -> None:
    with pytest.raises(ClusterUnreachable):
        await remotes.channels(name)


async def test_a_record_that_is_no_json_is_told_as_the_reason(
    remotes: RemoteClusters, coordination: Coordination
) -> None:
    await coordination.create("/admin/clusters/broken", b"{not json", make_parents=True)
    with pytest.raises(ClusterUnreachable):
        await remotes.channels("broken")


SECURED = "pulsar+ssl://far:6651"
OWN = BrokerClientTlsConfig(enabled=True, trust_file="own-ca.pem", certificate_file="own.pem")


@pytest.mark.parametrize(
    ("record", "own", "wanted"),
    [
        (ClusterData(broker_service_url_tls=SECURED), OWN, tls_of(OWN)),
        (
            ClusterData(
                broker_service_url_tls=SECURED,
                broker_client_tls_enabled=True,
                broker_client_trust_certs_file_path="ca.pem",
                broker_client_certificate_file_path="cert.pem",
                broker_client_key_file_path="key.pem",
            ),
            OWN,
            Tls(trust_file="ca.pem", certificate_file="cert.pem", key_file="key.pem"),
        ),
        (
            ClusterData(broker_service_url_tls=SECURED, broker_client_tls_enabled=True),
            BrokerClientTlsConfig(check_hostname=False),
            Tls(checks_hostname=False),
        ),
    ],
    ids=["the broker's", "the record's", "any host"],
)
async def test_tls_is_as_the_record_says_or_else_as_the_broker_asks_others(
    coordination: Coordination,
    far_network: FakeNetwork,
    monkeypatch: pytest.MonkeyPatch,
    record: ClusterData,
    own: BrokerClientTlsConfig,
    wanted: Tls,
) -> None:
    given: list[Tls | None] = []

    def channels(*_: object, access: Access, **__: object) -> NoReturn:
        given.append(access.tls)
        raise InvalidServiceUrl("the test", "needs no more")

    monkeypatch.setattr(remote_clusters, "Channels", channels)
    clusters = Clusters(coordination)
    await clusters.create("secured", record)
    async with RemoteClusters(clusters, network=far_network, random=Random(1), tls=own) as opened:
        with pytest.raises(ClusterUnreachable):
            await opened.channels("secured")
    assert given == [wanted]


async def test_a_broker_that_asks_others_with_tls_asks_no_cluster_without(
    coordination: Coordination, far: FakeBroker, far_network: FakeNetwork
) -> None:
    clusters = Clusters(coordination)
    await clusters.create(REMOTE, ClusterData(broker_service_url=far.url))
    async with RemoteClusters(clusters, network=far_network, random=Random(1), tls=OWN) as opened:
        with pytest.raises(ClusterUnreachable, match="has no brokerServiceUrlTls"):
            await opened.channels(REMOTE)
