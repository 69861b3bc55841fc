"""ACK by hand: clients acknowledge thousands of messages in one command, all ids much alike.

Protobuf would make three objects for every id. What is not plain (batch indexes, transactions,
receipts asked for) is left to ``commands.parse_command``.
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
ACK_HEAD = struct.Struct(">I3s")
ACK_HEAD_BYTES = 7
ACK_TYPE_AND_PART = b"\x08\x0a\x52"
INDIVIDUAL, CUMULATIVE = 0, 1

# For fewer ids than this protobuf is as quick.
LIKE_IDS_MIN = 16

Ids = list[tuple[int, int]]  # (ledger_id, entry_id)
AckCommand = tuple[int, bool, Ids]  # (consumer_id, is_cumulative, ids)

_read_head = ACK_HEAD.unpack_from


def parse_ack(buffer: bytes, start: int, end: int) -> AckCommand | None:
    """Parse the ACK whose frame is ``buffer[start:end]``, from the command size on.

    Returns ``(consumer_id, is_cumulative, [(ledger_id, entry_id), ...])``, ids in the order of
    the command, at least one. Returns ``None`` for anything else than a plain ACK, be it another
    command, a rare field, ids of unlike form, negative ones (entry -1 is what lies before a
    ledger's first), or garbage: ``parse_command`` then tells.
    """
    try:
        command_bytes, type_and_part = _read_head(buffer, start)
        if type_and_part != ACK_TYPE_AND_PART or start + 4 + command_bytes != end:
            return None
        ack_bytes = buffer[start + ACK_HEAD_BYTES]
        position = start + ACK_HEAD_BYTES + 1
        if ack_bytes > 127:
            ack_bytes, position = decode_varint(buffer, position - 1)
        if position + ack_bytes != end or buffer[position] != 0x08:
            return None
        consumer_id, position = decode_varint(buffer, position + 1)
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
    if entry_id > INT64_MAX or ledger_id > INT64_MAX:
        return None
    id_bytes = position - id_start
    if buffer[id_start + 1] != id_bytes - 2:
        return None
    if position == end:
        return consumer_id, ack_type == CUMULATIVE, [(ledger_id, entry_id)]
    ids = _like_ids(buffer[id_start:end], id_bytes, entry_start - id_start, ledger_id)
    return None if ids is None else (consumer_id, ack_type == CUMULATIVE, ids)


def _like_ids(ids: bytes, id_bytes: int, entry_offset: int, ledger_id: int) -> Ids | None:
    """The ids of equal length and of one ledger that ``ids`` is made of; ``None`` if it is not.

    Reads them in columns, one byte of every id at a time.
    """
    count, odd_bytes = divmod(len(ids), id_bytes)
    if odd_bytes or count < LIKE_IDS_MIN:
        return None
    for offset in range(entry_offset):
        if ids[offset::id_bytes] != ids[offset : offset + 1] * count:
            return None
    columns = [ids[offset::id_bytes] for offset in range(entry_offset, id_bytes)]
    if max(columns[-1]) > 127 or any(min(column) < 128 for column in columns[:-1]):
        return None
    match columns:
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
