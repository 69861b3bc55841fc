"""Delayed messages with the official client: held back on Shared subscriptions, each delivered once
and none early, also by a broker that was killed and came back, without reading the topic again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import metric, rest, samples
from tests.integration.waiting import eventually

SUBSCRIPTION = "delayed"
TOPIC = "persistent://public/default/"
RECEIVE_TIMEOUT_MS = 60_000
# Of a machine that does much else: less than brokers take to look again at what they forgot.
LATE_S_MAX = 45.0
MESSAGES = 5000
# Time to publish them, and to kill a broker, before they are due; more where that was not enough.
DELAYS_S = (20.0, 60.0, 120.0)
MESSAGES_FULL = 100_000
DELAYS_FULL_S = (90.0, 300.0)
# So long before they are due the broker may read them from their buckets.
DUE_SOON_MS = 5_000
# How ledgers and buckets are cut here.
LEDGER_ENTRIES = 1000
BUCKET_MESSAGES_MIN = 500
# Of cursors.
READS_OTHER_MAX = 100
# Nothing comes any more when nothing came for so long.
QUIET_MS = 500
BOOKIE_READS = "geminga_bookie_reads_total"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster whose broker is killed; ledgers and buckets are small."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GEMINGA_BROKER_LOG__LEDGER_ENTRIES_MAX", str(LEDGER_ENTRIES))
        environment.setenv("GEMINGA_BROKER_LOG__LEDGER_AGE_MIN_S", "0")
        environment.setenv("GEMINGA_BROKER_DELAYED__BUCKET_MESSAGES_MIN", str(BUCKET_MESSAGES_MIN))
        started = StandaloneProcess.start(tmp_path_factory.mktemp("delayed") / "data")
    yield started
    started.stop()


def subscribed(client: Any, topic: str, kind: Any = pulsar.ConsumerType.Shared) -> Any:
    return client.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=kind,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def test_a_message_comes_when_it_is_due_and_others_before_it(cluster: StandaloneProcess) -> None:
    topic = TOPIC + "one"
    with client_of(cluster.service_url) as client:
        consumer = subscribed(client, topic)
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"in an hour", deliver_after=timedelta(hours=1))
        due_ms = int((time.time() + 2) * 1000)
        producer.send(b"at", deliver_at=due_ms)
        begun_ms = time.time() * 1000
        producer.send(b"after", deliver_after=timedelta(seconds=1))
        producer.send(b"now")
        # Which of them is due first, when this gets to receive, is the machine's affair.
        received: dict[bytes, float] = {}
        for _ in range(3):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            received[message.data()] = time.time() * 1000
            consumer.acknowledge(message)
        assert received.keys() == {b"now", b"after", b"at"}
        assert begun_ms + 1000 <= received[b"after"] < begun_ms + LATE_S_MAX * 1000
        assert due_ms <= received[b"at"] < due_ms + LATE_S_MAX * 1000


def test_a_key_shared_subscription_holds_messages_back_too(cluster: StandaloneProcess) -> None:
    topic = TOPIC + "keys"
    with client_of(cluster.service_url) as client:
        consumers = [subscribed(client, topic, pulsar.ConsumerType.KeyShared) for _ in range(2)]
        producer = client.create_producer(topic, batching_enabled=False)
        due_ms = int((time.time() + 2) * 1000)
        for number in range(40):
            producer.send(str(number).encode(), partition_key=f"k{number % 5}", deliver_at=due_ms)
        seen: dict[bytes, int] = {}
        keys_of: list[set[str]] = [set(), set()]
        while len(seen) < 40:
            for index, consumer in enumerate(consumers):
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                assert time.time() * 1000 >= due_ms
                assert seen.setdefault(message.data(), index) == index
                keys_of[index].add(message.partition_key())
                consumer.acknowledge(message)
        assert not keys_of[0] & keys_of[1]


def test_an_exclusive_subscription_delivers_at_once(cluster: StandaloneProcess) -> None:
    topic = TOPIC + "exclusive"
    with client_of(cluster.service_url) as client:
        consumer = subscribed(client, topic, pulsar.ConsumerType.Exclusive)
        producer = client.create_producer(topic)
        producer.send(b"x", deliver_after=timedelta(hours=1))
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"x"


def publish(client: Any, topic: str, dues_ms: list[int]) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=False,
        block_if_queue_full=True,
        max_pending_messages=1000,
        send_timeout_millis=SEND_TIMEOUT_MS,
    )
    results: list[object] = []

    def note(result: object, _: object) -> None:
        results.append(result)

    for number, due_ms in enumerate(dues_ms):
        producer.send_async(str(number).encode(), note, deliver_at=due_ms)
    producer.flush()
    assert results == [pulsar.Result.Ok] * len(dues_ms)


def drain(consumer: Any, dues_ms: list[int]) -> None:
    """Receive everything, once and not early; the first when it is due, each soon after another."""
    waiting = set(range(len(dues_ms)))
    timeout_ms = RECEIVE_TIMEOUT_MS + max(0, int(min(dues_ms) - time.time() * 1000))
    while waiting:
        message = consumer.receive(timeout_ms)
        timeout_ms = RECEIVE_TIMEOUT_MS
        number = int(message.data())
        assert time.time() * 1000 >= dues_ms[number], f"{number} is early"
        waiting.remove(number)
        consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)


def in_no_bucket(cluster: StandaloneProcess) -> float:
    """The most that a topic's delayed messages are which are known in memory alone, or are due
    within seconds."""
    return max(samples(cluster.metrics_url("broker"), "pulsar_delayed_message_index_loaded"))


class NotInTime(AssertionError):
    """The messages were due, or nearly, when something had still to be seen before that."""


def check_in_time(due_ms: int, what: str) -> None:
    if time.time() * 1000 > due_ms - DUE_SOON_MS:
        raise NotInTime(what)


def in_time(due_ms: int, what: str, holds: Callable[[], bool]) -> None:
    """Return when it holds; raises ``NotInTime``."""
    while not holds():
        check_in_time(due_ms, what)
        time.sleep(0.1)


def outlives_a_kill(cluster: StandaloneProcess, topic: str, messages: int, delay_s: float) -> None:
    with client_of(cluster.service_url) as client:
        consumer = subscribed(client, topic)
        due_ms = int((time.time() + delay_s) * 1000)
        dues_ms = [due_ms + number * 2000 // messages for number in range(messages)]
        publish(client, topic, dues_ms)
        path = topic.replace("://", "/")

        def subscription() -> Any:
            _, stats = rest(cluster.web_service_url, "GET", f"/admin/v2/{path}/stats")
            return stats["subscriptions"][SUBSCRIPTION]

        in_time(due_ms, "all known", lambda: subscription()["msgDelayed"] == messages)
        assert subscription()["msgBacklogNoDelayed"] == 0
        assert subscription()["subscriptionProperties"] == {}
        size_bytes = subscription()["delayedMessageIndexSizeInBytes"]
        assert messages <= size_bytes, "a byte for each, and more for those not in buckets"
        in_time(due_ms, "in buckets", lambda: in_no_bucket(cluster) < BUCKET_MESSAGES_MIN)
        reads_before = metric(cluster.metrics_url("bookie"), BOOKIE_READS)
        old_pid = cluster.kill_part("broker")
        cluster.wait_restarted("broker", old_pid)
        in_time(due_ms, "all known again", lambda: subscription()["msgDelayed"] == messages)
        reads = metric(cluster.metrics_url("bookie"), BOOKIE_READS) - reads_before
        check_in_time(due_ms, "the reads that this took")
        # The first entry of each bucket; and what is in none, once more where it was sent last:
        # then the bookie does not know that it was confirmed, and who closes the ledger reads it.
        assert reads <= messages / BUCKET_MESSAGES_MIN + 2 * BUCKET_MESSAGES_MIN + READS_OTHER_MAX
        drain(consumer, dues_ms)
        assert metric(cluster.metrics_url("bookie"), BOOKIE_READS) - reads_before >= messages
        eventually(lambda: subscription()["msgBacklog"], lambda backlog: backlog == 0)
        eventually(lambda: subscription()["delayedMessageIndexSizeInBytes"], lambda size: size == 0)


def outlives_kills(
    cluster: StandaloneProcess, topic: str, messages: int, delays_s: Sequence[float]
) -> None:
    """The same again with a longer delay, on another topic, where the first was too short."""
    *shorter_s, longest_s = delays_s
    for number, delay_s in enumerate(shorter_s):
        attempt = f"{topic}-{number}"
        with suppress(NotInTime):
            outlives_a_kill(cluster, attempt, messages, delay_s)
            return
        path = f"/admin/v2/{attempt.replace('://', '/')}?force=true"
        assert rest(cluster.web_service_url, "DELETE", path)[0] == 204
    outlives_a_kill(cluster, topic, messages, longest_s)


@pytest.mark.timeout(600)
def test_delayed_messages_outlive_a_kill(cluster: StandaloneProcess) -> None:
    outlives_kills(cluster, TOPIC + "killed", MESSAGES, DELAYS_S)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_very_many_delayed_messages_outlive_a_kill(cluster: StandaloneProcess) -> None:
    outlives_kills(cluster, TOPIC + "killed-full", MESSAGES_FULL, DELAYS_FULL_S)
