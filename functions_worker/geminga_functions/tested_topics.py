"""The topics of a function under test: in memory, or on a real cluster.

An instance uses either as its client. Both record which messages are acknowledged and which are
refused (negatively acknowledged), and are ``done`` when every message is one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

import geminga
from geminga.messages import Delivery
from geminga_protocol.pulsar.api_pb2 import MessageMetadata

INPUT, OUTPUT = "persistent://public/default/input", "persistent://public/default/output"


@dataclass(frozen=True, slots=True)
class Input:
    """A message for a function: a value, and the attributes that its producer sets."""

    value: Any
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    event_time_ms: int = 0
    topic: str = INPUT


@dataclass(frozen=True, slots=True)
class Stored:
    """A message that was published to a topic."""

    value: Any
    options: geminga.MessageOptions


class TestedTopics:
    """Records what becomes of ``count`` messages, which are known by their places from 0."""

    __test__ = False  # pytest would collect a class with this name

    def __init__(self, count: int) -> None:
        self._count = count
        # What was published, by topic.
        self.topics: dict[str, list[Stored]] = {}
        # The places of messages.
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        # Set once every message is acknowledged or refused.
        self.done = asyncio.Event()
        if not count:
            self.done.set()

    # On the loop of the instance alone, by whichever consumer has the message.
    def note(self, place: int, among: set[int]) -> None:
        """Record that a message is ``acknowledged``, or ``refused``."""
        among.add(place)
        # A message may be both, one after the other: it counts once.
        if len(self.acknowledged | self.refused) == self._count:
            self.done.set()


class MemoryTopics(TestedTopics):
    """The part of ``geminga.Client`` and of ``geminga.Consumer`` that an instance uses."""

    def __init__(self, inputs: Sequence[Input], serialize: Callable[[Any], bytes]) -> None:
        super().__init__(len(inputs))
        messages: list[geminga.Message[bytes]] = []
        for place, given in enumerate(inputs):
            metadata = MessageMetadata(producer_name="test", sequence_id=place, publish_time=0)
            if given.key is not None:
                metadata.partition_key = given.key
            for name, value in given.properties.items():
                metadata.properties.add(key=name, value=value)
            metadata.event_time = given.event_time_ms
            # The entry id is the place of the message, by which its acknowledgement is recorded.
            delivery = Delivery(given.topic, (1, place), -1, metadata)
            messages.append(geminga.Message(serialize(given.value), delivery))
        # The messages that are not received yet, the next one last.
        self._waiting = messages[::-1]

    def consumer(self, *_: object, **__: object) -> AbstractAsyncContextManager[MemoryTopics]:
        """The only consumer, which this object is itself; nothing has to be closed."""
        return nullcontext(self)

    async def producer(self, topic: str, **_: object) -> _Producer:
        """A producer of a topic in memory."""
        return _Producer(self.topics.setdefault(topic, []))

    # ---- as a consumer

    async def receive(self) -> geminga.Message[bytes]:
        """As ``Consumer.receive``."""
        if not self._waiting:
            # Like a topic without further messages: the instance waits here until it is stopped.
            await asyncio.Event().wait()
        return self._waiting.pop()

    async def receive_many(self, max_messages: int, _: float) -> list[geminga.Message[bytes]]:
        """As ``Consumer.receive_many``, without waiting."""
        return [self._waiting.pop() for _ in range(min(max_messages, len(self._waiting)))]

    def ack(self, message: geminga.Message[bytes] | geminga.MessageId) -> None:
        """As ``Consumer.ack``."""
        self.note(message.position[1], self.acknowledged)

    def nack(self, message: geminga.Message[bytes]) -> None:
        """As ``Consumer.nack``."""
        self.note(message.position[1], self.refused)


@dataclass(frozen=True, slots=True)
class _Producer:
    """The part of ``geminga.Producer`` that an instance uses."""

    # What it appends to: the topic.
    stored: list[Stored]

    async def ready(self) -> None:
        pass

    def send_nowait(
        self,
        value: bytes,
        callback: geminga.SendCallback,
        **options: Any,  # noqa: ANN401
    ) -> None:
        # At once, before this returns: an instance has to cope with a receipt that comes so early.
        callback(self._store(value, options), None)

    async def send(self, value: bytes, **options: Any) -> geminga.MessageId:  # noqa: ANN401
        return self._store(value, options)

    async def close(self) -> None:
        pass

    def _store(self, value: bytes, options: Any) -> geminga.MessageId:  # noqa: ANN401
        self.stored.append(Stored(value, cast(geminga.MessageOptions, options)))
        return geminga.MessageId(2, len(self.stored) - 1)


class ClusterTopics(TestedTopics):
    """Topics on a real cluster, whose names are unique to one run."""

    def __init__(self, client: geminga.Client, inputs: Sequence[Input]) -> None:
        super().__init__(len(inputs))
        self._client = client
        self._inputs = inputs
        # Two runs at the same time, or one after a run that was killed, do not meet.
        self._suffix = f"-{uuid4().hex[:12]}"
        # The places of inputs, by (ledger id, entry id).
        self._places: dict[tuple[int, int], int] = {}
        # The topics that have a producer, in the order in which they were opened.
        self._written: dict[str, None] = {}

    async def publish(self, serialize: Callable[[Any], bytes]) -> None:
        """Publish the inputs in their order, each as an entry of its own."""
        for place, each in enumerate(self._inputs):
            options: geminga.MessageOptions = {"key": each.key, "properties": each.properties}
            if each.event_time_ms:
                options["event_time"] = each.event_time_ms
            async with self._client.producer(each.topic + self._suffix) as producer:
                stored = await producer.send(serialize(each.value), **options)
            # Not batched with others: each ``send`` is awaited, so that every input has a position
            # of its own.
            self._places[stored.position] = place

    @asynccontextmanager
    async def consumer(
        self,
        _: object,
        subscription: str,
        **options: Any,  # noqa: ANN401
    ) -> AsyncGenerator[_WatchedConsumer]:
        """A consumer of the inputs, whose subscription is deleted at its end."""
        # Without inputs the consumer needs a topic all the same, and gets no message.
        topics = sorted({each.topic + self._suffix for each in self._inputs} or {INPUT})
        async with self._client.consumer(topics, subscription, **options) as consumer:
            yield _WatchedConsumer(consumer, self._places, self)
            # Topics that are left behind have no subscription: brokers delete inactive ones.
            await consumer.unsubscribe()

    async def producer(self, topic: str, **options: Any) -> geminga.Producer[Any]:  # noqa: ANN401
        """A producer of the topic that has this name in the run."""
        self._written[topic] = None
        opened: geminga.Producer[Any] = await self._client.producer(topic + self._suffix, **options)
        return opened

    async def read_back(self) -> None:
        """Read what was published into ``topics``; attributes that were not set are left out."""
        for topic in self._written:
            stored = self.topics[topic] = []
            async with self._client.reader(topic + self._suffix) as reader:
                while await reader.has_message_available():
                    message = await reader.read()
                    said = {
                        "key": message.key,
                        "properties": dict(message.properties) or None,
                        "ordering_key": message.ordering_key,
                        "event_time": message.event_time_ms or None,
                    }
                    options = {name: value for name, value in said.items() if value is not None}
                    stored.append(Stored(message.data, cast(geminga.MessageOptions, options)))


class _WatchedConsumer:
    """A consumer that records which messages are acknowledged and refused."""

    def __init__(
        self,
        consumer: geminga.Consumer[Any],
        places: Mapping[tuple[int, int], int],
        watched: TestedTopics,
    ) -> None:
        self._consumer = consumer
        self._places = places
        self._watched = watched
        # What an instance uses of it besides.
        self.receive = consumer.receive
        self.receive_many = consumer.receive_many

    @property
    def topics(self) -> list[str]:
        # Asked each time: partitions may be added.
        return self._consumer.topics

    def ack(self, message: geminga.Message[Any] | geminga.MessageId) -> None:
        self._consumer.ack(message)
        self._watched.note(self._places[message.position], self._watched.acknowledged)

    def nack(self, message: geminga.Message[Any]) -> None:
        self._consumer.nack(message)
        self._watched.note(self._places[message.position], self._watched.refused)
