"""A message as a consumer receives it, and the id that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from geminga.errors import ClientError, NotAcknowledgeable
from geminga_protocol.pulsar.api_pb2 import MessageIdData
from geminga_protocol.pulsar.integers import INT64_MAX, signed, unsigned


class BatchAcks:
    """The messages of one received batch that are not yet acknowledged.

    The broker stores a batch as one entry, which is acknowledged when all its messages are.
    """

    __slots__ = ("_open", "size")

    def __init__(self, size: int) -> None:
        """All of ``size`` messages wait."""
        self.size = size
        self._open = (1 << size) - 1

    def acknowledge(self, batch_index: int) -> bool:
        """Acknowledge one message; says whether the whole batch is done now."""
        self._open &= ~(1 << batch_index)
        return self._open == 0

    def acknowledge_up_to(self, batch_index: int) -> bool:
        """Acknowledge this message and those before it; says whether the batch is done now."""
        self._open &= ~((2 << batch_index) - 1)
        return self._open == 0


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Names one message of a topic, and sorts in the order of the topic.

    ``batch_index`` is -1 for a message that was sent alone, ``partition`` -1 for a topic without
    partitions; ids of different partitions have no order that means anything. The id of a message
    in chunks is that of its last chunk, and knows its ``first_chunk``.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = field(default=0, compare=False)
    # What is still to be acknowledged of its batch; only in ids that came with a message.
    batch_acks: BatchAcks | None = field(default=None, compare=False, repr=False)
    first_chunk: MessageId | None = field(default=None, compare=False)

    def to_bytes(self) -> bytes:
        """The id to be kept somewhere, in the form that every Pulsar client reads."""
        proto = to_proto(self)
        if self.first_chunk is not None:
            proto.first_chunk_message_id.CopyFrom(to_proto(self.first_chunk))
        return proto.SerializeToString()

    @classmethod
    def from_bytes(cls, encoded: bytes) -> MessageId:
        """The opposite of ``to_bytes``; raises ``ClientError`` for what is no message id."""
        try:
            proto = MessageIdData.FromString(encoded)
        except DecodeError as error:
            raise ClientError(f"{encoded!r} is no message id") from error
        if not proto.IsInitialized():
            raise ClientError(f"{encoded!r} is no message id")
        return from_proto(proto)


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(INT64_MAX, INT64_MAX)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a topic: its payload, and what its producer and the broker say about it.

    Times are milliseconds since 1970-01-01 UTC. ``redelivery_count`` is how often it was
    delivered before. ``key`` is ``None`` for a message without one, ``payload`` is empty for a
    message whose value is null (``is_null``).
    """

    payload: bytes
    message_id: MessageId
    topic: str
    producer_name: str
    sequence_id: int
    publish_time_ms: int
    event_time_ms: int | None
    key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str]
    redelivery_count: int
    is_null: bool


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


def from_proto(proto: MessageIdData, partition: int = -1) -> MessageId:
    """The id that a command carries; ``partition`` where it does not say."""
    is_chunked = proto.HasField("first_chunk_message_id")
    return MessageId(
        signed(proto.ledgerId),
        signed(proto.entryId),
        proto.batch_index,
        proto.partition if proto.HasField("partition") else partition,
        proto.batch_size,
        first_chunk=from_proto(proto.first_chunk_message_id, partition) if is_chunked else None,
    )


def acknowledge(message_id: MessageId) -> tuple[int, int] | None:
    """Acknowledge one message; gives its entry when that is acknowledged as a whole now.

    Raises ``NotAcknowledgeable`` for a message in a batch whose id did not come with it.
    """
    if message_id.batch_index >= 0:
        if message_id.batch_acks is None:
            raise NotAcknowledgeable(
                f"{message_id} is in a batch: only the id that came with it can acknowledge it"
            )
        if not message_id.batch_acks.acknowledge(message_id.batch_index):
            return None
    return message_id.ledger_id, message_id.entry_id


def acknowledge_up_to(message_id: MessageId) -> tuple[int, int] | None:
    """Acknowledge a message and all before it; gives the last entry that is acknowledged now.

    In the midst of a batch that is the entry before the batch, if it is known: that of the ledger
    before waits for the next acknowledgement.
    """
    entry_id = message_id.entry_id
    if message_id.batch_index >= 0:
        acks = message_id.batch_acks
        if acks is None or not acks.acknowledge_up_to(message_id.batch_index):
            entry_id -= 1
    return (message_id.ledger_id, entry_id) if entry_id >= 0 else None
