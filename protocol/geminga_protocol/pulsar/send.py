"""Parses SEND and writes SEND_RECEIPT by hand: one of each for every message that is published.

HOT. Protobuf's objects cost more than the commands' bytes: parsing takes 0.54 us instead of 1.4, a
receipt 0.47 us instead of 2.0 (CPython 3.11, upb). Rare fields (transactions, markers, message ids
of replicators) are left to ``commands.parse_command``.
"""

from __future__ import annotations

import struct
from struct import Struct

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.integers import (
    LAST,
    LOW_14,
    VARINT_BYTES_MAX,
    decode_varint,
    encode_varint,
)

# CommandSend{producer_id=1, sequence_id=2, num_messages=3, highest_sequence_id=6, is_chunk=7}
# inside BaseCommand{type=SEND, send=6}, the way every known client writes it: fields in the order
# of their numbers, the command shorter than 128 bytes, so that its size is one byte.
#
# +--------------+------------+------------+--------------+--------------+-------
# | command size | type       | send       | producer_id  | sequence_id  | more
# |  u32         | 0x08, SEND | 0x32, size | 0x08, varint | 0x10, varint | fields
# +--------------+------------+------------+--------------+--------------+-------
# Type, tag and size of ``send`` are read as one u32, the head word, right behind the command size.
SEND_HEAD = Struct(">II")
SEND_HEAD_WORD = 0x08_06_32_00  # the size of CommandSend is to be added
SEND_HEAD_WORD_BYTES = 4
# Tags of varint fields: field number * 8.
NUM_MESSAGES_TAG = 0x18
HIGHEST_SEQUENCE_ID_TAG = 0x30
IS_CHUNK_TAG = 0x38
# num_messages is an int32; as a varint it may say more.
INT32_MAX = 0x7FFF_FFFF

# (producer_id, sequence_id, num_messages, highest_sequence_id, is_chunk, payload_start): a plain
# tuple, which the caller unpacks at once; making a named one would take longer than the parsing.
SendCommand = tuple[int, int, int, int, bool, int]

_read_head = SEND_HEAD.unpack_from


def parse_send(buffer: bytes, start: int, end: int) -> SendCommand | None:
    """Parse the SEND whose frame is ``buffer[start:end]``, from the command size on.

    Returns ``(producer_id, sequence_id, num_messages, highest_sequence_id, is_chunk,
    payload_start)``: absent fields have their defaults (1 message, highest sequence id 0), and the
    payload reaches from ``payload_start`` to ``end``. Returns ``None`` for everything that
    ``parse_command`` must read: another command, a SEND with rare fields, or garbage.
    """
    try:
        command_bytes, head = _read_head(buffer, start)
        # Nothing has been checked yet: ``payload_start`` may lie anywhere, until it was compared
        # with ``end``.
        payload_start: int = start + 4 + command_bytes
        # One comparison checks type, tag and size: CommandSend fills the command behind the head.
        # The fields that are read here take less than 128 bytes together, so a command whose size
        # takes two bytes fails below.
        if (
            head != SEND_HEAD_WORD - SEND_HEAD_WORD_BYTES + command_bytes
            or payload_start > end
            or buffer[start + 8] != 0x08
        ):
            return None
        # From here on the command is a SEND of one-byte size whose first field is the producer id.
        # A byte read beyond the command is noticed at the end, where ``position`` must meet
        # ``payload_start``.
        producer_id = buffer[start + 9]
        position = start + 10
        if producer_id > 127:
            producer_id, position = decode_varint(buffer, start + 9)
        if buffer[position] != 0x10:
            return None
        sequence_id = buffer[position + 1]
        position += 2
        # Up to three bytes are read in line, enough for the first 2 million messages of a producer.
        # Each addition also takes off the continuation bit of the byte before: 128, 128 << 7.
        if sequence_id > 127:
            byte = buffer[position]
            position += 1
            sequence_id += (byte << 7) - 128
            if byte > 127:
                byte = buffer[position]
                position += 1
                sequence_id += (byte << 14) - 16384
                if byte > 127:
                    sequence_id, position = decode_varint(buffer, position - 3)
        # The usual SEND of a message sent alone ends here: two fields, and the rest have their
        # defaults.
        if position == payload_start:
            return producer_id, sequence_id, 1, 0, False, payload_start
        return _parse_more(buffer, position, payload_start, producer_id, sequence_id)
    except (IndexError, struct.error, WireError):
        return None


def _parse_more(
    buffer: bytes, position: int, payload_start: int, producer_id: int, sequence_id: int
) -> SendCommand | None:
    """Parse the fields behind the sequence id, which batches and chunks have; None as above."""
    num_messages, highest_sequence_id, is_chunk = 1, 0, False
    previous_tag = 0
    while position < payload_start:
        tag = buffer[position]
        # Rising tags are the usual order; repeated fields and another order are protobuf's to
        # merge.
        if tag <= previous_tag:
            return None
        previous_tag = tag
        number = buffer[position + 1]
        position += 2
        if number > 127:
            number, position = decode_varint(buffer, position - 1)
        # A larger number is left to protobuf, which makes an int32 of it.
        if tag == NUM_MESSAGES_TAG and number <= INT32_MAX:
            num_messages = number
        elif tag == HIGHEST_SEQUENCE_ID_TAG:
            highest_sequence_id = number
        elif tag == IS_CHUNK_TAG:
            is_chunk = number != 0
        else:
            return None
    # The last varint may have reached into the payload: then the command's size is wrong.
    if position != payload_start:
        return None
    return producer_id, sequence_id, num_messages, highest_sequence_id, is_chunk, payload_start


def encode_send(
    producer_id: int,
    sequence_id: int,
    payload_bytes: int,
    *,
    num_messages: int = 1,
    highest_sequence_id: int = 0,
    is_chunk: bool = False,
) -> bytes:
    """The frame of a SEND without its payload of ``payload_bytes`` bytes, which must follow it."""
    # Tags: 0x08 producer_id, 0x10 sequence_id, 0x18 num_messages, 0x30 highest_sequence_id, 0x38
    # is_chunk.
    send = b"\x08" + encode_varint(producer_id) + b"\x10" + encode_varint(sequence_id)
    # Fields with their default value are left out, as Java's client does.
    if num_messages != 1:
        send += b"\x18" + encode_varint(num_messages)
    if highest_sequence_id:
        send += b"\x30" + encode_varint(highest_sequence_id)
    if is_chunk:
        send += b"\x38\x01"
    command_bytes = SEND_HEAD_WORD_BYTES + len(send)
    return (
        FRAME_HEAD.pack(4 + command_bytes + payload_bytes, command_bytes)
        + b"\x08\x06\x32"
        # The fields take 46 bytes at most (four tags, four varints of up to ten bytes, two bytes of
        # ``is_chunk``), so the size is one byte.
        + LAST[len(send)]
        + send
    )


# CommandSendReceipt{producer_id=1, sequence_id=2, message_id=3, highest_sequence_id=4} with
# MessageIdData{ledgerId=1, entryId=2} inside BaseCommand{type=SEND_RECEIPT, send_receipt=7},
# byte for byte as upstream's broker writes it: with the highest sequence id, even where it is 0.
#
# +------------+--------------+------------+------------+-------------+-------------+-------
# | total size | command size | type       | receipt    | producer_id | sequence_id | more
# |  u32       |  u32         | 0x08, 0x07 | 0x3a, size | 0x08, ...   | 0x10, ...   | fields
# +------------+--------------+------------+------------+-------------+-------------+-------
FRAME_HEAD = Struct(">II")
NO_HIGHEST_SEQUENCE_ID = b"\x20\x00"


class ReceiptEncoder:
    """Writes the receipts of one producer and keeps their unchanging parts ready.

    Messages of one producer go to the same ledger for a long time, so from one receipt to the next
    only two varints change, the sequence id and the entry id. The sizes that stand before them
    depend on their lengths; the bytes before each are therefore kept for every possible length.
    """

    __slots__ = ("_beginnings", "_ledger_id", "_middles", "_producer")

    def __init__(self, producer_id: int) -> None:
        # The field producer_id, and the tag of the sequence id.
        self._producer = b"\x08" + encode_varint(producer_id) + b"\x10"
        # ``_ledger_id``, ``_middles`` and ``_beginnings`` change together, in ``_turn_to_ledger``
        # only.
        self._ledger_id = 0
        self._turn_to_ledger(0)

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
    ) -> bytes:
        """The whole SEND_RECEIPT frame; ids are 64-bit numbers, -1 where there is none."""
        if ledger_id != self._ledger_id:
            self._turn_to_ledger(ledger_id)
        # Varints of three bytes, the most frequent length, are made in line: one call of
        # ``encode_varint`` would take as long as all the rest.
        if 16384 <= sequence_id < 2097152:
            sequence = LOW_14[sequence_id & 16383] + LAST[sequence_id >> 14]
        else:
            sequence = encode_varint(sequence_id)
        if 16384 <= entry_id < 2097152:
            entry = LOW_14[entry_id & 16383] + LAST[entry_id >> 14]
        else:
            entry = encode_varint(entry_id)
        entry_bytes = len(entry)
        highest = NO_HIGHEST_SEQUENCE_ID
        changing_bytes = len(sequence) + entry_bytes
        if highest_sequence_id:
            highest = b"\x20" + encode_varint(highest_sequence_id)
            changing_bytes += len(highest) - len(NO_HIGHEST_SEQUENCE_ID)
        return b"".join(
            (
                self._beginnings[changing_bytes],
                sequence,
                self._middles[entry_bytes],
                entry,
                highest,
            )
        )

    def _turn_to_ledger(self, ledger_id: int) -> None:
        """Make the parts ready that receipts for entries of ``ledger_id`` have in common."""
        ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
        self._ledger_id = ledger_id
        # Between sequence id and entry id, by the length of the entry id: tag and size of the
        # message id, the ledger id, the tag of the entry id.
        self._middles = [
            b"\x1a" + LAST[len(ledger) + entry_bytes] + ledger
            for entry_bytes in range(VARINT_BYTES_MAX + 1)
        ]
        constant_bytes = len(self._producer) + len(self._middles[0]) + len(NO_HIGHEST_SEQUENCE_ID)
        # Up to the sequence id, by the joint length of what changes: sequence id, entry id, and the
        # bytes by which a highest sequence id is longer than the usual 0, together 29 at most.
        self._beginnings = []
        for changing_bytes in range(3 * VARINT_BYTES_MAX):
            receipt_bytes = constant_bytes + changing_bytes
            # A receipt has at most 57 bytes (28 that do not change, 29 that do): one byte of size.
            command = b"\x08\x07\x3a" + LAST[receipt_bytes]
            command_bytes = len(command) + receipt_bytes
            head = FRAME_HEAD.pack(4 + command_bytes, command_bytes)
            self._beginnings.append(head + command + self._producer)


def encode_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
) -> bytes:
    """One SEND_RECEIPT frame; keep a ``ReceiptEncoder`` where a producer gets many."""
    return ReceiptEncoder(producer_id).receipt(
        sequence_id, highest_sequence_id, ledger_id, entry_id
    )
