"""A broker's sessions over memory, and a client that speaks frames with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, cast
from unittest.mock import Mock

from geminga_broker.discovery import Discovery
from geminga_broker.errors import TopicNotFound
from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_broker.sessions.session import Session
from geminga_broker.topics.directory import TopicDirectory
from geminga_cluster.topic_lists import TopicLists
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PART_NAMES, encode_command, parse_command
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.send import encode_send
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.coordination import Coordination
from geminga_server.authentication import AUTHENTICATION_DISABLED
from geminga_server.authorization import allow_all
from geminga_server.connection_limits import ConnectionLimits
from geminga_server.errors import ServerUnreachable
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

TOPIC = "persistent://t/n/topic"


class MemoryTransport(asyncio.Transport):
    """The broker's end of a connection that only notes what is written.

    While ``is_stuck`` the client takes nothing: over ``high`` bytes the protocol is told to pause.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.written = bytearray()
        self.unsent_bytes = 0
        self.is_stuck = False
        self.pieces_max = 0
        self.is_paused = False
        self.is_aborted = False
        self._connection = connection
        self._is_closing = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("10.0.0.1", 4711) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        assert high is not None
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        if self.is_stuck:
            was_low = self.unsent_bytes <= self.high
            self.unsent_bytes += len(data)
            if was_low and self.unsent_bytes > self.high:
                self._connection.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        pieces = [bytes(each) for each in list_of_data]
        self.pieces_max = max(self.pieces_max, len(pieces))
        self.write(b"".join(pieces))

    def take(self, size_bytes: int) -> None:
        """The client takes some bytes; when all are taken it is no longer stuck."""
        was_high = self.unsent_bytes > self.high
        self.unsent_bytes -= size_bytes
        if self.unsent_bytes == 0:
            self.is_stuck = False
            if was_high:
                self._connection.resume_writing()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()


THERE = Owner("pulsar://there:6650", "", "http://there:8080", "", is_self=False)


class MemoryDiscovery:
    """Topics are here unless their names say otherwise, in as many partitions as was noted."""

    is_creating = True
    is_every_broker_there = True

    def __init__(self) -> None:
        self.partitions_of: Mapping[str, int] = {}
        self.topics: list[TopicName] = []

    async def owner(self, topic: TopicName, *, authoritative: bool = False) -> Owner:
        if topic.local == "nowhere":
            raise TopicNotFound(str(topic))
        if topic.local == "undecided":
            await asyncio.get_running_loop().create_future()
        if topic.local == "elsewhere":
            return THERE
        if topic.local == "unowned" and not authoritative:
            return replace(THERE, reason=LookupReason.CHOSEN)
        if topic.local == "unplaced" and not authoritative:
            return replace(THERE, reason=LookupReason.DECIDES)
        if topic.local == "broken":
            raise RuntimeError("a bug")
        return Owner("pulsar://here:6650", "", "http://here:8080", "", is_self=True)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        del create
        await self.owner(topic)
        return self.partitions_of.get(str(topic), 0)

    async def may_create(self, topic: TopicName) -> bool:
        del topic
        return self.is_creating

    async def persistent_topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        return [each for each in self._topics_of(namespace) if each.is_persistent]

    async def non_persistent_topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        if not self.is_every_broker_there:
            raise ServerUnreachable("there:8080 did not answer in 30 s")
        return [each for each in self._topics_of(namespace) if not each.is_persistent]

    def _topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        return [topic for topic in self.topics if topic.namespace == namespace]


def context_over(topics: TopicDirectory, topic_lists: TopicLists | None = None) -> SessionContext:
    """What the sessions share; without ``topic_lists`` no client may watch any."""
    numbers = count()

    async def next_producer_name() -> str:
        return f"made-{next(numbers)}"

    return SessionContext(
        topics=topics,
        discovery=cast(Discovery, MemoryDiscovery()),
        topic_lists=topic_lists or TopicLists(cast(Coordination, Mock(spec=Coordination))),
        authorize=allow_all,
        authentication=AUTHENTICATION_DISABLED,
        clock=SimulatedClock(cast(SimulatedLoop, asyncio.get_running_loop())),
        limits=ConnectionLimits(),
        next_producer_name=next_producer_name,
        liveness_check_s=0.01,
    )


class FrameClient:
    """A client on a connection of its own. ``answers`` is what it was sent, oldest first."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = MemoryTransport(self.connection)
        self.connection.connection_made(self.transport)
        self.requests = count(1)

    def connected(self) -> FrameClient:
        """Itself, after the hand-shake."""
        self.say("connect", client_version="test", protocol_version=21)
        return self

    def say(self, part: str, **fields: Any) -> None:
        """Send one command."""
        self.connection.data_received(command_frame(part, **fields))

    def ask(self, part: str, **fields: Any) -> int:
        """Send one command with a request id, which is returned."""
        request_id = next(self.requests)
        self.say(part, request_id=request_id, **fields)
        return request_id

    def open_producer(self, producer_id: int = 1, **fields: Any) -> int:
        return self.ask("producer", topic=TOPIC, producer_id=producer_id, **fields)

    def subscribe(self, consumer_id: int = 1, subscription: str = "sub", **fields: Any) -> int:
        fields.setdefault("subType", api.CommandSubscribe.Exclusive)
        return self.ask(
            "subscribe", topic=TOPIC, subscription=subscription, consumer_id=consumer_id, **fields
        )

    def publish(self, *bodies: bytes, producer_id: int = 1) -> None:
        """Send messages in one read, numbered from 0."""
        self.connection.data_received(b"".join(sends(*bodies, producer_id=producer_id)))

    def lose(self) -> None:
        """The connection breaks."""
        self.connection.connection_lost(None)

    def is_read(self) -> bool:
        """Whether the broker reads what this client sends."""
        return not self.transport.is_paused

    @property
    def session(self) -> Session:
        """The broker's end."""
        return self.connection.session

    @property
    def answers(self) -> list[tuple[str, Any]]:
        """The name and the content of every command written so far."""
        stream = bytes(self.transport.written)
        found: list[tuple[str, Any]] = []
        start = 0
        while start < len(stream):
            end = start + 4 + int.from_bytes(stream[start : start + 4], "big")
            command, _ = parse_command(stream, start + 4, end)
            part = PART_NAMES[command.type]
            found.append((part, getattr(command, part)))
            start = end
        return found

    @property
    def heard(self) -> list[str]:
        """The names alone, without the hand-shake's."""
        return [name for name, _ in self.answers if name not in ("connected", "ping")]

    def all_of(self, part: str) -> list[Any]:
        """What came under that name."""
        return [content for name, content in self.answers if name == part]


def command_frame(part: str, **fields: Any) -> bytes:
    """The frame of the command whose part is ``part``."""
    number = next(number for number, name in PART_NAMES.items() if name == part)
    command = api.BaseCommand(type=cast(Any, number))
    content = getattr(command, part)
    content.SetInParent()
    content.MergeFrom(type(content)(**fields))
    return encode_command(command)


def least_fields(part: str) -> dict[str, Any]:
    """Some value for each field that the command demands."""
    content = BaseCommand.DESCRIPTOR.fields_by_name[part].message_type
    assert content is not None
    return {field.name: _some_value(field) for field in content.fields if field.is_required}


def _some_value(field: Any) -> Any:
    if field.message_type is not None:
        inner = field.message_type.fields
        return {each.name: _some_value(each) for each in inner if each.is_required}
    if field.cpp_type == field.CPPTYPE_STRING:
        return b"x" if field.type == field.TYPE_BYTES else "x"
    return field.enum_type.values[0].number if field.enum_type is not None else 1


def sends(*bodies: bytes, producer_id: int = 1) -> list[bytes]:
    """SENDs of single messages, numbered from 0."""
    frames: list[bytes] = []
    for number, body in enumerate(bodies):
        metadata = api.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        payload = encode_payload(metadata, body)
        frames.append(encode_send(producer_id, number, len(payload)) + payload)
    return frames


def send_frame(send: api.CommandSend, payload: bytes) -> bytes:
    """The frame of a SEND with whatever fields."""
    command = api.BaseCommand(type=api.BaseCommand.SEND, send=send).SerializeToString()
    size = 4 + len(command) + len(payload)
    return size.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + payload
