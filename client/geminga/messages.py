"""A message as a consumer receives it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from geminga.crypto.context import EncryptionContext, context_of
from geminga.message_ids import BatchAcks, MessageId
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata

ValueT_co = TypeVar("ValueT_co", covariant=True)


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
