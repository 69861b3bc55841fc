"""How often a message was given back, with the official client: the counts outlive unloaded topics
and killed brokers, so that a poisonous message reaches its dead-letter topic whatever happens.
"""

from __future__ import annotations

from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_protocol.records.topics.redelivery_counts import is_of_redelivery_counts

TOPIC = "persistent://public/default/"
SUBSCRIPTION = "poisoned"
RECEIVE_TIMEOUT_MS = 60_000
NACK_DELAY_MS = 100
# What is given back within this time comes again together.
BATCH_NACK_DELAY_MS = 2000
KINDS = [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared]


@pytest.fixture(name="cluster")
def broker_is_killed(harmed: StandaloneProcess) -> StandaloneProcess:
    """A cluster whose broker may be killed."""
    return harmed


def subscribed(client: Any, topic: str, kind: Any, **options: Any) -> Any:
    return client.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=kind,
        initial_position=pulsar.InitialPosition.Earliest,
        **{"negative_ack_redelivery_delay_ms": NACK_DELAY_MS, **options},
    )


def publish(client: Any, topic: str, *bodies: str, batched: bool = False) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batched, batching_max_publish_delay_ms=60_000
    )
    for body in bodies:
        producer.send_async(body.encode(), None, partition_key="k")
    producer.flush()
    producer.close()


def received(consumer: Any, count: int = 1) -> dict[str, tuple[int, Any]]:
    """By its content, how often each of the next messages was given back, and the message."""
    found = [consumer.receive(RECEIVE_TIMEOUT_MS) for _ in range(count)]
    return {each.data().decode(): (each.redelivery_count(), each) for each in found}


def give_back(consumer: Any, messages: dict[str, tuple[int, Any]]) -> None:
    for _, message in messages.values():
        consumer.negative_acknowledge(message)


def counts(messages: dict[str, tuple[int, Any]]) -> dict[str, int]:
    return {body: count for body, (count, _) in messages.items()}


def unload(cluster: StandaloneProcess, topic: str) -> None:
    path = topic.replace("://", "/")
    status, _ = rest(cluster.web_service_url, "PUT", f"/admin/v2/{path}/unload")
    assert status == 204


def kept_counts(cluster: StandaloneProcess, topic: str) -> list[int]:
    """The counts that the cursor's next write has, or its last one had."""
    path = topic.replace("://", "/")
    _, stats = rest(cluster.web_service_url, "GET", f"/admin/v2/{path}/internalStats")
    properties = stats["cursors"][SUBSCRIPTION]["properties"]
    return [properties[name] for name in sorted(properties) if is_of_redelivery_counts(name)]


def await_next_write(cluster: StandaloneProcess, topic: str) -> None:
    """Have the cursor written, with the counts it has now: the answer comes when it is durable."""
    path = f"/admin/v2/{topic.replace('://', '/')}/subscription/{SUBSCRIPTION}/properties"
    status, _ = rest(cluster.web_service_url, "PUT", path, {"team": "payments"})
    assert status == 204


@pytest.mark.parametrize("kind", KINDS)
def test_an_unloaded_topic_knows_how_often_each_message_was_given_back(
    cluster: StandaloneProcess, kind: Any
) -> None:
    topic = f"{TOPIC}unloaded-{kind.name}"
    with client_of(cluster.service_url) as client:
        publish(client, topic, "poison", "other")
        consumer = subscribed(client, topic, kind)
        messages = received(consumer, 2)
        assert counts(messages) == {"poison": 0, "other": 0}
        for count in (1, 2, 3):
            give_back(consumer, {"poison": messages["poison"]})
            messages |= received(consumer)
            assert counts(messages) == {"poison": count, "other": 0}
        unload(cluster, topic)
        messages = received(consumer, 2)
        assert counts(messages) == {"poison": 3, "other": 0}, "being unloaded counts for nothing"
        give_back(consumer, {"poison": messages["poison"]})
        assert counts(received(consumer)) == {"poison": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_counted_as_a_whole_also_by_the_next_owner(
    cluster: StandaloneProcess, kind: Any
) -> None:
    topic = f"{TOPIC}batch-{kind.name}"
    with client_of(cluster.service_url) as client:
        publish(client, topic, "a", "b", "c", batched=True)
        consumer = subscribed(
            client, topic, kind, negative_ack_redelivery_delay_ms=BATCH_NACK_DELAY_MS
        )
        messages = received(consumer, 3)
        assert len({each.message_id().entry_id() for _, each in messages.values()}) == 1
        for count in (1, 2):
            give_back(consumer, messages)
            messages = received(consumer, 3)
            assert counts(messages) == {"a": count, "b": count, "c": count}
        unload(cluster, topic)
        messages = received(consumer, 3)
        assert counts(messages) == {"a": 2, "b": 2, "c": 2}
        for _, message in messages.values():
            consumer.acknowledge(message)
        eventually(lambda: kept_counts(cluster, topic), [].__eq__)


def test_a_poisonous_message_reaches_its_dead_letter_topic_across_an_unload(
    cluster: StandaloneProcess,
) -> None:
    topic, letters = TOPIC + "dead", TOPIC + "dead-letters"
    policy = pulsar.ConsumerDeadLetterPolicy(3, letters, "burial")
    with client_of(cluster.service_url) as client:
        publish(client, topic, "poison")
        consumer = subscribed(client, topic, pulsar.ConsumerType.Shared, dead_letter_policy=policy)
        for count in (0, 1, 2):
            messages = received(consumer)
            assert counts(messages) == {"poison": count}
            if count < 2:
                give_back(consumer, messages)
        unload(cluster, topic)
        for count in (2, 3):
            messages = received(consumer)
            assert counts(messages) == {"poison": count}
            give_back(consumer, messages)
        burial = client.subscribe(
            letters, "burial", initial_position=pulsar.InitialPosition.Earliest
        )
        assert counts(received(burial)) == {"poison": 0}


def test_a_killed_broker_forgets_only_what_was_not_kept_yet(cluster: StandaloneProcess) -> None:
    topic = TOPIC + "killed"
    with client_of(cluster.service_url) as client:
        publish(client, topic, "poison", "other")
        consumer = subscribed(client, topic, pulsar.ConsumerType.Shared)
        messages = received(consumer, 2)
        for _ in range(3):
            give_back(consumer, {"poison": messages["poison"]})
            messages |= received(consumer)
        eventually(lambda: kept_counts(cluster, topic), [3].__eq__)
        await_next_write(cluster, topic)
        cluster.wait_restarted("broker", cluster.kill_part("broker"))
        messages = received(consumer, 2)
        assert counts(messages) == {"poison": 3, "other": 0}, "what was kept is known"
        give_back(consumer, {"poison": messages["poison"]})
        assert counts(received(consumer)) == {"poison": 4}
        cluster.wait_restarted("broker", cluster.kill_part("broker"))
        after = counts(received(consumer, 2))
        assert after["other"] == 0
        assert 3 <= after["poison"] <= 4, "what was counted in the last second may be forgotten"
