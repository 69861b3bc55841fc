"""The loads a server is measured under, through the official client, which drives rivals alike.

A load returns its figures by phase and name. CPU is the server's, rates and latencies are what the
client saw; it needs some 40 us of CPU for a publish itself and so bounds the rates: CPU a message
is the figure to compare. A load that loses, repeats or reorders a message fails.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pulsar
from tests.performance.loads.measure import Figures, LoadFailed, Measure, Phases, percentiles
from tests.performance.rivals.servers import Server

NAMESPACE = "public/default"
SUBSCRIPTION = "bench"
PENDING_MAX = 10_000
CLIENT_BATCH_MESSAGES = 1000
SEND_TIMEOUT_MS = 120_000
RECEIVE_TIMEOUT_MS = 30_000
FINISH_S_MAX = 180.0
BACKLOG_S_MAX = 10.0
NUMBER = struct.Struct(">Q")
NUMBER_AND_TIME_NS = struct.Struct(">QQ")


class Receipts:
    """Counts the answers to ``expected`` asynchronous sends."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._answered = 0
        self._failures: list[str] = []
        self._all_answered = threading.Event()

    def answered(self, result: object, _: object) -> None:
        """One send was answered with a ``pulsar.Result``; called on the client's thread."""
        if result != pulsar.Result.Ok:
            self._failures.append(str(result))
        self._answered += 1
        if self._answered == self._expected:
            self._all_answered.set()

    def wait(self) -> None:
        """Wait for all answers. Raises ``LoadFailed`` unless every one is a receipt."""
        if not self._all_answered.wait(FINISH_S_MAX):
            raise LoadFailed(f"{self._answered} of {self._expected} sends were answered")
        if self._failures:
            raise LoadFailed(f"{len(self._failures)} sends failed, first with {self._failures[0]}")


def silent_logger() -> object:
    """What goes wrong is raised. One logger serves a process: the first client's."""
    return pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)


@contextmanager
def client_of(server: Server) -> Generator[pulsar.Client]:
    """A client that is closed at the end."""
    client = pulsar.Client(
        server.service_url,
        operation_timeout_seconds=30,
        logger=silent_logger(),
    )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def subscribed_topic(server: Server) -> Generator[str]:
    """A new topic with one durable subscription; deleted at the end."""
    local_name = f"bench-{time.time_ns()}"
    with client_of(server) as client:
        subscribe(client, f"persistent://{NAMESPACE}/{local_name}").close()
    yield f"persistent://{NAMESPACE}/{local_name}"
    status, body = server.web("DELETE", f"/admin/v2/persistent/{NAMESPACE}/{local_name}?force=true")
    if status != 204:
        raise LoadFailed(f"the topic could not be deleted: {status} {body!r}")


def subscribe(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    """The durable subscription, from the first message on."""
    return client.subscribe(topic, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)


# Throughput: a backlog is published, then drained


def throughput(server: Server, *, messages: int, size: int, batched: bool) -> Phases:
    """Publish ``messages`` of ``size`` bytes, then receive and acknowledge them one by one.

    Batches are the client's own: at most 1000 messages, 128 KiB, 10 ms.
    """
    with subscribed_topic(server) as topic:
        published = publish(server, topic, messages, size, batched=batched)
        delivered = drain(server, topic, messages)
    return {"publish": published, "deliver": delivered}


def publish(
    server: Server,
    topic: str,
    messages: int,
    size: int,
    *,
    batched: bool,
    batch_messages: int = CLIENT_BATCH_MESSAGES,
) -> Figures:
    """Publish ``messages`` of ``size`` bytes, each with its number in front."""
    padding = b"x" * (size - NUMBER.size)
    receipts = Receipts(messages)
    pack, answered = NUMBER.pack, receipts.answered
    with client_of(server) as client:
        producer = client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=batch_messages,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MAX,
            send_timeout_millis=SEND_TIMEOUT_MS,
        )
        with Measure(server) as measure:
            for number in range(messages):
                producer.send_async(pack(number) + padding, answered)
            producer.flush()
            receipts.wait()
    return measure.figures(messages)


def drain(server: Server, topic: str, messages: int) -> Figures:
    """Subscribing and closing are in the measure: closing flushes the last acknowledgements."""
    unpack = NUMBER.unpack_from
    with client_of(server) as client:
        with Measure(server) as measure:
            consumer = subscribe(client, topic)
            for number in range(messages):
                message = consumer.receive(RECEIVE_TIMEOUT_MS)
                if unpack(message.data())[0] != number:
                    raise LoadFailed(f"{unpack(message.data())[0]} came where {number} was due")
                consumer.acknowledge(message)
            consumer.close()
        wait_for_empty_backlog(server, topic)
    return measure.figures(messages)


def wait_for_empty_backlog(server: Server, topic: str, *, left_max: int = 0) -> None:
    """Who forgets acknowledgements may not win by it; ``left_max`` of them are the client's."""
    deadline = time.perf_counter() + BACKLOG_S_MAX
    path = topic.replace("persistent://", "/admin/v2/persistent/") + "/stats"
    while True:
        status, body = server.web("GET", path)
        if status != 200:
            raise LoadFailed(f"no stats: {status} {body!r}")
        backlog = json.loads(body)["subscriptions"][SUBSCRIPTION]["msgBacklog"]
        if backlog <= left_max:
            return
        if time.perf_counter() > deadline:
            raise LoadFailed(f"{backlog} messages are not acknowledged")
        time.sleep(0.1)


# Latency: one at a time, and at a fixed rate


def synchronous(server: Server, *, messages: int, size: int) -> Phases:
    """One send at a time, each waiting for its receipt."""
    payload = b"x" * size
    took_ms: list[float] = []
    now_ns = time.perf_counter_ns
    with subscribed_topic(server) as topic, client_of(server) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        with Measure(server) as measure:
            for _ in range(messages):
                begun_ns = now_ns()
                producer.send(payload)
                took_ms.append((now_ns() - begun_ns) / 1e6)
    return {"send": measure.figures(messages) | percentiles(took_ms)}


def end_to_end(server: Server, *, rate: int, seconds: float, size: int) -> Phases:
    """``rate`` unbatched messages a second, a consumer attached: until receipt, until arrival."""
    with subscribed_topic(server) as topic:
        took = paced(server, server, topic, rate=rate, total=int(rate * seconds), size=size)
    return {
        "receipt": percentiles(took.acknowledged_ms),
        "arrival": took.figures | percentiles(took.arrived_ms),
    }


@dataclass(frozen=True, slots=True)
class Took:
    """Of each message in its order how long it took to its receipt, and to a consumer."""

    acknowledged_ms: list[float]
    arrived_ms: list[float]
    figures: Figures


def paced(
    server: Server, consuming: Server, topic: str, *, rate: int, total: int, size: int
) -> Took:
    """Send ``total`` unbatched messages, ``rate`` a second, to ``server``; a consumer of
    ``consuming`` takes them."""
    receipts = Receipts(total)
    acknowledged_ms: list[float] = []
    arrived_ms: list[float] = []

    with client_of(consuming) as receiving, client_of(server) as sending:
        consumer = subscribe(receiving, topic)
        producer = sending.create_producer(topic, batching_enabled=False)

        def send(number: int) -> None:
            sent_ns = time.perf_counter_ns()

            def answered(result: object, message_id: object) -> None:
                acknowledged_ms.append((time.perf_counter_ns() - sent_ns) / 1e6)
                receipts.answered(result, message_id)

            payload = NUMBER_AND_TIME_NS.pack(number, sent_ns).ljust(size, b"x")
            producer.send_async(payload, answered)

        receiver = threading.Thread(target=_receive, args=(consumer, total, arrived_ms))
        with _quick_thread_switches(), Measure(server) as measure:
            receiver.start()
            _at_rate(rate, total, send)
            receipts.wait()
            receiver.join()
    if len(arrived_ms) != total:
        raise LoadFailed(f"{len(arrived_ms)} of {total} messages arrived")
    return Took(acknowledged_ms, arrived_ms, measure.figures(total))


def _receive(consumer: pulsar.Consumer, total: int, arrived_ms: list[float]) -> None:
    """Take what comes, until all are there or nothing comes any more."""
    try:
        for _ in range(total):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            arrived_ns = time.perf_counter_ns()
            _, sent_ns = NUMBER_AND_TIME_NS.unpack_from(message.data())
            arrived_ms.append((arrived_ns - sent_ns) / 1e6)
            consumer.acknowledge(message)
    except pulsar.Timeout:
        return  # the caller counts what arrived


def _at_rate(rate: int, total: int, send: Callable[[int], None]) -> None:
    due_s = time.perf_counter()
    for number in range(total):
        time.sleep(max(0.0, due_s - time.perf_counter()))
        send(number)
        due_s += 1 / rate


@contextmanager
def _quick_thread_switches() -> Generator[None]:
    """Sender and receiver are threads of one Python: 5 ms for a switch would be all one sees."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)
