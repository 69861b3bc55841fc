"""Load by the official client: producers that send all the time, consumers that acknowledge some.

Every message is the number of its producer and its own number, which count up from 0. No send has
a time-out: in the end each must be confirmed, however long that took.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pulsar
from tests.integration.waiting import eventually

NAMESPACE = "persistent://public/default"
SUBSCRIPTION = "load"
# Producer, number; then as many more bytes as the number says.
HEAD = struct.Struct(">HQ")
PADDING = bytes(2048)
# Even producers send batches, odd ones each message alone; the topics have two of each.
TOPICS = 2
PRODUCERS_A_TOPIC = 4
BURST = 10
PENDING_MAX = 1000
# Every so manieth message is not acknowledged, and so keeps everything after it.
LEFT_EACH = 10
RECEIVE_TIMEOUT_MS = 200
# When everything is healthy again: until all is confirmed, and until something more comes.
CONFIRM_S_MAX = 120.0
READ_TIMEOUT_MS = 60_000


class MessagesLost(AssertionError):
    """Something confirmed is missing, was overtaken or invented, or a send was refused."""


@dataclass(slots=True)
class Sent:
    """What one producer did, and what it and its topic's consumer were told."""

    producer: int
    topic: str
    sent: int = 0
    confirmed: bytearray = field(default_factory=bytearray)
    delivered: bytearray = field(default_factory=bytearray)
    refused: Counter[str] = field(default_factory=Counter[str])
    sent_at: array[float] = field(default_factory=lambda: array("d"))
    worst_latency_s: float = 0.0

    def payload(self) -> bytes:
        """The next message."""
        number = self.sent
        self.sent += 1
        self.confirmed.append(0)
        self.delivered.append(0)
        self.sent_at.append(time.monotonic())
        return HEAD.pack(self.producer, number) + PADDING[: number * 37 % len(PADDING)]

    def answered(self, number: int, result: object) -> None:
        """The client says what became of a message."""
        if result != pulsar.Result.Ok:
            self.refused[str(result)] += 1
            return
        self.confirmed[number] = 1
        self.worst_latency_s = max(self.worst_latency_s, time.monotonic() - self.sent_at[number])

    @property
    def waiting(self) -> int:
        """How many messages nobody has said anything about."""
        return self.sent - sum(self.confirmed) - self.refused.total()


class Load:
    """Load on a cluster, between ``start`` and ``stop``; ``rate`` messages a second in all."""

    def __init__(self, client: Any, rate: int) -> None:
        self.all_sent = [
            Sent(number, f"{NAMESPACE}/load-{number % TOPICS}")
            for number in range(TOPICS * PRODUCERS_A_TOPIC)
        ]
        self._client = client
        self._pause_s = BURST * len(self.all_sent) / rate
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._producing: list[threading.Thread] = []
        self._consuming: list[threading.Thread] = []

    @property
    def topics(self) -> dict[str, list[Sent]]:
        """The producers' records by topic."""
        return {
            each.topic: [other for other in self.all_sent if other.topic == each.topic]
            for each in self.all_sent
        }

    def start(self) -> None:
        """Subscribe everywhere, then begin."""
        self._consuming = [
            self._thread(self._consume, subscribe(self._client, topic), sents)
            for topic, sents in self.topics.items()
        ]
        self._producing = [
            self._thread(self._produce, self._producer(sent), sent) for sent in self.all_sent
        ]
        for thread in (*self._consuming, *self._producing):
            thread.start()

    def stop(self) -> None:
        """Send no more, wait until everything is answered, acknowledge no more.

        Raises what a thread ended by, and ``MessagesLost`` if a send was refused.
        """
        self._is_over.set()
        for thread in (*self._producing, *self._consuming):
            thread.join(CONFIRM_S_MAX)
            assert not thread.is_alive(), f"{thread.name} did not end"
        for failure in self._failures:
            raise failure
        eventually(
            lambda: sum(sent.waiting for sent in self.all_sent),
            lambda waiting: waiting == 0,
            CONFIRM_S_MAX,
        )
        refused = {sent.producer: dict(sent.refused) for sent in self.all_sent if sent.refused}
        if refused:
            raise MessagesLost(f"sends were refused, by producer: {refused}")

    def _thread(self, run: Any, *arguments: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                run(*arguments)
            except BaseException as failure:  # noqa: BLE001 (raised again by ``stop``)
                self._failures.append(failure)

        return threading.Thread(target=guarded, name=run.__name__, daemon=True)

    def _producer(self, sent: Sent) -> Any:
        return self._client.create_producer(
            sent.topic,
            send_timeout_millis=0,
            batching_enabled=sent.producer // TOPICS % 2 == 0,
            max_pending_messages=PENDING_MAX,
            block_if_queue_full=True,
        )

    def _produce(self, producer: Any, sent: Sent) -> None:
        while not self._is_over.wait(self._pause_s):
            for _ in range(BURST):
                number = sent.sent

                def answered(result: object, _: object, number: int = number) -> None:
                    sent.answered(number, result)

                producer.send_async(sent.payload(), answered)

    def _consume(self, consumer: Any, sents: list[Sent]) -> None:
        by_producer = {sent.producer: sent for sent in sents}
        while not self._is_over.is_set():
            try:
                message = consumer.receive(RECEIVE_TIMEOUT_MS)
            except pulsar.Timeout:
                continue
            producer, number = HEAD.unpack_from(message.data())
            by_producer[producer].delivered[number] = 1
            if number % LEFT_EACH:
                acknowledge(consumer, message)
        consumer.close()


def subscribe(client: Any, topic: str) -> Any:
    """A consumer of the topic's subscription."""
    return client.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def acknowledge(consumer: Any, message: Any) -> None:
    """Acknowledge, unless there is no broker to tell: then the message comes again."""
    try:
        consumer.acknowledge(message)
    except pulsar.PulsarException:
        return


@dataclass(frozen=True, slots=True)
class Content:
    """What a topic holds: how many messages, how many of them repeats, the digest of all."""

    messages: int
    repeats: int
    digest: str


def read_back(
    client: Any, topic: str, sents: list[Sent], timeout_ms: int = READ_TIMEOUT_MS
) -> Content:
    """Read the topic from its first message to its last.

    Raises ``MessagesLost`` where something confirmed is missing, came after what was sent later, or
    was never sent, or where the broker has more and does not give it for so long.
    """
    seen = {sent.producer: bytearray(sent.sent) for sent in sents}
    highest = dict.fromkeys(seen, -1)
    messages = repeats = 0
    digest = hashlib.sha256()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        try:
            payload: bytes = reader.read_next(timeout_ms).data()
        except pulsar.Timeout:
            raise MessagesLost(f"{topic} gives nothing after {messages} messages") from None
        producer, number = HEAD.unpack_from(payload)
        digest.update(payload[: HEAD.size])
        messages += 1
        if producer not in seen or number >= len(seen[producer]):
            raise MessagesLost(f"{topic} holds {producer}/{number}, which nobody sent")
        if seen[producer][number]:
            repeats += 1
        elif number < highest[producer]:
            raise MessagesLost(f"{topic}: {producer}/{number} came after {highest[producer]}")
        seen[producer][number] = 1
        highest[producer] = max(highest[producer], number)
    reader.close()
    for sent in sents:
        check_all(sent, seen[sent.producer], f"{topic} does not hold")
    return Content(messages, repeats, digest.hexdigest())


def drain(client: Any, topic: str, sents: list[Sent]) -> None:
    """Receive until everything confirmed was delivered to the subscription at least once."""
    by_producer = {sent.producer: sent for sent in sents}
    missing = sum(
        is_confirmed > is_delivered
        for sent in sents
        for is_confirmed, is_delivered in zip(sent.confirmed, sent.delivered, strict=True)
    )
    consumer = subscribe(client, topic)
    while missing:
        try:
            message = consumer.receive(READ_TIMEOUT_MS)
        except pulsar.Timeout:
            break
        producer, number = HEAD.unpack_from(message.data())
        sent = by_producer[producer]
        missing -= sent.confirmed[number] > sent.delivered[number]
        sent.delivered[number] = 1
        consumer.acknowledge(message)
    consumer.close()
    for sent in sents:
        check_all(sent, sent.delivered, f"nobody was given, of {topic},")


def check_all(sent: Sent, found: bytearray, what: str) -> None:
    """Raise ``MessagesLost`` unless everything confirmed was found."""
    lost = [
        number
        for number, is_confirmed in enumerate(sent.confirmed)
        if is_confirmed and not found[number]
    ]
    if lost:
        raise MessagesLost(
            f"{what} {len(lost)} confirmed messages of producer {sent.producer}: {lost[:10]}"
        )
