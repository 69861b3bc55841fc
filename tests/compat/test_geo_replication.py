"""Proves that a cluster of ours and one of Apache Pulsar's replicate to each other: each message is
once in both, in the order of its origin, whichever broker is killed meanwhile; but what a killed
Apache Pulsar had stored and not confirmed, it stores again.

When Pulsar 4.0.6 loads a topic, ``MessageDeduplication.replayCursor`` takes names and numbers of
producers from the entries behind its last snapshot, and not the source positions by which it knows
a repeat of a replicator (apache/pulsar#25861).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Event
from typing import Any, cast

import pulsar
import pytest
from pulsar.schema import AvroSchema, JsonSchema, Record, String
from tests.apache_java.java import NotRun
from tests.compat.clients import Broker
from tests.compat.geo_pulsar import NAME as APACHE
from tests.compat.geo_pulsar import GeoPulsar
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import ClusterProcess
from tests.integration.waiting import eventually

from geminga_broker.replication.config import ReplicationConfig
from geminga_protocol.pulsar.messages.replication import SOURCE_POSITION_PROPERTY

OURS = "geminga"
NAMES = (OURS, APACHE)
TENANT = "geo"
NAMESPACE = f"{TENANT}/both"
TIMEOUT_S = 180.0
# So long nothing must come that is not to come, when all that is has come.
QUIET_MS = 1_000
# A broker is killed in the midst of so many messages in each cluster, sent unbatched and batched.
KILLED_AMONG = 2_000


@dataclass(frozen=True)
class Clusters:
    """One of ours and one of Apache's."""

    cluster: ClusterProcess
    apache: GeoPulsar

    def __getitem__(self, name: str) -> Broker:
        return {
            OURS: Broker(self.cluster.service_url, self.cluster.web_service_url),
            APACHE: self.apache.broker,
        }[name]

    def kill(self, name: str) -> None:
        """Kill the broker with SIGKILL, and return when it serves again."""
        if name == APACHE:
            self.apache.kill()
            self.apache.start()
        else:
            (part,) = self.cluster.brokers
            self.cluster.wait_restarted(part, self.cluster.kill_part(part))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Generator[Clusters]:
    """Both know each other, and have a namespace that is replicated and deduplicated."""
    try:
        apache = GeoPulsar(tmp_path_factory.mktemp("apache"))
    except NotRun as reason:
        pytest.skip(str(reason))
    directory = tmp_path_factory.mktemp("ours") / "data"
    cluster = ClusterProcess.up(directory, "--cluster", OURS, "--no-sync", brokers=1, bookies=1)
    try:
        apache.start()
        both = Clusters(cluster, apache)
        for name, other in (NAMES, NAMES[::-1]):
            asked, told = both[name], both[other]
            record = {"serviceUrl": told.web_url, "brokerServiceUrl": told.service_url}
            asked.admin("PUT", f"clusters/{other}", record)
            asked.admin("PUT", f"tenants/{TENANT}", {"allowedClusters": list(NAMES)})
            asked.admin("PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": list(NAMES)})
            asked.admin("POST", f"namespaces/{NAMESPACE}/deduplication", True)  # noqa: FBT003
        yield both
    finally:
        apache.kill()
        cluster.stop()


def topic_of(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def send_from(broker: Broker, topic: str, payloads: Iterable[bytes], **options: Any) -> None:
    """Send each as a message of its own and wait for all; fails where one is refused."""
    with client_of(broker.service_url) as client:
        producer = client.create_producer(
            topic_of(topic), send_timeout_millis=SEND_TIMEOUT_MS, block_if_queue_full=True
        )
        for payload in payloads:
            producer.send(payload, **options)
        producer.close()


def receive(broker: Broker, topic: str, number: int) -> list[bytes]:
    """The first messages of the topic, which has no others."""
    with client_of(broker.service_url) as client:
        reader = client.create_reader(topic_of(topic), pulsar.MessageId.earliest)
        found = [reader.read_next(int(TIMEOUT_S * 1000)).data() for _ in range(number)]
        with pytest.raises(pulsar.Timeout):
            found.append(reader.read_next(QUIET_MS).data())
        return found


def read_back(broker: Broker, topic: str) -> list[bytes]:
    """All that the topic holds; nothing is on its way to it any more."""
    with client_of(broker.service_url) as client:
        reader = client.create_reader(topic_of(topic), pulsar.MessageId.earliest)
        found: list[bytes] = []
        while reader.has_message_available():
            found.append(reader.read_next(int(TIMEOUT_S * 1000)).data())
        return found


def without_repeats(numbers: Iterable[int]) -> list[int]:
    """A sender that goes back sends all from there on again: numbers count up, or go back."""
    found: list[int] = []
    last = -1
    for number in numbers:
        assert number <= last + 1, f"{number} came after {last}"
        last = number
        if number == len(found):
            found.append(number)
    return found


def backlog(clusters: Clusters, name: str, topic: str) -> int:
    stats = clusters[name].admin("GET", f"persistent/{NAMESPACE}/{topic}/stats").json()
    return sum(each["replicationBacklog"] for each in stats["replication"].values())


def await_replicated(clusters: Clusters, topic: str) -> None:
    for name in NAMES:
        eventually(partial(backlog, clusters, name, topic), (0).__eq__, TIMEOUT_S)


def test_each_message_is_once_in_both_in_the_order_of_its_origin(clusters: Clusters) -> None:
    sent = {name: [f"{name}-{number}".encode() for number in range(50)] for name in NAMES}
    for name in NAMES:
        send_from(clusters[name], "plain", sent[name])
    for name in NAMES:
        found = receive(clusters[name], "plain", 100)
        for origin in NAMES:
            assert [each for each in found if each in sent[origin]] == sent[origin]
    await_replicated(clusters, "plain")


def test_both_tell_the_position_at_home_by_which_a_repeat_is_known(clusters: Clusters) -> None:
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(client_of(clusters[name].service_url)) for name in NAMES
        }
        for origin, target in (NAMES, NAMES[::-1]):
            topic = topic_of(f"positions-{origin}")
            sent = clients[origin].create_producer(topic).send(b"message")
            reader = clients[target].create_reader(topic, pulsar.MessageId.earliest)
            found = reader.read_next(int(TIMEOUT_S * 1000)).properties()
            assert found == {SOURCE_POSITION_PROPERTY: f"{sent.ledger_id()}:{sent.entry_id()}"}


def test_a_message_goes_only_where_it_is_to_go(clusters: Clusters) -> None:
    for name, other in (NAMES, NAMES[::-1]):
        topic = f"selected-{name}"
        send_from(clusters[name], topic, [b"none"], disable_replication=True)
        send_from(clusters[name], topic, [b"elsewhere"], replication_clusters=[name])
        send_from(clusters[name], topic, [b"named"], replication_clusters=[other])
        send_from(clusters[name], topic, [b"all"])
        assert receive(clusters[other], topic, 2) == [b"named", b"all"]
        assert receive(clusters[name], topic, 4) == [b"none", b"elsewhere", b"named", b"all"]


class Order(Record):  # type: ignore[misc]  # the client tells no types
    """What is ordered."""

    item = cast("str", String())


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema], ids=["avro", "json"])
@pytest.mark.parametrize("origin", NAMES)
def test_schemas_come_along(
    clusters: Clusters, origin: str, kind: Callable[[type[Order]], Any]
) -> None:
    (target,) = set(NAMES) - {origin}
    schema = kind(Order)
    topic = f"orders-{origin}-{type(schema).__name__}"
    with client_of(clusters[origin].service_url) as client:
        producer = client.create_producer(topic_of(topic), schema=schema)
        producer.send(Order(item="tea"))
    with client_of(clusters[target].service_url) as client:
        reader = client.create_reader(topic_of(topic), pulsar.MessageId.earliest, schema=schema)
        assert reader.read_next(int(TIMEOUT_S * 1000)).value().item == "tea"
    said = [
        clusters[name].admin("GET", f"schemas/{NAMESPACE}/{topic}/schema").json() for name in NAMES
    ]
    assert (said[0]["type"], said[0]["data"]) == (said[1]["type"], said[1]["data"])


@pytest.mark.parametrize("batching", ["unbatched", "batched"])
@pytest.mark.parametrize("killed", NAMES)
def test_nothing_is_lost_or_twice_when_a_broker_is_killed(
    clusters: Clusters, killed: str, batching: str
) -> None:
    """Producers in both clusters go on while it is away; they are deduplicated too. A killed Apache
    Pulsar may have messages of ours twice, whose receipts it had not sent."""
    topic = f"killed-{killed}-{batching}"
    refused: list[object] = []
    confirmed = {name: count() for name in NAMES}
    done = {name: Event() for name in NAMES}

    def answered(name: str, result: object, _id: object) -> None:
        if result != pulsar.Result.Ok:
            refused.append((name, result))
        if next(confirmed[name]) == KILLED_AMONG - 1:
            done[name].set()

    clients = [client_of(clusters[name].service_url) for name in NAMES]
    with clients[0] as first, clients[1] as second:
        for client in (first, second):  # without a subscription it would be trimmed
            client.subscribe(topic_of(topic), "keeper").close()
        producers = [
            client.create_producer(
                topic_of(topic),
                producer_name=f"producer of {name}",
                send_timeout_millis=0,  # deduplication wants it to try for ever
                block_if_queue_full=True,
                max_pending_messages=KILLED_AMONG,
                batching_enabled=batching == "batched",
            )
            for name, client in zip(NAMES, (first, second), strict=True)
        ]
        for number in range(KILLED_AMONG):
            for name, producer in zip(NAMES, producers, strict=True):
                payload = struct.pack(">20sI", name.encode(), number)
                producer.send_async(payload, partial(answered, name))
            if number == KILLED_AMONG // 2:
                clusters.kill(killed)
        assert all(done[name].wait(TIMEOUT_S) for name in NAMES)
    assert refused == []
    await_replicated(clusters, topic)
    for name in NAMES:
        found = read_back(clusters[name], topic)
        for origin in NAMES:
            of_origin = [each for each in found if each.startswith(origin.encode())]
            numbers = [struct.unpack(">20sI", each)[1] for each in of_origin]
            if name == killed == APACHE and origin == OURS:
                again = len(numbers) - KILLED_AMONG
                numbers = without_repeats(numbers)
                assert batching == "batched" or again <= ReplicationConfig().pending_messages_max
            assert numbers == list(range(KILLED_AMONG)), (name, origin)


@pytest.mark.parametrize(("name", "other"), [NAMES, NAMES[::-1]])
def test_a_partitioned_topic_is_made_in_the_other_cluster_and_grows_there(
    name: str, other: str, clusters: Clusters
) -> None:
    path = f"persistent/{NAMESPACE}/parted-in-{name}/partitions"

    def partitions() -> int:
        found = {each.rpartition("/")[2] for each in clusters[other].admin("GET", listed).json()}
        if f"parted-in-{name}" not in found:
            return 0
        return int(clusters[other].admin("GET", path).json()["partitions"])

    listed = f"persistent/{NAMESPACE}/partitioned"
    clusters[name].admin("PUT", path, 2)
    eventually(partitions, (2).__eq__)
    clusters[name].admin("POST", path, 3)
    assert partitions() == 3
    send_from(clusters[name], f"parted-in-{name}-partition-2", [b"in the last"])
    assert receive(clusters[other], f"parted-in-{name}-partition-2", 1) == [b"in the last"]
