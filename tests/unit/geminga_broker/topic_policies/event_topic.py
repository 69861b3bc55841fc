"""A topic ``__change_events`` in memory, whose readers fail and lose their broker when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from geminga import Client, ConnectionLost
from geminga_broker.topic_policies.events import encode_event, events_topic, own_schema
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.topic_policies import TopicPolicies

NAMESPACE = NamespaceName("t", "n")
EVENTS = str(events_topic(NAMESPACE))


@dataclass(frozen=True)
class Id:
    """Where an event stands."""

    position: tuple[int, int]


@dataclass(frozen=True)
class Event:
    """A message, as readers hand it out."""

    id: Id
    key: str | None
    data: bytes
    is_null: bool = False
    schema_version: bytes | None = None
    topic: str = EVENTS


def of(topic: str, **said: object) -> tuple[str, bytes]:
    """Key and value of the event in which a topic says that."""
    name = TopicName.parse(f"persistent://t/n/{topic}")
    policies = TopicPolicies(**said)  # type: ignore[arg-type]
    return str(name), encode_event(own_schema().type, name, policies, cluster="here")


class EventTopic:
    """The topic, and the client that reads it: ``readers`` counts how often it was opened."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.last: tuple[int, int] = (7, -1)
        self.readers = 0
        self.may_open = True
        # How long it takes to close a reader.
        self.closing_s = 0.0
        # Called before a reader hands out the event of this number, once.
        self.interruptions: dict[int, Callable[[], None]] = {}
        self.attachments = 1
        self._changed = asyncio.Event()

    def add(
        self, key: str | None, value: bytes | None, *, schema_version: bytes | None = None
    ) -> None:
        """Publish an event, or, without a value, a removal."""
        self.last = (7, self.last[1] + 1)
        event = Event(Id(self.last), key, value or b"", value is None, schema_version)
        self.events.append(event)
        self.wake()

    def compact_away(self, key: str) -> None:
        """A reader that has not read them never sees the events of ``key`` again."""
        self.events = [each for each in self.events if each.key != key]

    def reattach(self) -> None:
        """The readers have lost their broker, and found one again."""
        self.attachments += 1
        self.wake()

    def wake(self) -> None:
        """Have waiting readers look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Return when something has changed."""
        await self._changed.wait()

    @property
    def client(self) -> Client:
        """What opens readers of it."""
        return cast(Client, self)

    async def close(self) -> None:
        """As a client does."""

    @asynccontextmanager
    async def producer(self, *_: object, **__: object) -> AsyncGenerator[EventTopic, None]:
        """A producer of it."""
        if not self.may_open:
            raise ConnectionLost("the broker is away")
        yield self

    async def send(self, value: bytes | None, *, key: str, replicate_to: list[str]) -> None:
        """Publish an event for one cluster."""
        assert replicate_to == ["here"]
        self.add(key, value)

    @asynccontextmanager
    async def reader(self, *_: object, **__: object) -> AsyncGenerator[EventReader, None]:
        """A reader of it."""
        await asyncio.sleep(0)
        self.readers += 1
        if not self.may_open:
            raise ConnectionLost("the broker is away")
        try:
            yield EventReader(self)
        finally:
            await asyncio.sleep(self.closing_s)


class EventReader:
    """Reads it from the beginning."""

    def __init__(self, topic: EventTopic) -> None:
        self._topic = topic
        self._read_upto = (-1, -1)

    @property
    def attachments(self) -> int:
        """How often it has found a broker."""
        return self._topic.attachments

    async def last_message_ids(self) -> dict[str, Id]:
        """Where the last event stands, whether or not it was compacted away."""
        await asyncio.sleep(0)
        if not self._topic.may_open:
            raise ConnectionLost("the broker is away")
        return {EVENTS: Id(self._topic.last)}

    async def has_message_available(self) -> bool:
        """Whether there is an event to read."""
        await asyncio.sleep(0)
        return self._next() is not None

    async def read_many(self, count_max: int, within_s: float) -> list[Event]:
        """The next event alone: so there is something between any two."""
        del count_max, within_s
        return [await self.read()]

    async def read(self) -> Event:
        """The next event."""
        while (event := self._next()) is None:
            await self._topic.changed()
        interrupt = self._topic.interruptions.pop(event.id.position[1], None)
        if interrupt is not None:
            interrupt()
        self._read_upto = event.id.position
        return event

    def _next(self) -> Event | None:
        later = (each for each in self._topic.events if each.id.position > self._read_upto)
        return next(later, None)
