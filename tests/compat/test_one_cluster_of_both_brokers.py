"""Proves that a broker of Apache Pulsar's joins a cluster of ours as one of its brokers: each leads
clients to the other, topics move between them, nothing acknowledged is lost, and each reads what
topics say of themselves at the other."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from tests.apache_java.marking import pulsar_home_or_skip
from tests.apache_java.pulsar_broker import HOST, pulsar_broker
from tests.compat.clients import Broker
from tests.compat.pulsar_admin import PulsarAdmin
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import ClusterProcess
from tests.integration.waiting import eventually

from geminga_broker.admin.bundle_calls import BundleCalls
from geminga_broker.ownership.addresses.address import Owner
from geminga_cli.ports import ReservedPort
from geminga_server.http.rest_calls import HttpCalls

# In the namespace's 16 bundles: each of the two brokers serves some.
TOPICS = [f"both-{number}" for number in range(24)]
TOPIC = "persistent://public/default/{}"
RECEIVE_TIMEOUT_MS = 60_000
MOVES = 4


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, Broker]]:
    """Ours, which came first, and one of Apache's, by the addresses they have in load reports."""
    home, directory = pulsar_home_or_skip(), tmp_path_factory.mktemp("both")
    cluster = ClusterProcess.up(directory / "data", "--no-sync", brokers=1, bookies=2)
    try:
        zookeeper = str(cluster.endpoints["zookeeper"]["address"])
        with ReservedPort(HOST, 0) as port, ReservedPort(HOST, 0) as web_port:
            ports = (port.port, web_port.port)
            with pulsar_broker(home, directory, zookeeper, ports):
                theirs = Broker(f"pulsar://{HOST}:{ports[0]}", f"http://{HOST}:{ports[1]}")
                yield {"ours": Broker(cluster.service_url, cluster.web_url), "theirs": theirs}
    finally:
        cluster.stop()


def owners(
    asked: Broker, brokers: dict[str, Broker], topics: Sequence[str] = TOPICS
) -> dict[str, str]:
    """Which of the two serves each topic, as the broker ``asked`` says or redirects to."""
    names = {broker.service_url: name for name, broker in brokers.items()}
    found: dict[str, str] = {}
    for topic in topics:
        path = f"../../lookup/v2/topic/persistent/public/default/{topic}"
        found[topic] = names[asked.admin("GET", path).json()["brokerUrl"]]
    return found


def living(broker: Broker) -> set[str]:
    return set(broker.admin("GET", "brokers/standalone").json())


def broker_id(broker: Broker) -> str:
    return urlsplit(broker.web_url).netloc


def test_each_broker_knows_both_and_names_the_same_leader(brokers: dict[str, Broker]) -> None:
    ids = {broker_id(each) for each in brokers.values()}
    leaders = set[str]()
    for each in brokers.values():
        eventually(partial(living, each), ids.__eq__)
        leaders.add(each.admin("GET", "brokers/leaderBroker").json()["brokerId"])
    assert leaders == {broker_id(brokers["ours"])}


def test_each_broker_leads_clients_to_the_other(brokers: dict[str, Broker]) -> None:
    said = [owners(each, brokers) for each in brokers.values()]
    assert said[0] == said[1]
    assert set(said[0].values()) == set(brokers)
    for asked in brokers.values():
        with client_of(asked.service_url) as client:
            for topic in TOPICS:
                reader = client.subscribe(TOPIC.format(topic), f"of {broker_id(asked)}")
                producer = client.create_producer(TOPIC.format(topic))
                producer.send(topic.encode())
                assert reader.receive(RECEIVE_TIMEOUT_MS).data() == topic.encode()
                reader.close()
                producer.close()


def test_topics_move_between_both_and_lose_nothing(brokers: dict[str, Broker]) -> None:
    topic = "both-moved"
    sent: list[bytes] = []
    with client_of(brokers["ours"].service_url) as client:
        consumer = client.subscribe(TOPIC.format(topic), "readers")
        producer = client.create_producer(TOPIC.format(topic), send_timeout_millis=SEND_TIMEOUT_MS)
        for move in range(MOVES):
            owner = owners(brokers["ours"], brokers, [topic])[topic]
            for number in range(20):
                sent.append(b"%d.%d" % (move, number))
                producer.send(sent[-1])
            unload(brokers, owner, topic)
        received = set[bytes]()
        while len(received) < len(sent):
            message: Any = consumer.receive(RECEIVE_TIMEOUT_MS)
            received.add(message.data())
            consumer.acknowledge(message)
        reader = client.create_reader(TOPIC.format(topic), pulsar.MessageId.earliest)
        stored = [reader.read_next(RECEIVE_TIMEOUT_MS).data() for _ in sent]
        assert not reader.has_message_available()
    assert stored == sent
    assert received == set(sent)


def test_a_bundle_goes_where_it_is_told_whichever_broker_is_asked(
    brokers: dict[str, Broker],
) -> None:
    """Ours leads. Apache's sends the request there, and gets it back without the destination."""
    path = "../../lookup/v2/topic/persistent/public/default/both-sent"
    for destination in ("theirs", "ours", "theirs", "ours"):
        for asked in ("theirs", "ours"):  # the second time it is there already
            bundle = brokers["ours"].admin("GET", f"{path}/bundle").text.strip('"')
            word = f"destinationBroker={broker_id(brokers[destination])}"
            brokers[asked].admin("PUT", f"namespaces/public/default/{bundle}/unload?{word}")
            assert owners(brokers["ours"], brokers, ["both-sent"]) == {"both-sent": destination}


async def test_the_leader_moves_a_bundle_away_from_apaches_broker(
    brokers: dict[str, Broker],
) -> None:
    path = "../../lookup/v2/topic/persistent/public/default/both-shed"
    bundle = f"public/default/{brokers['ours'].admin('GET', f'{path}/bundle').text.strip()}"
    owned = f"brokers/standalone/{broker_id(brokers['theirs'])}/ownedNamespaces"
    if owners(brokers["ours"], brokers, ["both-shed"])["both-shed"] == "ours":
        unload(brokers, "ours", "both-shed")
    theirs = Owner("", "", brokers["theirs"].web_url, "", is_self=False)
    calls = BundleCalls(HttpCalls(), unload_timeout_s=30.0)
    assert bundle in brokers["theirs"].admin("GET", owned).json()
    await calls.unload(theirs, bundle, broker_id(brokers["ours"]))
    assert bundle not in brokers["theirs"].admin("GET", owned).json()


ELSEWHERE = ["elsewhere", "standalone"]


@pytest.mark.parametrize(("writer", "reader"), [("ours", "theirs"), ("theirs", "ours")])
async def test_what_a_topic_says_at_one_broker_the_other_reads(
    writer: str, reader: str, brokers: dict[str, Broker], tmp_path: Path
) -> None:
    """Said with the official ``pulsar-admin``: of a topic that the reader serves, the writer, which
    is asked, leads it there."""
    near = brokers["ours"]
    record = {"serviceUrl": "http://127.0.0.1:9", "brokerServiceUrl": "pulsar://127.0.0.1:9"}
    if "elsewhere" not in near.admin("GET", "clusters").json():
        near.admin("PUT", "clusters/elsewhere", record)
        near.admin("POST", "tenants/public", {"allowedClusters": ELSEWHERE})
    name = f"both-said-by-{writer}"
    topic = TOPIC.format(name)
    admin = PulsarAdmin(brokers[writer].web_url, tmp_path)

    def says(where: str) -> list[str]:
        written = brokers[where].admin("GET", f"persistent/public/default/{name}/replication").text
        return sorted(json.loads(written or "[]"))

    near.admin("PUT", f"persistent/public/default/{name}")
    if owners(near, brokers, [name])[name] != writer:
        unload(brokers, reader, name)
    words = "topics set-replication-clusters --clusters standalone,elsewhere"
    await admin.does(f"{words} {topic}")
    eventually(partial(says, writer), ELSEWHERE.__eq__)
    written = await admin.does(f"topics get-replication-clusters {topic}")
    assert all(each in written for each in ELSEWHERE)
    unload(brokers, writer, name)
    assert owners(near, brokers, [name]) == {name: reader}
    eventually(partial(says, reader), ELSEWHERE.__eq__)
    stats = brokers[reader].admin("GET", f"persistent/public/default/{name}/stats").json()
    assert list(stats["replication"]) == ["elsewhere"]
    await admin.does(f"topics remove-replication-clusters {topic}")
    eventually(partial(says, reader), [].__eq__)
    unload(brokers, reader, name)
    eventually(partial(says, writer), [].__eq__)


def unload(brokers: dict[str, Broker], owner: str, topic: str) -> None:
    """Have the topic's bundle leave its owner for the other broker."""
    path = f"../../lookup/v2/topic/persistent/public/default/{topic}/bundle"
    bundle = brokers[owner].admin("GET", path).text.strip('"')
    other = "theirs" if owner == "ours" else "ours"
    word = f"destinationBroker={broker_id(brokers[other])}"
    brokers[owner].admin("PUT", f"namespaces/public/default/{bundle}/unload?{word}")
    assert owners(brokers[owner], brokers, [topic]) == {topic: other}
