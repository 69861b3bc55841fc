"""Load by the official client: producers that send all the time, consumers that acknowledge some.

No send has a time-out: in the end each must be confirmed. What is sent, and whether it is there
again, is said in ``sent``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from math import inf
from typing import Any

import pulsar
from tests.integration.waiting import eventually
from tests.torture.evidence.ordered import KINDS, Ordered
from tests.torture.evidence.sent import (
    PENDING_MAX,
    Content,
    MessagesLost,
    Sent,
    Stored,
    check_all,
    identified,
)

NAMESPACE = "persistent://public/default"
SUBSCRIPTION = "load"
# Even producers send batches, odd ones each message alone; the topics have two of each.
TOPICS = 2
PRODUCERS_A_TOPIC = 4
BURST = 10
# Every so manieth message is not acknowledged, and so keeps everything after it.
LEFT_EACH = 10
RECEIVE_TIMEOUT_MS = 200
# When everything is healthy again: until all is confirmed, and until something more comes.
CONFIRM_S_MAX = 120.0
READ_TIMEOUT_MS = 60_000


class Work:
    """Threads that work until they are joined; what one ended by is raised then."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def begin(self, run: Any, *arguments: Any) -> None:
        """Run it on a thread of its own."""

        def guarded() -> None:
            try:
                run(*arguments)
            except BaseException as failure:  # noqa: BLE001 (raised again by ``join``)
                self._failures.append(failure)

        thread = threading.Thread(target=guarded, name=run.__name__, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait for all. Raises what a thread ended by."""
        for thread in self._threads:
            thread.join(2 * CONFIRM_S_MAX)
            assert not thread.is_alive(), f"{thread.name} did not end"
        for failure in self._failures:
            raise failure


class Producing:
    """Producers that send ``sents``, a burst after each ``pause_s``, between ``start`` and
    ``stop``. ``names`` says their names, by their numbers; else a broker does."""

    def __init__(
        self,
        client: Any,
        sents: Sequence[Sent],
        *,
        pause_s: float,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.is_over = threading.Event()
        self._client = client
        self._sents = sents
        self._pause_s = pause_s
        self._names = names or {}
        self._work = Work()

    def start(self) -> None:
        """Make all producers, then begin."""
        for producer, sent in [(self._producer(sent), sent) for sent in self._sents]:
            self._work.begin(self._produce, producer, sent)

    def stop(self) -> None:
        """Send no more, wait until everything is answered.

        Raises what a thread ended by, and ``MessagesLost`` if a send was refused.
        """
        self.is_over.set()
        self._work.join()
        eventually(
            lambda: sum(sent.waiting for sent in self._sents),
            lambda waiting: waiting == 0,
            CONFIRM_S_MAX,
        )
        refused = {sent.producer: dict(sent.refused) for sent in self._sents if sent.refused}
        if refused:
            raise MessagesLost(f"sends were refused, by producer: {refused}")

    def _producer(self, sent: Sent) -> Any:
        return self._client.create_producer(
            sent.topic,
            producer_name=self._names.get(sent.producer),
            # Without it, a client that reconnects before its first receipt numbers what follows
            # from 0 again (ProducerImpl::handleCreateProducer of the C++ client), and a topic that
            # is deduplicated takes that for repeats: a first run lost 200 messages by it.
            initial_sequence_id=1,  # it takes 0 for none
            send_timeout_millis=0,
            batching_enabled=sent.is_batching,
            max_pending_messages=PENDING_MAX,
            block_if_queue_full=True,
        )

    def _produce(self, producer: Any, sent: Sent) -> None:
        while not self.is_over.wait(self._pause_s):
            for _ in range(BURST):
                number = sent.sent

                def answered(result: object, _: object, number: int = number) -> None:
                    sent.answered(number, result)

                key = str(sent.producer)
                producer.send_async(sent.payload(), answered, partition_key=key)


class Load:
    """Load on a cluster, between ``start`` and ``stop``; ``rate`` messages a second in all."""

    def __init__(self, client: Any, rate: int, topics: int = TOPICS) -> None:
        self.all_sent = [
            Sent(number, f"{NAMESPACE}/load-{number % topics}", number // topics % 2 == 0)
            for number in range(topics * PRODUCERS_A_TOPIC)
        ]
        self._client = client
        pause_s = BURST * len(self.all_sent) / rate
        self._producing = Producing(client, self.all_sent, pause_s=pause_s)
        self._consuming = Work()
        self._is_answered = threading.Event()
        # Beside the shared subscription each topic has one that keeps an order.
        self.ordered = [
            Ordered(topic, kind, sents)
            for (topic, sents), kind in zip(self.topics.items(), cycle(KINDS), strict=False)
        ]

    @property
    def topics(self) -> dict[str, list[Sent]]:
        """The producers' records by topic."""
        return by_topic(self.all_sent)

    def start(self) -> None:
        """Subscribe everywhere, then begin."""
        topics = self.topics
        shared = [(subscribe(self._client, topic), topics[topic]) for topic in topics]
        in_order = [
            (subscribe_in_order(self._client, each), each)
            for each in self.ordered
            for _ in range(each.kind.consumers)
        ]
        for consumer, sents in shared:
            self._consuming.begin(self._consume, consumer, sents)
        for consumer, ordered in in_order:
            self._consuming.begin(self._consume_in_order, consumer, ordered)
        self._producing.start()

    def stop(self) -> None:
        """Send no more, wait until everything is answered, acknowledge no more.

        Raises what a thread ended by, and ``MessagesLost`` if a send was refused.
        """
        self._producing.stop()
        self._is_answered.set()
        self._consuming.join()

    def _consume(self, consumer: Any, sents: list[Sent]) -> None:
        while not self._producing.is_over.is_set():
            try:
                message = consumer.receive(RECEIVE_TIMEOUT_MS)
            except pulsar.Timeout:
                continue
            sent, number = identified(sents[0].topic, message.data(), sents)
            sent.delivered[number] = 1
            if number % LEFT_EACH:
                acknowledge(consumer, message)
        consumer.close()

    def _consume_in_order(self, consumer: Any, ordered: Ordered) -> None:
        """Until all that was sent was delivered: in a healthy cluster that does not take long."""
        deadline = inf
        while time.monotonic() < deadline:
            if self._is_answered.is_set():
                if ordered.has_all():
                    break
                deadline = min(deadline, time.monotonic() + CONFIRM_S_MAX)
            try:
                message = consumer.receive(RECEIVE_TIMEOUT_MS)
            except pulsar.Timeout:
                continue
            ordered.take(message.data())
            acknowledge(consumer, message)
        consumer.close()
        ordered.check_complete()


def by_topic(sents: Sequence[Sent]) -> dict[str, list[Sent]]:
    """The producers' records by topic."""
    topics: dict[str, list[Sent]] = {}
    for sent in sents:
        topics.setdefault(sent.topic, []).append(sent)
    return topics


def subscribe_in_order(client: Any, ordered: Ordered) -> Any:
    """A consumer of a subscription that keeps an order."""
    return client.subscribe(
        ordered.topic,
        ordered.kind.name,
        consumer_type=ordered.kind.type,
        initial_position=pulsar.InitialPosition.Earliest,
    )


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


def read_back(
    client: Any,
    topic: str,
    sents: list[Sent],
    *,
    returns_max: int,
    is_replicated: bool = False,
    timeout_ms: int = READ_TIMEOUT_MS,
) -> Content:
    """Read the topic from its first message to its last.

    Raises ``MessagesLost`` where something confirmed is missing or changed, came after what was
    sent later, was never sent or is repeated without a reason (see ``Stored``), or where the
    broker has more and does not give it for so long.
    """
    stored = Stored(topic, sents, is_replicated=is_replicated)
    messages = 0
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        try:
            payload: bytes = reader.read_next(timeout_ms).data()
        except pulsar.Timeout:
            raise MessagesLost(f"{topic} gives nothing after {messages} messages") from None
        stored.take(payload)
        messages += 1
    reader.close()
    return stored.content(returns_max)


def drain(client: Any, topic: str, sents: list[Sent], timeout_ms: int = READ_TIMEOUT_MS) -> None:
    """Receive until the subscription was given everything confirmed.

    What was given to it before counts where it was acknowledged; what was not must come again.
    """
    due = {
        sent.producer: bytearray(
            is_confirmed and (not is_delivered or number % LEFT_EACH == 0)
            for number, (is_confirmed, is_delivered) in enumerate(
                zip(sent.confirmed, sent.delivered, strict=True)
            )
        )
        for sent in sents
    }
    missing = sum(map(sum, due.values()))
    consumer = subscribe(client, topic)
    while missing:
        try:
            message = consumer.receive(timeout_ms)
        except pulsar.Timeout:
            break
        sent, number = identified(topic, message.data(), sents)
        missing -= due[sent.producer][number]
        due[sent.producer][number] = 0
        consumer.acknowledge(message)
    consumer.close()
    for sent in sents:
        given = bytearray(not is_due for is_due in due[sent.producer])
        check_all(sent, given, f"no consumer was given, of {topic},")
