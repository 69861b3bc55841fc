"""Topics in memory, as instances use them: inputs, outputs that deduplicate, and lanes of state.

A client can end at any of its steps: what it had under way is lost or stored without a receipt, and
it does nothing more. Everything else is kept for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import geminga
from geminga.messages import Delivery
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata

LEDGER = 7
# How much later than others a reader hears of a message that it waits for.
LAG_S = 60.0


@dataclass(slots=True)
class Topic:
    """What is stored. ``last_ids`` are the last sequence ids of each producer's name; ``owner`` is
    the client that has the exclusive producer, or whose consumer is active."""

    name: str
    messages: list[geminga.Message[bytes]] = field(default_factory=list[Any])
    last_ids: dict[str, int] = field(default_factory=dict[str, int])
    producers: dict[str, Client] = field(default_factory=dict[str, Any])
    owner: Client | None = None
    acknowledged: set[int] = field(default_factory=set[int])
    appended: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, payload: bytes, key: str | None) -> None:
        metadata = MessageMetadata(producer_name="test", sequence_id=0, publish_time=0)
        if key is not None:
            metadata.partition_key = key
        delivery = Delivery(self.name, (LEDGER, len(self.messages)), -1, metadata)
        self.messages.append(geminga.Message(payload, delivery))
        self.appended.set()
        self.appended = asyncio.Event()


class Brokers:
    """The topics, and the clients that have not ended."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}

    def topic(self, name: str) -> Topic:
        return self.topics.setdefault(name, Topic(name))

    def end(self, client: Client) -> None:
        """The client is gone, as brokers see it."""
        client.has_ended.set()
        for topic in self.topics.values():
            topic.producers = {n: each for n, each in topic.producers.items() if each != client}


# What is asked before and after each step of a client: True ends it there.
Step = Callable[[str], bool]


class Client:
    """The part of ``geminga.Client`` that an instance and its state use."""

    def __init__(
        self, brokers: Brokers, before: Step = lambda _: False, after: Step = lambda _: False
    ) -> None:
        self.brokers = brokers
        self.has_ended = asyncio.Event()
        self.is_active = True
        # A client that is held does no step, until this is set.
        self.may_go = asyncio.Event()
        self.may_go.set()
        self._before = before
        self._after = after

    def step(self, name: str, do: Callable[[], Any]) -> bool:
        """Do something at the brokers; says whether the client is there to be told."""
        if not self.has_ended.is_set() and self._before(name):
            self.brokers.end(self)
        if self.has_ended.is_set():
            return False
        do()
        if self._after(name):
            self.brokers.end(self)
        return not self.has_ended.is_set()

    async def topics(self, _: str) -> list[str]:
        return [name for name, topic in self.brokers.topics.items() if topic.messages]

    def reader(self, topic: str, start: geminga.MessageId, **options: object) -> Reader:
        assert options == {"start_inclusive": True, "read_compacted": True}
        return Reader(self.brokers.topic(topic), max(0, start.entry_id))

    def entry_producer(self, topic: str, **_: object) -> EntryProducer:
        return EntryProducer(self, self.brokers.topic(topic))

    def consumer(self, topics: str, *_: object, **__: object) -> Consumer:
        return Consumer(self, [self.brokers.topic(topic) for topic in topics.split(",")])

    async def producer(self, topic: str, *, name: str, **_: object) -> Producer:
        found = self.brokers.topic(topic)
        if found.producers.setdefault(name, self) is not self:
            raise geminga.ProducerBusy("ProducerBusy", name)
        return Producer(self, found, name)


class Opened:
    """What is awaited, or entered."""

    def __await__(self) -> Generator[None, None, Self]:
        yield from ()
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        pass


class Reader(Opened):
    """Reads a lane, of which each message is an entry, from a place on."""

    def __init__(self, topic: Topic, place: int) -> None:
        self._topic = topic
        self._place = place

    async def has_message_available(self) -> bool:
        return self._place < len(self._topic.messages)

    async def read(self) -> geminga.Message[bytes]:
        while not await self.has_message_available():
            await self._topic.appended.wait()
            await asyncio.sleep(LAG_S)
        self._place += 1
        return self._topic.messages[self._place - 1]

    async def read_many(self, *_: object) -> list[geminga.Message[bytes]]:
        found = self._topic.messages[self._place :]
        self._place = len(self._topic.messages)
        return found


class EntryProducer(Opened):
    """The one that may write a lane, until the next one is opened."""

    known_sequence_id = -1
    message_bytes_max = 5 * 1024 * 1024

    def __init__(self, client: Client, topic: Topic) -> None:
        self._client = client
        self._topic = topic
        self.last_position: tuple[int, int] | None = None
        topic.owner = client

    async def send(self, payloads: Sequence[bytes], attributes: Sequence[bytes], _: int) -> None:
        await self._client.may_go.wait()
        if self._topic.owner is not self._client:
            raise geminga.ProducerFenced("ProducerFenced", self._topic.name)

        def append() -> None:
            for payload, each in zip(payloads, attributes, strict=True):
                # The payload's size, which is required, is not among the attributes.
                metadata = SingleMessageMetadata.FromString(each + b"\x18\x00")
                self._topic.append(payload, metadata.partition_key)
            self.last_position = LEDGER, len(self._topic.messages) - 1

        keys = [SingleMessageMetadata.FromString(e + b"\x18\x00").partition_key for e in attributes]
        if not self._client.step("claim" if keys == ["m:"] else "commit", append):
            await asyncio.Event().wait()

    async def flush(self) -> None:
        pass


class Producer:
    """Stores results a turn of the loop later."""

    def __init__(self, client: Client, topic: Topic, name: str) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self.pending_messages = 0
        self.last_sequence_id = topic.last_ids.get(name, -1)

    async def ready(self) -> None:
        pass

    def send_nowait(
        self,
        value: bytes,
        callback: Callable[[geminga.MessageId | None, Exception | None], None],
        *,
        sequence_id: int,
        properties: object,
    ) -> None:
        del properties

        def append() -> None:
            # Brokers would drop it, but for one in a batch with new ones, which they refuse.
            assert sequence_id > self._topic.last_ids.get(self._name, -1)
            self._topic.last_ids[self._name] = sequence_id
            self._topic.append(value, None)

        def store() -> None:
            if self._client.step("result", append):
                self.pending_messages -= 1
                callback(None, None)

        self.pending_messages += 1
        asyncio.get_running_loop().call_soon(store)

    async def flush(self) -> None:
        while self.pending_messages and not self._client.has_ended.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.flush()
        if self._topic.producers.get(self._name) is self._client:
            del self._topic.producers[self._name]


class Consumer(Opened):
    """Delivers what is not acknowledged, of several topics in turn; once, while it is active."""

    def __init__(self, client: Client, topics: list[Topic]) -> None:
        self._client = client
        self._topics = {topic.name: topic for topic in topics}
        self._delivered: set[tuple[str, int]] = set()

    def _waiting(self) -> list[geminga.Message[bytes]]:
        if not self._client.is_active or self._client.has_ended.is_set():
            return []
        found = [
            message
            for topic in self._topics.values()
            for place, message in enumerate(topic.messages)
            if place not in topic.acknowledged and (topic.name, place) not in self._delivered
        ]
        return sorted(found, key=lambda message: message.position)

    async def receive(self) -> geminga.Message[bytes]:
        while not (found := await self.receive_many(1, 0)):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1.0)
        return found[0]

    async def receive_many(self, max_messages: int, _: float) -> list[geminga.Message[bytes]]:
        found = self._waiting()[:max_messages]
        self._delivered.update((each.topic, each.position[1]) for each in found)
        return found

    def is_active_in(self, _: str) -> bool:
        return self._client.is_active

    def ack(self, message: geminga.Message[bytes]) -> None:
        acknowledged = self._topics[message.topic].acknowledged
        self._client.step("ack", lambda: acknowledged.add(message.position[1]))

    def nack(self, message: geminga.Message[bytes]) -> None:
        raise AssertionError(message)
