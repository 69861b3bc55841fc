"""Parses ACK by hand: clients acknowledge thousands of messages in one command.

Protobuf would make three objects for every id. ``parse_ack`` reads the usual form, an ACK of whole
entries; an ACK with batch indexes, a transaction or a request id is left to
``commands.parse_command``.
"""

from __future__ import annotations

import struct

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.integers import INT64_MAX, decode_varint

# CommandAck{consumer_id=1, ack_type=2, message_id=3...} with MessageIdData{ledgerId=1, entryId=2}
# inside BaseCommand{type=ACK, ack=10}, fields in the order of their numbers:
#
# +--------------+------------+------------+-------------+------------+------------+---------
# | command size | type       | ack        | consumer_id | ack_type   | message_id | more
# |  u32         | 0x08, 0x0a | 0x52, size | 0x08, ...   | 0x10, 0..1 | see below  | ids
# +--------------+------------+------------+-------------+------------+------------+---------
#
# +------------+-----------+----------+
# | message_id | ledger id | entry id |
# | 0x1a, size | 0x08, ... | 0x10,... |
# +------------+-----------+----------+
# Sizes and ids are varints; the size of an id fits in one byte. The ids of one command mostly come
# from one ledger and have the same length, so they form a table whose columns are bytes.
ACK_HEAD = struct.Struct(">I3s")
ACK_HEAD_BYTES = 7
ACK_TYPE_AND_PART = b"\x08\x0a\x52"
INDIVIDUAL, CUMULATIVE = 0, 1

# For fewer ids protobuf is as quick.
LIKE_IDS_MIN = 16

Ids = list[tuple[int, int]]  # (ledger_id, entry_id)
AckCommand = tuple[int, bool, Ids]  # (consumer_id, is_cumulative, ids)

_read_head = ACK_HEAD.unpack_from


def parse_ack(buffer: bytes, start: int, end: int) -> AckCommand | None:
    """Parse the ACK whose frame is ``buffer[start:end]``, from the command size on.

    Returns ``(consumer_id, is_cumulative, [(ledger_id, entry_id), ...])``, with at least one id,
    in the order of the command. Returns ``None`` for everything that ``parse_command`` must read:
    another command, rare fields, ids of different lengths or ledgers, negative ids (entry -1 is
    the position before a ledger's first entry), or garbage.
    """
    # Stage 1: the head, the consumer, the type, and the first id. An index beyond the end of the
    # buffer, a varint without end or a size that does not fit means the same here as a rare field:
    # protobuf decides, and its error describes the fault.
    try:
        command_bytes, type_and_part = _read_head(buffer, start)
        if type_and_part != ACK_TYPE_AND_PART or start + 4 + command_bytes != end:
            return None
        ack_bytes = buffer[start + ACK_HEAD_BYTES]
        position = start + ACK_HEAD_BYTES + 1
        # The size of the ack has further bytes: a dozen ids make it larger than 127.
        if ack_bytes > 127:
            ack_bytes, position = decode_varint(buffer, position - 1)
        if position + ack_bytes != end or buffer[position] != 0x08:
            return None
        consumer_id, position = decode_varint(buffer, position + 1)
        # A tag is compared where it is expected and nowhere else: fields in another order, or
        # another field between them, end the attempt. So an ACK with a batch index, a transaction
        # or a request id, which stand behind the ids or inside them, never passes.
        ack_type = buffer[position + 1]
        if buffer[position] != 0x10 or ack_type > CUMULATIVE:
            return None
        id_start = position + 2
        if buffer[id_start] != 0x1A or buffer[id_start + 2] != 0x08:
            return None
        ledger_id, position = decode_varint(buffer, id_start + 3)
        if buffer[position] != 0x10:
            return None
        entry_start = position + 1
        entry_id, position = decode_varint(buffer, entry_start)
    except (IndexError, struct.error, WireError):
        return None
    # As uint64, a number this large stands for a negative one.
    if entry_id > INT64_MAX or ledger_id > INT64_MAX:
        return None
    # Stage 2: what the first id says of its own size must be true, then all others can be compared
    # with it byte by byte.
    id_bytes = position - id_start
    if buffer[id_start + 1] != id_bytes - 2:
        return None
    if position == end:
        return consumer_id, ack_type == CUMULATIVE, [(ledger_id, entry_id)]
    ids = _read_columns(buffer[id_start:end], id_bytes, entry_start - id_start, ledger_id)
    return None if ids is None else (consumer_id, ack_type == CUMULATIVE, ids)


def _read_columns(ids: bytes, id_bytes: int, entry_offset: int, ledger_id: int) -> Ids | None:
    """Read ids of ``id_bytes`` each, all of ``ledger_id``; None where ``ids`` is not made so.

    Reads one byte of every id at a time: slicing with a step is done in C. The entry id begins
    ``entry_offset`` bytes behind the beginning of each id.
    """
    # Ids of equal length fill the rest exactly; where they do not, their lengths differ.
    count, odd_bytes = divmod(len(ids), id_bytes)
    if odd_bytes or count < LIKE_IDS_MIN:
        return None
    # Tags, sizes and the ledger id must be those of the first id.
    for offset in range(entry_offset):
        if ids[offset::id_bytes] != ids[offset : offset + 1] * count:
            return None
    # The bytes of the entry ids: all but the last of each must announce a further byte, or one of
    # the ids is shorter than the first.
    columns = [ids[offset::id_bytes] for offset in range(entry_offset, id_bytes)]
    if max(columns[-1]) > 127 or any(min(column) < 128 for column in columns[:-1]):
        return None
    # The constants take off the continuation bits: 128 for the first byte, 128 << 7 for the second.
    match columns:
        # Entry ids of one, two and three bytes, up to 2,097,151. Larger ones are rare, because a
        # broker begins a new ledger long before.
        case [lows, mids, highs]:
            parts = zip(lows, mids, highs, strict=True)
            return [
                (ledger_id, low + (mid << 7) + (high << 14) - 16512) for low, mid, high in parts
            ]
        case [lows, highs]:
            pairs = zip(lows, highs, strict=True)
            return [(ledger_id, low + (high << 7) - 128) for low, high in pairs]
        case [lows]:
            return [(ledger_id, low) for low in lows]
        case _:
            return None
