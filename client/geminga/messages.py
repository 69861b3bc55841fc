"""A message as a consumer receives it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from geminga.crypto.context import EncryptionContext, context_of
from geminga.message_ids import BatchAcks, MessageId
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata

ValueT_co = TypeVar("ValueT_co", covariant=True)


class ValueMaker(Protocol):
    """Makes the values of messages, for a consumer with a schema."""

    def value(self, message: Message[Any], /) -> Any:  # noqa: ANN401 - whatever the schema makes
        """The message's value; raises what the schema raises."""

    def schema(self, message: Message[Any], /) -> SchemaInfo | None:
        """The schema by which its value is read."""


class StillEncrypted:
    """Takes the place of the schema, for messages that could not be decrypted."""

    def value(self, message: Message[Any], /) -> NoReturn:
        """Raises ``ValueError``."""
        raise ValueError(f"{message.id} is still encrypted: it has data, and no value")

    def schema(self, _message: Message[Any], /) -> None:
        """None: encrypted data have no schema."""


# Its messages keep it alive, and with it the metadata of the whole entry; the entry's payload is
# not among that, since each message has its own bytes.
@dataclass(slots=True, eq=False)
class Delivery:
    """What the messages of one delivered entry share."""

    # The whole name of the topic or partition.
    topic: str
    # ``(ledger_id, entry_id)``.
    position: tuple[int, int]
    # The index of the partition, -1 for a topic without partitions.
    partition: int
    metadata: MessageMetadata
    redelivery_count: int = 0
    # What is open of a batch; ``None`` for a message that was sent alone.
    acks: BatchAcks | None = None
    # ``None`` for a consumer without a schema, whose values are bytes.
    values: ValueMaker | None = None
    # The entries of a message's chunks before the last.
    chunks: tuple[tuple[int, int], ...] = ()


class Message(Generic[ValueT_co]):
    """One message of a topic: its value, and what its producer and the broker say about it.

    ``data`` are the bytes that its producer sent, ``value`` is what the consumer's schema makes of
    them. ``batch_index`` is the place in its batch, from 0, and -1 for a message that was sent
    alone. Messages are made by consumers and readers, and never change.
    """

    # HOT: what its producer said is taken out of the stored metadata when it is asked for. Most of
    # it never is, and building all of it would double the cost of receiving a small message.

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
        # In a batch: the message's own metadata, which stay bytes until they are needed.
        self._single = single

    @property
    def _own_metadata(self) -> MessageMetadata | SingleMessageMetadata:
        """The metadata of this message: those of the entry, or its own in a batch. Both classes
        have the same names for the fields that they share."""
        single = self._single
        if isinstance(single, bytes):
            # Parsed at the first access, and kept.
            single = self._single = SingleMessageMetadata.FromString(single)
        return self._delivery.metadata if single is None else single

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.topic}, {len(self.data)} bytes>"

    @property
    def value(self) -> ValueT_co:
        """What the consumer's schema makes of ``data``; without a schema ``data`` itself.

        ``None`` for a message whose value is null. Raises what the schema raises for data that it
        cannot read, mostly ``ValueError``, and ``ValueError`` for data that are still encrypted.
        Each access reads the data anew.
        """
        values = self._delivery.values
        if values is not None:
            return cast(ValueT_co, values.value(self))
        return cast(ValueT_co, None if self.is_null else self.data)

    @property
    def is_null(self) -> bool:
        """Is the value null? On a compacted topic such a message deletes its key."""
        return self._own_metadata.null_value

    @property
    def id(self) -> MessageId:
        """The id that names the message; it can acknowledge it, and can be kept (``to_bytes``)."""
        # Made anew each time: consumers acknowledge the message itself, which needs no id.
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
        """``(ledger_id, entry_id)`` of the entry that has the message."""
        return self._delivery.position

    @property
    def partition(self) -> int:
        """The index of the partition that it came from, -1 for a topic without partitions."""
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
        """The key, ``None`` without one. A key of bytes is given as Base64: see ``key_bytes``."""
        metadata = self._own_metadata
        return metadata.partition_key if metadata.HasField("partition_key") else None

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes, ``None`` without one; a key that is text in UTF-8."""
        key = self.key
        if key is None:
            return None
        # The metadata have a place for text alone: keys of bytes are stored as Base64.
        return key.encode() if self.is_key_text else base64.b64decode(key)

    @property
    def is_key_text(self) -> bool:
        """Is the key text, and not bytes? True for a message without a key."""
        return not self._own_metadata.partition_key_b64_encoded

    @property
    def ordering_key(self) -> bytes | None:
        """What Key_Shared subscriptions go by instead of the key, ``None`` without one."""
        metadata = self._own_metadata
        return metadata.ordering_key if metadata.HasField("ordering_key") else None

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that its producer set. Each access makes a new mapping."""
        # A name that is there twice has the last of its values, as in upstream's clients.
        return {pair.key: pair.value for pair in self._own_metadata.properties}

    @property
    def publish_time_ms(self) -> int:
        """When its producer sent it, in milliseconds since 1970-01-01 UTC."""
        return self._delivery.metadata.publish_time

    @property
    def publish_time(self) -> datetime:
        """When its producer sent it, in UTC."""
        return datetime.fromtimestamp(self.publish_time_ms / 1000, UTC)

    @property
    def event_time_ms(self) -> int | None:
        """The event time that its producer set, or ``None``; in ms since 1970-01-01 UTC."""
        metadata = self._own_metadata
        # Asked for by its presence: 0 would be a time, too.
        return metadata.event_time if metadata.HasField("event_time") else None

    @property
    def event_time(self) -> datetime | None:
        """The event time that its producer set, in UTC, or ``None``."""
        time_ms = self.event_time_ms
        return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)

    @property
    def producer_name(self) -> str:
        """The name of its producer."""
        return self._delivery.metadata.producer_name

    @property
    def sequence_id(self) -> int:
        """The sequence id that its producer gave it, by which topics deduplicate."""
        metadata = self._own_metadata
        # Some producers number only the entry, and not each message of a batch.
        if not metadata.HasField("sequence_id"):
            metadata = self._delivery.metadata
        return metadata.sequence_id

    @property
    def redelivery_count(self) -> int:
        """How often the broker delivered it before; 0 the first time."""
        return self._delivery.redelivery_count

    @property
    def replicated_from(self) -> str | None:
        """The cluster that it was replicated from; ``None`` where it was published in this one."""
        # The name of a cluster is never empty: empty is what protobuf has for an unset field.
        return self._delivery.metadata.replicated_from or None

    @property
    def schema_version(self) -> bytes | None:
        """The version of the topic's schema that it was written with; ``None`` without a schema."""
        # Of the entry: all messages of a batch were written with the same version.
        metadata = self._delivery.metadata
        return metadata.schema_version if metadata.HasField("schema_version") else None

    @property
    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted; ``None`` if it was not."""
        delivery = self._delivery
        # An encrypted body takes the schema's place with ``STILL_ENCRYPTED`` (``EntryOpener``); no
        # other field notes it.
        is_decrypted = not isinstance(delivery.values, StillEncrypted)
        return context_of(delivery.metadata, is_decrypted=is_decrypted)

    @property
    def schema(self) -> SchemaInfo | None:
        """The schema by which its value is read; ``None`` for bytes.

        It is the consumer's, or the producer's where the consumer's schema needs that one (Avro,
        ``AutoConsumeSchema``).
        """
        values = self._delivery.values
        return None if values is None else values.schema(self)
