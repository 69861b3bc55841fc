"""Partitioned topics as the official client sees them: made, grown, deleted, and used by hand."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

TOPICS = "/admin/v2/persistent/public/default"
NAMESPACES = "/admin/v2/namespaces/public"
RECEIVE_MS = 60_000
ROUND_ROBIN = pulsar.PartitionsRoutingMode.RoundRobinDistribution
# The official client looks for new partitions once a minute, and offers no way to say otherwise.
CLIENT_NOTICES_S = 100.0


@pytest.fixture
def client(standalone: StandaloneProcess) -> Generator[Any]:
    """A client of the shared cluster."""
    with client_of(standalone.service_url) as client:
        yield client


@pytest.fixture
def web(standalone: StandaloneProcess) -> str:
    """Where its REST is."""
    return standalone.web_service_url


def ask(web: str, method: str, path: str, body: object = None) -> Any:
    """What REST answers to a request that succeeds."""
    status, answer = rest(web, method, path, body)
    assert status in (200, 204), answer
    return answer


def messages_of(consumer: Any, count: int) -> dict[bytes, str]:
    """The next messages, acknowledged, and the partition of each."""
    found: dict[bytes, str] = {}
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        consumer.acknowledge(message)
        found[message.data()] = message.topic_name().rpartition("/")[2]
    return found


def spread(client: Any, topic: str, words: list[str]) -> None:
    """Publish one message after the other, each to the next partition."""
    producer = client.create_producer(
        topic, message_routing_mode=ROUND_ROBIN, batching_enabled=False
    )
    for word in words:
        producer.send(word.encode())
    producer.close()


def test_a_topic_that_grows_is_seen_whole_by_each_new_consumer(client: Any, web: str) -> None:
    topic, path = "grows", f"{TOPICS}/grows"
    ask(web, "PUT", f"{path}/partitions", 2)
    before = client.subscribe(topic, "sub")
    assert len(client.get_topic_partitions(topic)) == 2
    ask(web, "POST", f"{path}/partitions", 4)
    assert len(client.get_topic_partitions(topic)) == 4
    spread(client, topic, [str(number) for number in range(8)])
    assert len(messages_of(before, 4)) == 4, "it has the partitions that were there"
    before.close()
    after = client.subscribe(topic, "sub")
    partitions = set(messages_of(after, 4).values())
    assert partitions == {"grows-partition-2", "grows-partition-3"}, (
        "what was published to new partitions waits for their first subscriber"
    )
    assert rest(web, "POST", f"{path}/partitions", 3)[0] != 204
    assert ask(web, "GET", f"{path}/partitions")["partitions"] == 4


@pytest.mark.full
@pytest.mark.timeout(240)
def test_producers_and_consumers_notice_growth_by_themselves(client: Any, web: str) -> None:
    topic, path = "watched", f"{TOPICS}/watched"
    ask(web, "PUT", f"{path}/partitions", 1)
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(
        topic, message_routing_mode=ROUND_ROBIN, batching_enabled=False
    )
    ask(web, "POST", f"{path}/partitions", 3)
    seen: set[str] = set()
    numbers = iter(range(1_000_000))

    def publish_and_receive() -> set[str]:
        time.sleep(1)
        producer.send(str(next(numbers)).encode())
        seen.update(messages_of(consumer, 1).values())
        return seen

    eventually(publish_and_receive, lambda found: len(found) == 3, CLIENT_NOTICES_S)


def test_partitions_are_listed_as_a_whole_and_one_by_one(client: Any, web: str) -> None:
    del client
    ask(web, "PUT", f"{TOPICS}/listed/partitions", 2)
    full = "persistent://public/default/listed"
    assert full in ask(web, "GET", f"{TOPICS}/partitioned")
    every = ask(web, "GET", TOPICS)
    assert full not in every
    assert {f"{full}-partition-0", f"{full}-partition-1"} <= set(every)
    ask(web, "DELETE", f"{TOPICS}/listed/partitions")
    assert full not in ask(web, "GET", f"{TOPICS}/partitioned")
    assert not [each for each in ask(web, "GET", TOPICS) if each.startswith(full)]


def test_a_partitioned_topic_in_use_goes_by_force_only(client: Any, web: str) -> None:
    topic, path = "used", f"{TOPICS}/used"
    ask(web, "PUT", f"{path}/partitions", 3)
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    status, refusal = rest(web, "DELETE", f"{path}/partitions")
    assert status == 412, refusal
    producer.send(b"still there")
    assert messages_of(consumer, 1)
    producer.close()
    consumer.close()
    ask(web, "DELETE", f"{path}/partitions?force=true")
    assert rest(web, "GET", f"{path}/partitions")[0] == 404
    ask(web, "PUT", f"{path}/partitions", 2)
    assert len(client.get_topic_partitions(topic)) == 2
    again = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(pulsar.Timeout):
        again.receive(200)


def test_clients_of_a_topic_that_is_deleted_by_force_come_back_to_a_new_one(
    client: Any, web: str
) -> None:
    topic, path = "forced", f"{TOPICS}/forced"
    ask(web, "PUT", f"{path}/partitions", 2)
    consumer = client.subscribe(topic, "sub")
    ask(web, "DELETE", f"{path}/partitions?force=true")
    consumer.close()

    # A client that was connected may have come back in between: a partition's name is a topic's.
    def left() -> list[str]:
        for name in ("forced-partition-0", "forced-partition-1"):
            assert rest(web, "DELETE", f"{TOPICS}/{name}?force=true")[0] in (204, 404)
        return [each for each in ask(web, "GET", TOPICS) if "/forced" in each]

    eventually(left, [].__eq__)


def test_a_name_of_a_partition_is_a_name_like_any_other_where_nothing_is_partitioned(
    client: Any, web: str
) -> None:
    """But only by use: an operator who creates it by hand means a partition, and is told."""
    producer = client.create_producer("alone-partition-3")
    producer.send(b"hello")
    consumer = client.subscribe(
        "alone-partition-3", "sub", initial_position=pulsar.InitialPosition.Earliest
    )
    assert messages_of(consumer, 1) == {b"hello": "alone-partition-3"}
    assert rest(web, "GET", f"{TOPICS}/alone/partitions")[0] == 404
    status, refusal = rest(web, "PUT", f"{TOPICS}/other-partition-3")
    assert status == 412, refusal


def test_no_partition_is_made_that_its_topic_does_not_have(client: Any, web: str) -> None:
    ask(web, "PUT", f"{TOPICS}/three/partitions", 3)
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer("three-partition-7")
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe("three-partition-3", "sub")
    names = [each.rpartition("/")[2] for each in ask(web, "GET", TOPICS)]
    assert sorted(each for each in names if each.startswith("three")) == [
        f"three-partition-{index}" for index in range(3)
    ]


def test_a_partition_that_was_deleted_alone_comes_back_with_its_topic(
    client: Any, web: str
) -> None:
    topic, path = "patchy", f"{TOPICS}/patchy"
    ask(web, "PUT", f"{path}/partitions", 3)
    ask(web, "DELETE", f"{TOPICS}/patchy-partition-0")
    assert ask(web, "GET", f"{path}/partitions")["partitions"] == 3
    assert len(client.get_topic_partitions(topic)) == 3
    ask(web, "POST", f"{path}/partitions", 4)
    spread(client, topic, list("abcd"))
    consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    assert set(messages_of(consumer, 4).values()) == {f"patchy-partition-{n}" for n in range(4)}


def test_topics_are_made_with_partitions_where_the_namespace_wants_that(
    client: Any, web: str
) -> None:
    space = f"{NAMESPACES}/parted"
    ask(web, "PUT", space)
    policy = {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    }
    ask(web, "POST", f"{space}/autoTopicCreation", policy)
    topic = "public/parted/made"
    producer = client.create_producer(topic)
    producer.send(b"hello")
    assert len(client.get_topic_partitions(topic)) == 3
    made = "/admin/v2/persistent/public/parted"
    assert ask(web, "GET", f"{made}/made/partitions")["partitions"] == 3
    assert ask(web, "GET", f"{made}/partitioned") == ["persistent://public/parted/made"]


def test_nothing_is_made_where_the_namespace_forbids_it(client: Any, web: str) -> None:
    space = f"{NAMESPACES}/by-hand"
    ask(web, "PUT", space)
    ask(web, "POST", f"{space}/autoTopicCreation", {"allowAutoTopicCreation": False})
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("public/by-hand/absent")
    with pytest.raises(pulsar.TopicNotFound):
        client.subscribe("public/by-hand/absent", "sub")
    by_hand = "/admin/v2/persistent/public/by-hand"
    assert ask(web, "GET", by_hand) == []
    ask(web, "PUT", f"{by_hand}/parted/partitions", 2)
    ask(web, "DELETE", f"{by_hand}/parted-partition-1")
    spread(client, "public/by-hand/parted", ["a", "b"])
    ask(web, "DELETE", f"{space}/autoTopicCreation")
    client.create_producer("public/by-hand/absent").close()
