"""Where a message is: its ledger, its entry, its place in a batch, and its partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from geminga.batch_acks import BatchAcks
from geminga.errors import ClientError
from geminga_protocol.pulsar.api_pb2 import MessageIdData
from geminga_protocol.pulsar.integers import INT64_MAX, signed, unsigned


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Names one message of a topic, and sorts in the order of the topic.

    ``batch_index`` is -1 for a message that was sent alone, ``partition`` -1 for a topic without
    partitions; ids of different partitions have no order that means anything.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = field(default=0, compare=False)
    # What is still to be acknowledged of its batch; only in ids that came with a message.
    batch_acks: BatchAcks | None = field(default=None, compare=False, repr=False)

    def to_proto(self) -> MessageIdData:
        """The id as commands carry it."""
        proto = MessageIdData(ledgerId=unsigned(self.ledger_id), entryId=unsigned(self.entry_id))
        if self.partition >= 0:
            proto.partition = self.partition
        if self.batch_index >= 0:
            proto.batch_index = self.batch_index
            proto.batch_size = self.batch_size
        return proto

    @classmethod
    def from_proto(cls, proto: MessageIdData, partition: int = -1) -> MessageId:
        """The id that a command carries; ``partition`` where it does not say."""
        return cls(
            signed(proto.ledgerId),
            signed(proto.entryId),
            proto.batch_index,
            proto.partition if proto.HasField("partition") else partition,
            proto.batch_size,
        )

    def to_bytes(self) -> bytes:
        """The id to be kept somewhere, in the form that every Pulsar client reads."""
        return self.to_proto().SerializeToString()

    @classmethod
    def from_bytes(cls, encoded: bytes) -> MessageId:
        """The opposite of ``to_bytes``; raises ``ClientError`` for what is no message id."""
        try:
            proto = MessageIdData.FromString(encoded)
        except DecodeError as error:
            raise ClientError(f"{encoded!r} is no message id") from error
        if not proto.IsInitialized():
            raise ClientError(f"{encoded!r} is no message id")
        return cls.from_proto(proto)


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(INT64_MAX, INT64_MAX)
