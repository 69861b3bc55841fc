"""Proves that partitioned topics are made and grow in other clusters, and that what differs there,
or does not answer, is told and not touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga.fake_network import FakeNetwork
from tests.unit.geminga_broker.replication.far_rest import FarRest

from geminga import Tls
from geminga_broker.replication.errors import ClusterUnreachable, PartitionsDiffer, RemoteRefused
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_broker.replication.remote_topics import CREATIONS_MAX, RemoteTopics
from geminga_cluster.clusters import Clusters
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_runtime.coordination import Coordination
from geminga_server.http.rest_calls import RestCalls

TOPIC = TopicName.parse("persistent://t/n/a b")
PATH = "persistent/t/n/a%20b"


@pytest.fixture
def far() -> FarRest:
    """The brokers of ``west`` and ``north``."""
    return FarRest("west:1", "north:1")


@pytest.fixture
async def remotes(coordination: Coordination, far: FarRest) -> AsyncIterator[RemoteClusters]:
    clusters = Clusters(coordination)
    await clusters.create("west", ClusterData(service_url="http://gone:1,west:1/"))
    await clusters.create("north", ClusterData(service_url="http://north:1"))
    await clusters.create("away", ClusterData(service_url="http://away:1"))
    await clusters.create("nowhere", ClusterData(broker_service_url="pulsar://nowhere:1"))
    await clusters.create("odd", ClusterData(service_url="odd"))
    async with RemoteClusters(
        clusters, network=FakeNetwork(), random=Random(1), calls=lambda _: far
    ) as opened:
        yield opened


@pytest.fixture
async def topics(remotes: RemoteClusters) -> AsyncIterator[RemoteTopics]:
    async with RemoteTopics(remotes, is_enabled=True) as opened:
        yield opened


async def test_a_topic_is_made_where_it_is_missing(topics: RemoteTopics, far: FarRest) -> None:
    await topics.create_in_each(TOPIC, 3, ["west", "north"])
    assert far.topics == {"west:1": {PATH: 3}, "north:1": {PATH: 3}}
    await topics.create_in_each(TOPIC, 3, ["west"])  # it is there, and has as many


async def test_the_first_broker_that_can_be_reached_is_asked(
    topics: RemoteTopics, far: FarRest
) -> None:
    await topics.create(TOPIC, 3, "west")
    assert [each.split("/")[2] for each in far.asked] == ["gone:1", "west:1"]


@pytest.mark.parametrize("there", [0, 2])
async def test_another_topic_of_the_name_is_refused_and_stays_as_it_is(
    there: int, topics: RemoteTopics, far: FarRest
) -> None:
    far.topics["west:1"][PATH] = there
    with pytest.raises(PartitionsDiffer) as differ:
        await topics.create_in_each(TOPIC, 3, ["west", "north"])
    assert (differ.value.here, differ.value.remote, differ.value.there) == (3, "west", there)
    assert far.topics == {"west:1": {PATH: there}, "north:1": {PATH: 3}}


async def test_a_topic_grows_in_each_cluster(topics: RemoteTopics, far: FarRest) -> None:
    far.topics["west:1"][PATH] = far.topics["north:1"][PATH] = 2
    await topics.grow_in_each(TOPIC, 4, ["west", "north"])
    assert far.topics == {"west:1": {PATH: 4}, "north:1": {PATH: 4}}
    with pytest.raises(RemoteRefused, match="north refuses it: Desired partitions 3") as refused:
        await topics.grow_in_each(TOPIC, 3, ["north"])
    assert refused.value.status == 422


async def test_a_cluster_that_cannot_be_asked_is_named(topics: RemoteTopics) -> None:
    with pytest.raises(RemoteRefused, match="away:1 cannot be reached"):
        await topics.create(TOPIC, 3, "away")
    with pytest.raises(ClusterUnreachable, match="nowhere has no serviceUrl"):
        await topics.create(TOPIC, 3, "nowhere")
    with pytest.raises(ClusterUnreachable, match="odd"):
        await topics.create(TOPIC, 3, "odd")
    with pytest.raises(ClusterUnreachable, match="unknown is not registered"):
        await topics.create(TOPIC, 3, "unknown")


async def test_what_is_made_in_the_background_fails_in_the_log(
    topics: RemoteTopics, far: FarRest, caplog: pytest.LogCaptureFixture
) -> None:
    far.topics["west:1"][PATH] = 2
    topics.create_soon(TOPIC, 3, ["west", "north", "away"])
    await asyncio.sleep(1)
    assert far.topics == {"west:1": {PATH: 2}, "north:1": {PATH: 3}}
    told = [vars(record) for record in caplog.records if record.levelname == "WARNING"]
    assert {each["cluster"]: each["why"] for each in told} == {
        "west": f"{TOPIC} has 3 partitions here and 2 partitions in west: give it as many there, "
        "or delete one of the two",
        "away": "away refuses it: away:1 cannot be reached",
    }


async def test_no_more_is_made_in_the_background_than_there_is_room_for(
    topics: RemoteTopics, far: FarRest
) -> None:
    for number in range(CREATIONS_MAX + 5):
        topics.create_soon(TopicName.parse(f"persistent://t/n/{number}"), 1, ["north"])
    await asyncio.sleep(1)
    assert len(far.topics["north:1"]) == CREATIONS_MAX
    topics.create_soon(TOPIC, 1, ["north"])
    await asyncio.sleep(1)
    assert far.topics["north:1"][PATH] == 1


async def test_nothing_is_made_where_the_settings_say_so(
    remotes: RemoteClusters, far: FarRest
) -> None:
    async with RemoteTopics(remotes, is_enabled=False) as topics:
        topics.create_soon(TOPIC, 3, ["west"])
        await topics.create_in_each(TOPIC, 3, ["west"])
        await asyncio.sleep(1)
    assert far.asked == []


async def test_tls_is_spoken_where_the_record_says_so(coordination: Coordination) -> None:
    asked: list[Tls | None] = []

    def calls(tls: Tls | None) -> RestCalls:
        asked.append(tls)
        return FarRest()

    clusters = Clusters(coordination)
    record = ClusterData(
        service_url="http://west:1",
        service_url_tls="https://west:2",
        broker_client_tls_enabled=True,
        broker_client_trust_certs_file_path="/trusted",
    )
    await clusters.create("west", record)
    network = FakeNetwork()
    async with RemoteClusters(clusters, network=network, random=Random(1), calls=calls) as remotes:
        assert (await remotes.rest("west")).urls == ("https://west:2",)
    assert asked == [Tls(trust_file="/trusted")]
