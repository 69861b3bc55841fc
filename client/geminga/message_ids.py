"""Names of messages, and of places between them: ``MessageId`` and ``LogPosition``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError

from geminga.errors import ClientError
from geminga_protocol.pulsar.api_pb2 import MessageIdData
from geminga_protocol.pulsar.messages.integers import INT64_MAX, signed, unsigned

# The digits of a message that is not acknowledged, and of one that is.
_OPEN, _DONE = b"10"


# ``_left`` is always the number of digits 1 in ``_open``. A digit goes from 1 to 0 and never back:
# a batch that is delivered again has another ``BatchAcks``.
class BatchAcks:
    """Which messages of one received batch are not acknowledged yet.

    The broker stores a batch as one entry, which is acknowledged when all its messages are.
    """

    __slots__ = ("_left", "_open", "size")

    def __init__(self, size: int) -> None:
        # Of the batch, acknowledged messages included.
        self.size = size
        # How many messages are open.
        self._left = size
        # A digit for each message, 1 while it is open. Bits of an integer would be smaller, and all
        # of them be copied at each acknowledgement.
        self._open = bytearray(b"1") * size

    def acknowledge(self, batch_index: int) -> bool:
        """Acknowledge one message; says whether none of the batch is open now."""
        if batch_index < self.size and self._open[batch_index] == _OPEN:
            self._open[batch_index] = _DONE
            self._left -= 1
        return self._left == 0

    def acknowledge_up_to(self, batch_index: int) -> bool:
        """Acknowledge this message and those before it; says whether none is open now."""
        count = min(batch_index + 1, self.size)
        # Some of these may be acknowledged already, one by one.
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
    """Names one message of a topic. Ids of one topic or partition sort in the order of its log.

    - ``ledger_id``, ``entry_id``: of the stored entry, which is a message or a batch.
    - ``batch_index``: the place in the batch, from 0; -1 for a message that was sent alone.
    - ``partition``: the index of the partition, -1 for a topic without partitions.
    - ``batch_size``: how many messages the batch has, 0 where that is not known.
    - ``topic``: the whole name of the topic, in ids that came with a message.
    - ``first_chunk``: the id of the first chunk, for a message that was sent in chunks.
    - ``batch_acks``, ``chunks``: what acknowledging the message takes, in ids that came with one.

    ``to_bytes`` and ``from_bytes`` keep ids outside of the program.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1
    # None of these is compared: an id that was stored and read again must equal the one that came
    # with the message.
    batch_size: int = field(default=0, compare=False)
    topic: str | None = field(default=None, compare=False)
    first_chunk: MessageId | None = field(default=None, compare=False)
    # Shared by all ids of one received batch.
    batch_acks: BatchAcks | None = field(default=None, compare=False, repr=False)
    # The entries of the chunks before the last, which are acknowledged with it.
    chunks: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    @property
    def position(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)`` of the entry that the message is stored in."""
        return self.ledger_id, self.entry_id

    def __str__(self) -> str:
        """``ledger:entry:partition``, and in a batch ``:batch_index``, as upstream's clients."""
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    def to_bytes(self) -> bytes:
        """The id in the form that every Pulsar client reads (``MessageIdData``, PulsarApi.proto).

        It has no place for the topic: keep that beside it.
        """
        proto = to_proto(self)
        # Only here: commands name a message in chunks by its last one.
        if self.first_chunk is not None:
            proto.first_chunk_message_id.CopyFrom(to_proto(self.first_chunk))
        return proto.SerializeToString()

    @classmethod
    def from_bytes(cls, encoded: bytes, *, topic: str | None = None) -> MessageId:
        """Read what ``to_bytes`` of any Pulsar client wrote.

        A consumer of several topics, or of a partitioned one, needs the whole name of the
        ``topic`` or partition to acknowledge or seek by the id. Raises ``ClientError`` for bytes
        that are no message id.
        """
        try:
            proto = MessageIdData.FromString(encoded)
        except DecodeError as error:
            raise ClientError(f"{encoded!r} is no message id") from error
        # Bytes of another kind may parse, too; ledger id and entry id are required fields.
        if not proto.IsInitialized():
            raise ClientError(f"{encoded!r} is no message id")
        return from_proto(proto, topic=topic)


# As the protocol has them: before the first message of any topic, and behind its last.
EARLIEST = MessageId(-1, -1)
LATEST = MessageId(INT64_MAX, INT64_MAX)


class LogPosition(NamedTuple):
    """A place in the log of a topic without partitions, or of one partition: just before the entry
    ``entry_id`` of the ledger ``ledger_id``, or before its message ``batch_index``.

    Ranges of positions are half-open: ``start`` is the first message that belongs to them, ``end``
    the first one that does not. Positions sort in the order of the log. The entry need not exist:
    a position behind the last entry of a ledger means the beginning of the next one.
    ``batch_index`` is -1 for the beginning of an entry.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    @property
    def entry(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id


# Before the first message of any topic.
LOG_START = LogPosition(-1, -1)


def to_proto(message_id: MessageId) -> MessageIdData:
    """The id as commands carry it; without a partition or a batch index the fields are left out."""
    proto = MessageIdData(
        ledgerId=unsigned(message_id.ledger_id), entryId=unsigned(message_id.entry_id)
    )
    # Unset fields have the default -1 there (PulsarApi.proto), as here.
    if message_id.partition >= 0:
        proto.partition = message_id.partition
    if message_id.batch_index >= 0:
        proto.batch_index = message_id.batch_index
        proto.batch_size = message_id.batch_size
    return proto


def from_proto(proto: MessageIdData, partition: int = -1, topic: str | None = None) -> MessageId:
    """The id that a command carries; ``partition`` is taken where the command names none."""
    is_chunked = proto.HasField("first_chunk_message_id")
    return MessageId(
        # The wire has unsigned numbers: -1 is 2^64 - 1 there.
        signed(proto.ledgerId),
        signed(proto.entryId),
        proto.batch_index,
        proto.partition if proto.HasField("partition") else partition,
        proto.batch_size,
        topic,
        from_proto(proto.first_chunk_message_id, partition) if is_chunked else None,
    )
