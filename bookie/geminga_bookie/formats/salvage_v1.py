"""What can be saved of a block of entries that is damaged.

A block is checked as a whole, but each entry in it begins with its own ids and carries a digest
that its reader checks. So one wrong byte costs one entry and not the block. An entry is given out
where the block's table says it stands and its own ids agree; whether its payload is right, the
reader's digest tells. Entries are not searched for: a payload may hold anything, also what looks
like an entry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct

from geminga_bookie.formats.entry_log_v1 import (
    BLOCK_HEADER_BYTES,
    TABLE_ROW_BYTES,
    BlockHeader,
    BlockKind,
    decode_ids,
    raw_content_crc,
    table_bytes,
)
from geminga_bookie.formats.index_v2 import BlockLocation
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES

# How an entry begins (``geminga_protocol.bookkeeper.digest`` draws all of it):
# +-----------+----------+---
# | ledger_id | entry_id | ...
# |  i64      |  i64     |
# +-----------+----------+---
_ENTRY_IDS = Struct(">qq")
# Less than any place, so that ``max`` prefers a known one.
_NOWHERE = -1


def presumed_header(at: BlockLocation, block: bytes) -> BlockHeader:
    """The header of a block whose own is damaged, by what the index says of it.

    Its master key is not known, and all zeros here.
    """
    return BlockHeader(
        BlockKind.DENSE_ENTRIES if at.is_dense else BlockKind.ENTRIES,
        at.entries,
        at.ledger_id,
        at.first_entry,
        at.size - BLOCK_HEADER_BYTES,
        bytes(MASTER_KEY_BYTES),
        raw_content_crc(block),
    )


def salvage_entries(header: BlockHeader, content: bytes) -> dict[int, bytes]:
    """The entries of a damaged block that are where they should be, by id.

    ``content`` may be shorter than the header says. An entry that is missing here may have been in
    the block all the same: only a sound block tells that it was not.
    """
    places = salvage_places(header, content)
    return {entry_id: content[place] for entry_id, place in places.items()}


def salvage_places(header: BlockHeader, content: bytes) -> dict[int, slice]:
    """Where in the content of a damaged block its entries stand, as far as that can be told."""
    # The table is read first, damaged or not. Each entry is then looked for, by its ids, where the
    # table says it stands, and cut out up to the next one.
    begin = table_bytes(header)
    if len(content) < begin:
        return {}
    # A wrong id in the table finds nothing: the entry at its place says another one.
    ids = decode_ids(header, content)
    # The sizes are the last row of the table for each entry.
    row = begin - TABLE_ROW_BYTES * header.count
    sizes: Sequence[int] = struct.unpack_from(f">{header.count}I", content, row)
    starts = _starts(header, content, ids, sizes)
    places: dict[int, slice] = {}
    # An entry ends where the next one begins, known or not; the last one where the content ends.
    ends = [*starts[1:], header.content_bytes]
    for entry_id, size, start, end in zip(ids, sizes, starts, ends, strict=True):
        if start == _NOWHERE:
            continue
        # Where the next entry begins is the better end: this one's size may be what is wrong.
        stop = start + size if end == _NOWHERE else end
        # The entry must have room for its ids, and must not be cut off by the end of the block.
        if start + _ENTRY_IDS.size <= stop <= len(content):
            places[entry_id] = slice(start, stop)
    return places


def _starts(
    header: BlockHeader, content: bytes, ids: Sequence[int], sizes: Sequence[int]
) -> list[int]:
    """Where each entry begins; ``_NOWHERE`` where its ids are not found at its place."""
    begin = table_bytes(header)
    forwards = list(accumulate(sizes, initial=begin))
    # 0 unless a size in the table is wrong.
    surplus = header.content_bytes - forwards.pop()
    wanted = [_ENTRY_IDS.pack(header.ledger_id, entry_id) for entry_id in ids]
    from_front = _stand_at(forwards, content, wanted)
    if not surplus:
        return from_front
    # Up to the first wrong size, places counted from the front are right; behind the last wrong
    # size, places counted from the end are. Where both know a place, they must agree.
    # One wrong size, of entry 2, shifts all places behind it by the surplus:
    #
    #     table:      | 0 | 1 | 2 - - | 3 | 4 |
    #     content:    | 0 | 1 | 2 | 3 | 4 |
    #     from front:   ok  ok  ok   .   .         the size of 2 is not needed to find 2 itself
    #     from end:     .   .   .    ok  ok
    from_end = _stand_at([start + surplus for start in forwards], content, wanted)
    # Behind a wrong size a place that fits can only be chance, such as an entry within a payload.
    front, end = _chain(from_front), _chain(from_end[::-1])[::-1]
    return [
        max(one, other) if _NOWHERE in (one, other) else one if one == other else _NOWHERE
        for one, other in zip(front, end, strict=True)
    ]


def _stand_at(places: Sequence[int], content: bytes, wanted: Sequence[bytes]) -> list[int]:
    """The places at which the wanted bytes are found; ``_NOWHERE`` for the others."""
    return [
        place if place >= 0 and content.startswith(each, place) else _NOWHERE
        for place, each in zip(places, wanted, strict=True)
    ]


def _chain(starts: list[int]) -> list[int]:
    """The places up to the first unknown one; ``_NOWHERE`` from there on."""
    known = starts.index(_NOWHERE) if _NOWHERE in starts else len(starts)
    return starts[:known] + [_NOWHERE] * (len(starts) - known)
