"""Loads with many clients: ten producers and ten consumers on one topic, and a thousand topics with
one of each.

What every load promises (``loads``) holds here too, but for the order, which is each producer's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import cycle

import pulsar
from tests.performance.loads.measure import LoadFailed, Measure, Phases
from tests.performance.loads.official_client import (
    FINISH_S_MAX,
    NAMESPACE,
    NUMBER,
    PENDING_MAX,
    SEND_TIMEOUT_MS,
    SUBSCRIPTION,
    Receipts,
    client_of,
    subscribed_topic,
    wait_for_empty_backlog,
)
from tests.performance.rivals.servers import Server

CROWD = 10
KEYS = 100
TOPICS = 1_000
SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared


class Arrivals:
    """Takes numbered messages on the client's threads, acknowledges them, and knows which came."""

    def __init__(self, expected: int) -> None:
        self._seen = bytearray(expected)
        self._missing = expected
        self._repeated = 0
        self._lock = threading.Lock()
        self._all_there = threading.Event()

    def take(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        """One message arrived."""
        number = NUMBER.unpack_from(message.data())[0]
        consumer.acknowledge(message)
        with self._lock:
            if self._seen[number]:
                self._repeated += 1
                return
            self._seen[number] = 1
            self._missing -= 1
            if self._missing == 0:
                self._all_there.set()

    def wait(self) -> None:
        """Wait for all. Raises ``LoadFailed`` for one that is missing, or came twice."""
        if not self._all_there.wait(FINISH_S_MAX):
            raise LoadFailed(f"{self._missing} of {len(self._seen)} messages did not arrive")
        if self._repeated:
            raise LoadFailed(f"{self._repeated} messages came twice")


def crowd(server: Server, *, messages: int, size: int, kind: object) -> Phases:
    """Ten producers publish a backlog, unbatched, of a hundred keys; ten consumers drain it."""
    with subscribed_topic(server) as topic:
        with client_of(server) as client:
            producers = [_producer(client, topic) for _ in range(CROWD)]
            with Measure(server) as publishing:
                _send(producers, messages, size)
        arrivals = Arrivals(messages)
        with client_of(server) as client:
            with Measure(server) as measure:
                consumers = [_consumer(client, topic, kind, arrivals) for _ in range(CROWD)]
                arrivals.wait()
                for consumer in consumers:
                    consumer.close()
            wait_for_empty_backlog(server, topic)
    return {"publish": publishing.figures(messages), "deliver": measure.figures(messages)}


def many_topics(server: Server, *, messages: int, size: int) -> Phases:
    """A producer and a consumer on each of a thousand topics, all connected; messages go to one
    topic after another, unbatched, and come as they are published."""
    arrivals = Arrivals(messages)
    with _topics(server) as topics, client_of(server) as receiving, client_of(server) as sending:
        producers = [_producer(sending, topic) for topic in topics]
        consumers = [
            _consumer(receiving, topic, pulsar.ConsumerType.Exclusive, arrivals) for topic in topics
        ]
        with Measure(server) as measure:
            _send(producers, messages, size)
            arrivals.wait()
        for consumer in consumers:
            consumer.close()
    return {"pass": measure.figures(messages)}


@contextmanager
def _topics(server: Server) -> Generator[list[str]]:
    """New topics with one durable subscription each; deleted at the end."""
    stem = f"bench-{time.time_ns()}"
    topics = [f"persistent://{NAMESPACE}/{stem}-{number}" for number in range(TOPICS)]
    with client_of(server) as client:
        for topic in topics:
            client.subscribe(topic, SUBSCRIPTION).close()
    yield topics
    for topic in topics:
        path = topic.replace("persistent://", "/admin/v2/persistent/")
        status, body = server.web("DELETE", f"{path}?force=true")
        if status != 204:
            raise LoadFailed(f"a topic could not be deleted: {status} {body!r}")


def _producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(
        topic,
        batching_enabled=False,
        block_if_queue_full=True,
        max_pending_messages=PENDING_MAX,
        send_timeout_millis=SEND_TIMEOUT_MS,
    )


def _consumer(
    client: pulsar.Client, topic: str, kind: object, arrivals: Arrivals
) -> pulsar.Consumer:
    listener: Callable[[pulsar.Consumer, pulsar.Message], None] = arrivals.take
    return client.subscribe(topic, SUBSCRIPTION, consumer_type=kind, message_listener=listener)


def _send(producers: Sequence[pulsar.Producer], messages: int, size: int) -> None:
    """All producers in turn, a message each; returns when all are stored."""
    padding = b"x" * (size - NUMBER.size)
    receipts = Receipts(messages)
    pack, answered = NUMBER.pack, receipts.answered
    for number, producer in zip(range(messages), cycle(producers), strict=False):
        key = f"key-{number % KEYS}"
        producer.send_async(pack(number) + padding, answered, partition_key=key)
    for producer in producers:
        producer.flush()
    receipts.wait()
