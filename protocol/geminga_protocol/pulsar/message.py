"""Writes MESSAGE by hand: the bytes before each stored payload on its way to a consumer.

HOT: called once for every message that is dispatched. The payload itself (``messages/payload.py``)
follows as it was stored and is not touched here.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from geminga_protocol.pulsar.messages.integers import LAST, LOW_14, VARINT_BYTES_MAX, encode_varint

# CommandMessage{consumer_id=1, message_id=2, redelivery_count=3, ack_set=4, consumer_epoch=5} with
# MessageIdData{ledgerId=1, entryId=2, partition=3} inside BaseCommand{type=MESSAGE, message=9},
# byte for byte as upstream's broker writes it: with the partition, even where it is -1.
#
# +------------+--------------+------------+------------+-------------+------------+---------+
# | total size | command size | type       | message    | consumer_id | message_id | payload |
# |  u32       |  u32         | 0x08, 0x09 | 0x4a, size | 0x08, ...   | 0x12, size |         |
# +------------+--------------+------------+------------+-------------+------------+---------+
FRAME_HEAD = Struct(">II")
NO_CONSUMER_EPOCH = -1

_pack_head = FRAME_HEAD.pack


class MessageEncoder:
    """Writes the headers of one consumer's messages and keeps their unchanging parts ready.

    Successive messages come from the same ledger, so only the entry id changes. The bytes before it
    contain sizes; they are kept for every length that the entry id can have.
    """

    __slots__ = (
        "_beginnings",
        "_consumer",
        "_end",
        "_epoch",
        "_ledger_id",
        "_partition",
        "_plain_bytes",
    )

    def __init__(
        self, consumer_id: int, partition: int = -1, consumer_epoch: int = NO_CONSUMER_EPOCH
    ) -> None:
        """``partition`` is the index of the topic's partition, -1 for a topic without partitions.

        A client raises ``consumer_epoch`` when it asks for redelivery of all messages, and drops
        messages with an older epoch: the broker sent them before it had read the request.
        """
        # Each field: its tag (field number * 8, or + 2 for a message), then its value.
        self._consumer = b"\x08" + encode_varint(consumer_id)
        self._partition = b"\x18" + encode_varint(partition)
        self._epoch = b"\x28" + encode_varint(consumer_epoch) if consumer_epoch >= 0 else b""
        self._end = self._partition + self._epoch
        # Nothing is made ready before the first message: many encoders are never used, and making
        # the parts ready takes as long as ten messages. ``_beginnings``, ``_plain_bytes`` and
        # ``_ledger_id`` change together, in ``_turn_to_ledger`` only.
        self._ledger_id: int | None = None
        # The command up to the entry id, by the length of the entry id.
        self._beginnings: list[bytes] = []

    def header(
        self,
        ledger_id: int,
        entry_id: int,
        payload_bytes: int,
        redelivery_count: int = 0,
        ack_set: Sequence[int] = (),
    ) -> bytes:
        """The frame of a MESSAGE without its payload of ``payload_bytes`` bytes, which must follow.

        ``ack_set`` holds the signed 64-bit words of the batch's bit set, with a bit for each
        message not yet acknowledged; it is empty for a batch of which no message is acknowledged.
        """
        if ledger_id != self._ledger_id:
            self._turn_to_ledger(ledger_id)
        # In line for varints of three bytes, as in ``ReceiptEncoder.receipt``.
        if 16384 <= entry_id < 2097152:
            entry = LOW_14[entry_id & 16383] + LAST[entry_id >> 14]
        else:
            entry = encode_varint(entry_id)
        entry_bytes = len(entry)
        command_bytes = self._plain_bytes + entry_bytes
        if redelivery_count or ack_set:
            return self._long_header(ledger_id, entry, payload_bytes, redelivery_count, ack_set)
        return b"".join(
            (
                _pack_head(4 + command_bytes + payload_bytes, command_bytes),
                self._beginnings[entry_bytes],
                entry,
                self._end,
            )
        )

    def _long_header(
        self,
        ledger_id: int,
        entry: bytes,
        payload_bytes: int,
        redelivery_count: int,
        ack_set: Sequence[int],
    ) -> bytes:
        """A header with rare fields. An ack set has any length, so all sizes are computed anew."""
        more = b"\x18" + encode_varint(redelivery_count) if redelivery_count else b""
        if ack_set:
            more += b"".join([b"\x20" + encode_varint(word) for word in ack_set])
        more += self._epoch
        ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
        message_id = ledger + entry + self._partition
        # A message id has 33 bytes at most (three tags, three varints of ten bytes): its size is
        # one byte. The message can be longer than 127 bytes here, because of the ack set.
        message = self._consumer + b"\x12" + LAST[len(message_id)] + message_id + more
        command = b"\x08\x09\x4a" + encode_varint(len(message)) + message
        return _pack_head(4 + len(command) + payload_bytes, len(command)) + command

    def _turn_to_ledger(self, ledger_id: int) -> None:
        """Make the parts ready that headers for entries of ``ledger_id`` have in common."""
        self._ledger_id = ledger_id
        ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
        self._beginnings = []
        for entry_bytes in range(VARINT_BYTES_MAX + 1):
            message_id_bytes = len(ledger) + entry_bytes + len(self._partition)
            message_bytes = len(self._consumer) + 2 + message_id_bytes + len(self._epoch)
            self._beginnings.append(
                # One byte for each of the two sizes: without an ack set, a message has at most 57
                # bytes (consumer 11, message id 2 + 33, epoch 11).
                b"\x08\x09\x4a"
                + LAST[message_bytes]
                + self._consumer
                + b"\x12"
                + LAST[message_id_bytes]
                + ledger
            )
        # The size of a command without the bytes of the entry id.
        self._plain_bytes = len(self._beginnings[0]) + len(self._end)
