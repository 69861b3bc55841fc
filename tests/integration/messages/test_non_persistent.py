"""Non-persistent topics with the official client: what slow consumers miss, and what is allowed."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import RawClient, Refused
from tests.integration.rest import rest
from tests.integration.waiting import eventually

STATS_PERIOD_S = 1.0
RECEIVE_TIMEOUT_MS = 60_000
TOPIC = "non-persistent://public/{}/topic"
SLOW = ("a", "b", "c")
MESSAGES_PER_S_MAX = 50


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster whose rates are those of the last second."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GEMINGA_BROKER_STATS_PERIOD_S", str(STATS_PERIOD_S))
        cluster = StandaloneProcess.start(tmp_path_factory.mktemp("counting") / "data")
    yield cluster
    cluster.stop()


def make_namespace(cluster: StandaloneProcess, name: str) -> str:
    """A namespace of public; the path of its policies."""
    path = f"/admin/v2/namespaces/public/{name}"
    assert rest(cluster.web_service_url, "PUT", path)[0] == 204
    return path


def stats_of(cluster: StandaloneProcess, topic: str) -> Any:
    path = f"/admin/v2/{topic.replace('://', '/')}/stats"
    return rest(cluster.web_service_url, "GET", path)[1]


def test_three_slow_consumers_miss_what_they_have_no_room_for_and_a_fast_one_nothing(
    counting: StandaloneProcess,
) -> None:
    topic = TOPIC.format("default")
    with client_of(counting.service_url) as client:
        slow = [
            client.subscribe(topic, name, pulsar.ConsumerType.Shared, receiver_queue_size=1)
            for name in SLOW
        ]
        fast = client.subscribe(topic, "fast", receiver_queue_size=10_000)
        producer = client.create_producer(topic, batching_enabled=False)
        published = 0

        def rates() -> dict[str, float]:
            nonlocal published
            for _ in range(20):
                producer.send(str(published).encode())
                published += 1
            subscriptions = stats_of(counting, topic)["subscriptions"]
            return {name: each["msgDropRate"] for name, each in subscriptions.items()}

        found: dict[str, float] = {}

        def all_slow_dropped() -> bool:
            found.update(rates())
            return all(found[name] > 0 for name in SLOW)

        eventually(all_slow_dropped, bool)
        assert found["fast"] == 0
        received = [bytes(fast.receive(RECEIVE_TIMEOUT_MS).data()) for _ in range(published)]
        assert received == [str(number).encode() for number in range(published)]
        for consumer in slow:
            assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"0"
        stats = stats_of(counting, topic)
        assert stats["msgInCounter"] == published
        assert stats["msgDropRate"] == 0  # those of publishers: none was refused
        assert [each["msgDropRate"] for each in stats["publishers"]] == [0]


def answer_to_producer(cluster: StandaloneProcess, topic: str) -> str:
    """What one more producer that does not encrypt is told, which the official client would hide
    behind its retries; it goes again."""
    with RawClient(cluster.service_url) as raw:
        raw.connect()
        try:
            raw.create_producer(topic, 1)
        except Refused as refusal:
            return str(refusal)
    return "welcome"


def test_limits_on_producers_hold_here_too(counting: StandaloneProcess) -> None:
    policies = make_namespace(counting, "limited")
    topic = TOPIC.format("limited")
    url = counting.web_service_url

    def told(reason: str) -> None:
        eventually(lambda: answer_to_producer(counting, topic), lambda answer: reason in answer)

    with client_of(counting.service_url) as client:
        first = client.create_producer(topic)
        assert rest(url, "POST", f"{policies}/maxProducersPerTopic", body=1)[0] == 204
        told("reached max producers limit")
        assert rest(url, "DELETE", f"{policies}/maxProducersPerTopic")[0] == 204
        told("welcome")
        first.close()
        assert rest(url, "POST", f"{policies}/encryptionRequired", body=True)[0] == 204
        told("Encryption is required")
        assert rest(url, "POST", f"{policies}/encryptionRequired", body=False)[0] == 204
        told("welcome")


def test_publishing_is_slowed_down_to_its_rate(counting: StandaloneProcess) -> None:
    policies = make_namespace(counting, "slowed")
    rate = {"publishThrottlingRateInMsg": MESSAGES_PER_S_MAX, "publishThrottlingRateInByte": -1}
    assert rest(counting.web_service_url, "POST", f"{policies}/publishRate", body=rate)[0] == 204
    with client_of(counting.service_url) as client:
        producer = client.create_producer(TOPIC.format("slowed"), batching_enabled=False)
        begun = time.monotonic()
        for number in range(3 * MESSAGES_PER_S_MAX):
            producer.send(str(number).encode())
        # The first second's messages are there at once.
        assert time.monotonic() - begun > 1.5
