"""A message as a consumer receives it, and the id that names it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from google.protobuf.message import DecodeError

from geminga.encryption_context import EncryptionContext, context_of
from geminga.errors import ClientError
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.api_pb2 import MessageIdData, MessageMetadata, SingleMessageMetadata
from geminga_protocol.pulsar.messages.integers import INT64_MAX, signed, unsigned

ValueT_co = TypeVar("ValueT_co", covariant=True)


_OPEN, _DONE = b"10"


class BatchAcks:
    """The messages of one received batch that are not yet acknowledged.

    The broker stores a batch as one entry, which is acknowledged when all its messages are.
    """

    __slots__ = ("_left", "_open", "size")

    def __init__(self, size: int) -> None:
        """All of ``size`` messages wait."""
        self.size = size
        self._left = size
        # A digit for each message, 1 while it is open. Bits of an integer would be smaller, and
        # all of them be copied at each acknowledgement.
        self._open = bytearray(b"1") * size

    def acknowledge(self, batch_index: int) -> bool:
        """Acknowledge one message; says whether the whole batch is done now."""
        if batch_index < self.size and self._open[batch_index] == _OPEN:
            self._open[batch_index] = _DONE
            self._left -= 1
        return self._left == 0

    def acknowledge_up_to(self, batch_index: int) -> bool:
        """Acknowledge this message and those before it; says whether the batch is done now."""
        count = min(batch_index + 1, self.size)
        self._left -= self._open.count(_OPEN, 0, count)
        self._open[:count] = b"0" * count
        return self._left == 0

    def is_open(self, batch_index: int) -> bool:
        """Is this message not acknowledged yet?"""
        return batch_index < self.size and self._open[batch_index] == _OPEN

    def open_indexes(self) -> int:
        """A bit for each message still open, that of index 0 the lowest."""
        return int(self._open[::-1], 2)


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Names one message of a topic, and sorts in the order of the topic.

    ``ledger_id`` and ``entry_id`` are those of the stored entry, which is a message or a batch.
    ``batch_index`` is the place in a batch of ``batch_size`` messages, and -1 for a message that
    was sent alone; ``partition`` is -1 for a topic without partitions. Ids of different partitions
    have no order that means anything. ``topic`` is known of ids that came with a message,
    ``first_chunk`` of a message that was sent in chunks; ``batch_acks`` and ``chunks`` are what
    acknowledging it takes, in ids that came with a message.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = field(default=0, compare=False)
    topic: str | None = field(default=None, compare=False)
    first_chunk: MessageId | None = field(default=None, compare=False)
    # What is still to be acknowledged of its batch; only in ids that came with a message.
    batch_acks: BatchAcks | None = field(default=None, compare=False, repr=False)
    # The entries of the chunks before the last, which are acknowledged with it.
    chunks: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    @property
    def position(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)`` of the entry that the message is stored in."""
        return self.ledger_id, self.entry_id

    def __str__(self) -> str:
        """``ledger:entry:partition``, for one in a batch with ``:batch index``, as upstream's."""
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    def to_bytes(self) -> bytes:
        """The id to be kept somewhere, in the form that every Pulsar client reads.

        Without the topic, as the form has no place for it (``MessageIdData``, PulsarApi.proto).
        """
        proto = to_proto(self)
        if self.first_chunk is not None:
            proto.first_chunk_message_id.CopyFrom(to_proto(self.first_chunk))
        return proto.SerializeToString()

    @classmethod
    def from_bytes(cls, encoded: bytes, *, topic: str | None = None) -> MessageId:
        """The opposite of ``to_bytes``; raises ``ClientError`` for what is no message id.

        A consumer of several topics needs the whole name of the ``topic``, that of the partition
        if it has partitions.
        """
        try:
            proto = MessageIdData.FromString(encoded)
        except DecodeError as error:
            raise ClientError(f"{encoded!r} is no message id") from error
        if not proto.IsInitialized():
            raise ClientError(f"{encoded!r} is no message id")
        return from_proto(proto, topic=topic)


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(INT64_MAX, INT64_MAX)


class ValueMaker(Protocol):
    """Makes the values of messages: a consumer's schema."""

    def value(self, message: Message[Any], /) -> Any:  # noqa: ANN401 - whatever the schema makes
        """The message's value; raises what the schema raises."""

    def schema(self, message: Message[Any], /) -> SchemaInfo | None:
        """The schema by which its value is read."""


class StillEncrypted:
    """Stands for the schema of messages that could not be decrypted."""

    def value(self, message: Message[Any], /) -> NoReturn:
        """Raises ``ValueError``."""
        raise ValueError(f"{message.id} is still encrypted: it has data, and no value")

    def schema(self, _message: Message[Any], /) -> None:
        """None: the data are no value's."""


class Delivery:
    """What the messages of one delivered entry share."""

    __slots__ = (
        *("acks", "chunks", "metadata", "partition", "position", "redelivery_count", "topic"),
        "values",
    )

    def __init__(
        self,
        topic: str,
        position: tuple[int, int],
        partition: int,
        metadata: MessageMetadata,
        *,
        redelivery_count: int = 0,
        acks: BatchAcks | None = None,
        values: ValueMaker | None = None,
        chunks: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.topic = topic
        self.position = position
        self.partition = partition
        self.metadata = metadata
        self.redelivery_count = redelivery_count
        self.acks = acks
        self.values = values
        self.chunks = chunks


class Message(Generic[ValueT_co]):
    """One message of a topic: its value, and what its producer and the broker say about it.

    ``data`` are the bytes that its producer sent. What else it says is taken out of the stored
    metadata when it is asked for: most of it never is, and building all of it would double the
    cost of receiving a small message. ``batch_index`` is its place in its batch, from 0, and -1 for
    one that was sent alone.
    """

    __slots__ = ("_delivery", "_single", "batch_index", "data")

    def __init__(
        self,
        data: bytes,
        delivery: Delivery,
        batch_index: int = -1,
        single: SingleMessageMetadata | bytes | None = None,
    ) -> None:
        self.data = data
        self.batch_index = batch_index
        self._delivery = delivery
        # Of a message in a batch its own metadata, which may not be parsed yet.
        self._single = single

    @property
    def _said(self) -> MessageMetadata | SingleMessageMetadata:
        """What its producer said of it; both kinds name what they share alike."""
        single = self._single
        if isinstance(single, bytes):
            single = self._single = SingleMessageMetadata.FromString(single)
        return self._delivery.metadata if single is None else single

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.topic}, {len(self.data)} bytes>"

    @property
    def value(self) -> ValueT_co:
        """The data as the consumer's schema reads it; without a schema the ``data``.

        ``None`` for a message whose value is null. Raises what the schema raises for data that it
        cannot read, and ``ValueError`` for data that are still encrypted.
        """
        values = self._delivery.values
        if values is not None:
            return cast(ValueT_co, values.value(self))
        return cast(ValueT_co, None if self.is_null else self.data)

    @property
    def is_null(self) -> bool:
        """Is the value null? On a compacted topic it says that the key is gone."""
        return self._said.null_value

    @property
    def id(self) -> MessageId:
        """The id that names the message, and acknowledges it."""
        delivery = self._delivery
        chunks = delivery.chunks
        return MessageId(
            *delivery.position,
            self.batch_index,
            delivery.partition,
            delivery.acks.size if delivery.acks is not None else 0,
            delivery.topic,
            MessageId(*chunks[0], partition=delivery.partition) if chunks else None,
            delivery.acks,
            chunks,
        )

    @property
    def position(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)`` of the entry that it is stored in."""
        return self._delivery.position

    @property
    def partition(self) -> int:
        """The partition that it came from, -1 for a topic without partitions."""
        return self._delivery.partition

    @property
    def batch_acks(self) -> BatchAcks | None:
        """What is still to be acknowledged of its batch, if it is in one."""
        return self._delivery.acks

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """The entries of its chunks before the last, if it was sent in chunks."""
        return self._delivery.chunks

    @property
    def topic(self) -> str:
        """The whole name of the topic, that of the partition if it has partitions."""
        return self._delivery.topic

    @property
    def key(self) -> str | None:
        """The key, if it has one; of a key that is bytes, their Base64."""
        return self._said.partition_key if self._said.HasField("partition_key") else None

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes, if it has one."""
        key = self.key
        if key is None:
            return None
        return key.encode() if self.is_key_text else base64.b64decode(key)

    @property
    def is_key_text(self) -> bool:
        """Did its producer give it a key that is text, and not bytes?"""
        return not self._said.partition_key_b64_encoded

    @property
    def ordering_key(self) -> bytes | None:
        """What Key_Shared subscriptions go by before the key, if it has one."""
        return self._said.ordering_key if self._said.HasField("ordering_key") else None

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that its producer set; a new mapping at each call."""
        return {pair.key: pair.value for pair in self._said.properties}

    @property
    def publish_time_ms(self) -> int:
        """When its producer sent it: milliseconds since 1970-01-01 UTC."""
        return self._delivery.metadata.publish_time

    @property
    def publish_time(self) -> datetime:
        """When its producer sent it, in UTC."""
        return datetime.fromtimestamp(self.publish_time_ms / 1000, UTC)

    @property
    def event_time_ms(self) -> int | None:
        """The time its producer gave it, in milliseconds since 1970-01-01 UTC, if it did."""
        return self._said.event_time if self._said.HasField("event_time") else None

    @property
    def event_time(self) -> datetime | None:
        """The time its producer gave it, in UTC, if it did."""
        time_ms = self.event_time_ms
        return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)

    @property
    def producer_name(self) -> str:
        """The name of its producer."""
        return self._delivery.metadata.producer_name

    @property
    def sequence_id(self) -> int:
        """The number that its producer gave it."""
        said = self._said if self._said.HasField("sequence_id") else self._delivery.metadata
        return said.sequence_id

    @property
    def redelivery_count(self) -> int:
        """How often the broker delivered it before."""
        return self._delivery.redelivery_count

    @property
    def replicated_from(self) -> str | None:
        """The cluster that it was replicated from; ``None`` for one published to this cluster."""
        return self._delivery.metadata.replicated_from or None

    @property
    def schema_version(self) -> bytes | None:
        """The version of the schema that it was written with, if its producer had one."""
        metadata = self._delivery.metadata
        return metadata.schema_version if metadata.HasField("schema_version") else None

    @property
    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted, ``None`` if it was not."""
        delivery = self._delivery
        is_decrypted = not isinstance(delivery.values, StillEncrypted)
        return context_of(delivery.metadata, is_decrypted=is_decrypted)

    @property
    def schema(self) -> SchemaInfo | None:
        """The schema that its value is read by, ``None`` for bytes: the consumer's, or its
        producer's where the consumer's needs that one (Avro, ``AutoConsumeSchema``)."""
        values = self._delivery.values
        return None if values is None else values.schema(self)


def to_proto(message_id: MessageId) -> MessageIdData:
    """The id as commands carry it."""
    proto = MessageIdData(
        ledgerId=unsigned(message_id.ledger_id), entryId=unsigned(message_id.entry_id)
    )
    if message_id.partition >= 0:
        proto.partition = message_id.partition
    if message_id.batch_index >= 0:
        proto.batch_index = message_id.batch_index
        proto.batch_size = message_id.batch_size
    return proto


def from_proto(proto: MessageIdData, partition: int = -1, topic: str | None = None) -> MessageId:
    """The id that a command carries; ``partition`` where it does not say."""
    is_chunked = proto.HasField("first_chunk_message_id")
    return MessageId(
        signed(proto.ledgerId),
        signed(proto.entryId),
        proto.batch_index,
        proto.partition if proto.HasField("partition") else partition,
        proto.batch_size,
        topic,
        from_proto(proto.first_chunk_message_id, partition) if is_chunked else None,
    )
