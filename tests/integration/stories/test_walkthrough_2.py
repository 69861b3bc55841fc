"""Topic discovery in a cluster of three brokers: lookups at any of them, one that is killed, one
that stands still, one that joins. Clients are the official one, brokers real processes.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import ClusterProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_protocol.pulsar.answers import encode_connected, encode_lookup, encode_partitions
from geminga_protocol.pulsar.commands import parse_command

BROKERS = ["broker", "broker-2", "broker-3"]
TOPIC = "persistent://public/default/{}"
STATS = "/admin/v2/persistent/public/default/{}/stats"
RECEIVE_TIMEOUT_MS = 60_000
# More topics than brokers, in the namespace's 16 bundles: of every broker some.
TOPICS = 24
# ZooKeeper ends a dead broker's session so long after its last word, and others take over then.
# Promised is 3 s after that; a busy machine may take longer.
TAKE_OVER_MAX_S = 30.0
OK = 200
SIZE_BYTES = 4  # before each frame
# A refused subscribe is tried again after 0.1 s; one that is not gives up after a client's 60 s.
SUBSCRIBE_AGAIN_MAX_S = 30.0


def owner_of(cluster: ClusterProcess, topic: str, asked: str = "broker") -> str:
    """The name of the broker that serves the topic, as the broker ``asked`` says."""
    status, answer = lookup(cluster, topic, asked)
    assert status == OK, answer
    return cluster.broker_at(answer["brokerUrl"])


def lookup(cluster: ClusterProcess, topic: str, asked: str) -> tuple[int, Any]:
    path = f"/lookup/v2/topic/persistent/public/default/{topic}"
    return rest(cluster.web_url_of(asked), "GET", path)


def multi_host(cluster: ClusterProcess) -> str:
    """A service URL with every broker."""
    hosts = (urlsplit(cluster.url_of(name)).netloc for name in cluster.brokers)
    return f"pulsar://{','.join(hosts)}"


def addresses(cluster: ClusterProcess, parts: list[str]) -> set[int]:
    """The ports of Pulsar's protocol."""
    return {urlsplit(cluster.url_of(part)).port or 0 for part in parts}


def peers_of_this_process() -> set[int]:
    """The ports of this machine that this process has TCP connections to."""
    links = (each for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    sockets = {str(each.readlink()) for each in links}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in sockets}


def send(client: Any, topic: str, *payloads: bytes) -> None:
    producer = client.create_producer(TOPIC.format(topic), send_timeout_millis=SEND_TIMEOUT_MS)
    for payload in payloads:
        producer.send(payload)
    producer.close()


def consumers_of(cluster: ClusterProcess, topic: str, asked: str) -> int:
    """How many consumers the subscription "sub" has now, as the topic's broker says."""
    _, stats = rest(cluster.web_url_of(asked), "GET", STATS.format(topic))
    return len(stats["subscriptions"]["sub"]["consumers"])


def stored_in(client: Any, topic: str) -> list[bytes]:
    reader = client.create_reader(TOPIC.format(topic), pulsar.MessageId.earliest)
    found: list[bytes] = []
    while reader.has_message_available():
        found.append(reader.read_next(RECEIVE_TIMEOUT_MS).data())
    reader.close()
    return found


def test_all_brokers_know_each_other_and_one_leader(cluster: ClusterProcess) -> None:
    leaders = set[str]()
    for name in BROKERS:
        _, living = rest(cluster.web_url_of(name), "GET", "/admin/v2/brokers/standalone")
        assert sorted(living) == sorted(
            urlsplit(cluster.web_url_of(each)).netloc for each in BROKERS
        )
        _, leader = rest(cluster.web_url_of(name), "GET", "/admin/v2/brokers/leaderBroker")
        leaders.add(leader["brokerId"])
    assert len(leaders) == 1


def test_the_cluster_is_known_by_the_addresses_of_its_proxy(cluster: ClusterProcess) -> None:
    _, record = rest(cluster.web_url_of("broker"), "GET", "/admin/v2/clusters/standalone")
    assert record["brokerServiceUrl"] == cluster.service_url == cluster.url_of("proxy")
    assert record["serviceUrl"] == cluster.web_service_url == cluster.web_url_of("proxy")


def test_a_client_of_the_proxy_uses_topics_of_every_broker_and_meets_none_of_them(
    cluster: ClusterProcess,
) -> None:
    topics = [f"inside-{number}" for number in range(TOPICS)]
    with client_of(cluster.service_url) as client:
        for topic in topics:
            send(client, topic, topic.encode())
            assert stored_in(client, topic) == [topic.encode()]
            owner = cluster.web_url_of(owner_of(cluster, topic))
            _, stats = rest(cluster.web_service_url, "GET", STATS.format(topic))
            assert stats["ownerBroker"] == urlsplit(owner).netloc
        assert peers_of_this_process() & addresses(cluster, BROKERS) == set()
        assert peers_of_this_process() & addresses(cluster, ["proxy"])


def test_a_client_of_the_proxy_survives_its_topics_broker_and_then_the_proxy(
    cluster: ClusterProcess,
) -> None:
    with client_of(cluster.service_url) as client:
        consumer = client.subscribe(TOPIC.format("behind"), "sub")
        producer = client.create_producer(
            TOPIC.format("behind"), send_timeout_millis=SEND_TIMEOUT_MS
        )
        producer.send(b"before")
        owner = owner_of(cluster, "behind")
        cluster.take_down(owner)
        try:
            producer.send(b"without the broker")
        finally:
            cluster.resume(owner)
        pid = cluster.kill_part("proxy")
        cluster.wait_restarted("proxy", pid)
        producer.send(b"with another proxy")
        received = [consumer.receive(RECEIVE_TIMEOUT_MS).data() for _ in range(3)]
        assert received == [b"before", b"without the broker", b"with another proxy"]


def test_every_broker_names_the_same_owner_and_leads_clients_there(cluster: ClusterProcess) -> None:
    topics = [f"found-{number}" for number in range(TOPICS)]
    for number, topic in enumerate(topics):
        with client_of(cluster.url_of(BROKERS[number % len(BROKERS)])) as client:
            send(client, topic, topic.encode())
    for topic in topics:
        owners = {owner_of(cluster, topic, asked) for asked in BROKERS}
        assert len(owners) == 1, f"{topic} has the owners {owners}"
        assert owners <= set(BROKERS)
    for asked in BROKERS:
        with client_of(cluster.url_of(asked)) as client:
            for topic in topics:
                assert stored_in(client, topic) == [topic.encode()]
    assert {owner_of(cluster, topic) for topic in topics} == set(BROKERS), "all have a share"


@pytest.mark.parametrize("lookups", ["binary", "http"])
def test_when_the_owner_is_killed_another_broker_serves_the_topic(
    cluster: ClusterProcess, lookups: str
) -> None:
    topic = f"survives-{lookups}"
    url = multi_host(cluster)
    if lookups == "http":
        url = ",".join(
            [
                cluster.web_url_of("broker"),
                *(urlsplit(cluster.web_url_of(each)).netloc for each in BROKERS[1:]),
            ]
        )
    with client_of(url) as client:
        consumer = client.subscribe(TOPIC.format(topic), "sub")
        producer = client.create_producer(TOPIC.format(topic), send_timeout_millis=SEND_TIMEOUT_MS)
        producer.send(b"before")
        owner = owner_of(cluster, topic)
        begun_s = time.monotonic()
        cluster.take_down(owner)
        try:
            producer.send(b"after")
            took_s = time.monotonic() - begun_s
            (other, *_) = (each for each in cluster.brokers if each != owner)
            assert owner_of(cluster, topic, other) != owner
            # A consumer that has not come back yet would hand out what the killed broker sent it,
            # and get it once more.
            eventually(lambda: consumers_of(cluster, topic, other), (1).__eq__)
            received = [consumer.receive(RECEIVE_TIMEOUT_MS) for _ in range(2)]
            assert [message.data() for message in received] == [b"before", b"after"]
        finally:
            cluster.resume(owner)
    assert took_s < TAKE_OVER_MAX_S


def test_a_broker_that_stood_still_has_lost_its_topics_and_does_not_write_to_them(
    cluster: ClusterProcess,
) -> None:
    """It keeps its process and loses its session: the walk-through's last point."""
    topic = "fenced"
    with client_of(multi_host(cluster)) as client:
        # What no subscription needs is trimmed when a topic moves.
        client.subscribe(TOPIC.format(topic), "keeps").close()
        send(client, topic, b"1")
        owner = owner_of(cluster, topic)
        pid = cluster.pid_of(owner)
        cluster.pause(owner)
        (other, *_) = (each for each in BROKERS if each != owner)
        # Until its session ends it is the owner, and the official client would give up on it.
        eventually(lambda: owner_of(cluster, topic, other), lambda name: name != owner)
        with client_of(cluster.url_of(other)) as elsewhere:
            send(elsewhere, topic, b"2")
        cluster.resume(owner)
        # Until ZooKeeper tells it that its session is over, it goes on with what it owned; then it
        # is busy for a moment with what it lost.
        eventually(
            lambda: lookup(cluster, topic, owner),
            lambda it: it[0] == OK and cluster.broker_at(it[1]["brokerUrl"]) != owner,
        )
        with client_of(cluster.url_of(owner)) as again:
            send(again, topic, b"3")
            assert stored_in(again, topic) == [b"1", b"2", b"3"]
            # It takes part again, without having been started again.
            send(again, "fenced-and-back", b"4")
        assert cluster.pid_of(owner) == pid
    living = eventually(
        lambda: rest(cluster.web_url_of(other), "GET", "/admin/v2/brokers/standalone")[1],
        lambda found: len(found) == len(BROKERS),
    )
    assert urlsplit(cluster.web_url_of(owner)).netloc in living


def test_a_broker_that_is_added_serves(start_cluster: Any) -> None:
    cluster = start_cluster("--no-sync", brokers=1, bookies=1)
    assert cluster.add("broker") == "broker-2"
    with client_of(cluster.url_of("broker-2")) as client:
        send(client, "joined", b"1")
        assert stored_in(client, "joined") == [b"1"]
    _, living = rest(cluster.web_service_url, "GET", "/admin/v2/brokers/standalone")
    assert len(living) == 2


def test_a_consumer_that_an_outdated_lookup_sent_to_another_broker_is_served_at_once(
    cluster: ClusterProcess,
) -> None:
    topic = "outdated-lookup"
    with client_of(cluster.service_url) as client:
        send(client, topic, b"found")
        position = pulsar.InitialPosition.Earliest
        client.subscribe(TOPIC.format(topic), "readers", initial_position=position).close()
    owner = owner_of(cluster, topic)
    stranger = next(name for name in BROKERS if name != owner)
    begun_s = time.monotonic()
    with (
        lookups_answering(cluster.url_of(stranger), cluster.url_of(owner)) as service_url,
        client_of(service_url) as client,
    ):
        consumer = client.subscribe(TOPIC.format(topic), "readers")
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"found"
    assert time.monotonic() - begun_s < SUBSCRIBE_AGAIN_MAX_S


@contextmanager
def lookups_answering(first: str, then: str) -> Generator[str]:
    """A service URL whose first lookup names the broker at ``first``, all others ``then``."""
    named = chain([first], repeat(then))

    class Lookups(StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(SIZE_BYTES):
                frame = self.rfile.read(int.from_bytes(head, "big"))
                command, _ = parse_command(head + frame, SIZE_BYTES, SIZE_BYTES + len(frame))
                if command.HasField("connect"):
                    self.wfile.write(encode_connected(command.connect.protocol_version, None))
                elif command.HasField("partitionMetadata"):
                    self.wfile.write(encode_partitions(command.partitionMetadata.request_id, 0))
                elif command.HasField("lookupTopic"):
                    asked = command.lookupTopic.request_id
                    self.wfile.write(encode_lookup(asked, broker_url=next(named)))

    with ThreadingTCPServer(("127.0.0.1", 0), Lookups) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"pulsar://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
