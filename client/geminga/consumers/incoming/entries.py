"""Opens entries: from the payload that a broker stores and delivers to the messages in it.

``EntryOpener`` checks the checksum, decrypts, puts chunks together, decompresses, splits batches,
and leaves out messages that are acknowledged already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geminga._channels.pending.acks import Position
from geminga.compression import decompress
from geminga.consumers.incoming.chunks import PendingChunks
from geminga.consumers.incoming.values import ValueReader
from geminga.crypto.decryption import Decryptor
from geminga.errors import DecryptionFailed, UnreadableMessage
from geminga.message_ids import BatchAcks
from geminga.messages import Delivery, Message, StillEncrypted
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.integers import INT64_MAX, signed, unsigned
from geminga_protocol.pulsar.messages.payload import open_payload, split_batch_lazily

# A batch that claims more messages is damaged; upstream's producers make 1,000.
BATCH_MESSAGES_MAX = 1 << 20

STILL_ENCRYPTED = StillEncrypted()


@dataclass(slots=True)  # not frozen, which takes 0.3 us more for each
class Entry:
    """What one delivery brought."""

    position: Position
    # The messages to receive: none of an entry that cannot be opened, and of a batch those that
    # were not acknowledged before or compacted away.
    messages: list[Message[Any]]
    # What the broker counted against the permits, by the metadata: 1, or all messages of a batch
    # but those that its cursor has acknowledged, which the delivery's ack set tells.
    sent_messages: int
    # Why the entry cannot be opened.
    error: UnreadableMessage | None = None


@dataclass(slots=True)
class Body:
    """The decrypted and decompressed body of an entry, or of all chunks of a message."""

    content: bytes
    # The entries of the chunks before this one.
    earlier: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BodyOpener:
    """Decrypts the bodies of one topic's entries, puts chunks together, and decompresses them."""

    chunks: PendingChunks
    # ``None`` without private keys: no encrypted body can be opened.
    decryptor: Decryptor | None = None

    def open(self, metadata: MessageMetadata, body: bytes, position: Position) -> Body | None:
        """The body of an entry, or ``None`` for a chunk that is not the last of its message.

        Raises ``UnreadableMessage``; where it cannot be decrypted, ``DecryptionFailed``.
        """
        # The order is the producer's, reversed: it compresses a message, cuts it into chunks, and
        # encrypts each of these by itself.
        if metadata.encryption_keys:
            if self.decryptor is None:
                raise DecryptionFailed("it is encrypted")
            body = self.decryptor.decrypt(metadata, body)
        chunks: tuple[Position, ...] = ()
        if metadata.num_chunks_from_msg > 1:
            whole = self.chunks.add(metadata, body, position)
            if whole is None:
                return None
            body, chunks = whole.body, whole.earlier
        # Behind the joining of chunks: ``uncompressed_size`` is that of the whole message.
        if metadata.compression:
            body = decompress(metadata.compression, body, metadata.uncompressed_size)
        return Body(body, chunks)


@dataclass(frozen=True, slots=True, eq=False)
class EntryOpener:
    """Opens the entries of one topic."""

    topic: str
    # ``None`` for a consumer without a schema, whose values are bytes.
    values: ValueReader | None
    bodies: BodyOpener
    # Does an entry that cannot be decrypted become one message as it is?
    consumes_encrypted: bool = False

    def open(self, command: api.CommandMessage, buffer: bytes, start: int, end: int) -> Entry:
        """Open a delivered entry, whose payload is ``buffer[start:end]``.

        A message in chunks comes with its last chunk; the entries of those before have none.
        """
        position = position_of(command)
        sent_messages = 1
        try:
            metadata, body_start = open_payload(buffer, start, end)
            is_batch = metadata.HasField("num_messages_in_batch")
            if is_batch:
                # The broker counted so many against the permits, whether they can be read or not.
                sent_messages = min(max(1, metadata.num_messages_in_batch), BATCH_MESSAGES_MAX)
                if command.ack_set:
                    # For messages that are not open it took no permits: giving some back for them,
                    # too, it would have more at each such batch, and send more than there is room.
                    open_messages = sum(unsigned(word).bit_count() for word in command.ack_set)
                    sent_messages = min(sent_messages, open_messages)
            delivery = Delivery(
                self.topic,
                position,
                command.message_id.partition,
                metadata,
                redelivery_count=command.redelivery_count,
                values=self.values,
            )
            sealed = buffer[body_start:end]
            try:
                body = self.bodies.open(metadata, sealed, position)
            except DecryptionFailed:
                if not self.consumes_encrypted:
                    raise
                # The schema cannot read it: ``value`` raises, ``data`` are the bytes as they are
                # stored.
                delivery.values = STILL_ENCRYPTED
                return Entry(position, [Message(sealed, delivery)], sent_messages)
            # A chunk in the middle: its permit counts, its message comes with the last chunk.
            if body is None:
                return Entry(position, [], 1)
            delivery.chunks = body.earlier
            # A producer never cuts a batch into chunks. An entry that claims to be both is read as
            # one message.
            if is_batch and not body.earlier:
                return _open_batch(delivery, command, body.content, sent_messages)
        except UnreadableMessage as error:
            return Entry(position, [], sent_messages, error)
        # A damaged entry must not reach the connection, which takes a ``WireError`` for a broker
        # that speaks no Pulsar, and gives it up.
        except WireError as error:
            return Entry(position, [], sent_messages, UnreadableMessage(str(error)))
        return Entry(position, [Message(body.content, delivery)], 1)


def position_of(command: api.CommandMessage) -> Position:
    """``(ledger_id, entry_id)`` of a delivery."""
    message_id = command.message_id
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    # The wire has unsigned numbers, ids are signed. Written out, since nearly none needs it.
    if ledger_id > INT64_MAX or entry_id > INT64_MAX:
        return signed(ledger_id), signed(entry_id)
    return ledger_id, entry_id


def _open_batch(
    delivery: Delivery, command: api.CommandMessage, body: bytes, sent_messages: int
) -> Entry:
    num_messages = delivery.metadata.num_messages_in_batch
    if not 0 < num_messages <= BATCH_MESSAGES_MAX:
        raise UnreadableMessage(f"it is a batch of {num_messages} messages")
    acks = delivery.acks = BatchAcks(num_messages)
    messages: list[Message[Any]] = []
    ack_set = command.ack_set
    for batch_index, (single, data) in enumerate(split_batch_lazily(body, num_messages)):
        # Metadata that stay bytes hold a size and a sequence id alone, and no such mark
        # (``split_batch_lazily``).
        is_gone = not isinstance(single, bytes) and single.compacted_out
        if is_gone or (ack_set and is_acknowledged(ack_set, batch_index)):
            # Counted as done, so that the batch is acknowledged once the others are.
            acks.acknowledge(batch_index)
        else:
            messages.append(Message(data, delivery, batch_index, single))
    return Entry(delivery.position, messages, sent_messages)


def is_acknowledged(ack_set: Sequence[int], batch_index: int) -> bool:
    """Does an ack set (64-bit words, a bit for each message still open) lack this message?

    With an empty set the whole batch is open.
    """
    if not ack_set:
        return False
    word, bit = divmod(batch_index, 64)
    return word >= len(ack_set) or not unsigned(ack_set[word]) >> bit & 1
