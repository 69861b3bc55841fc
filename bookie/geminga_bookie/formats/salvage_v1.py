"""What can still be told apart in a block of entries whose content is not what was written.

A block is checked as a whole; each entry in it begins with its own ids and carries a digest that
its reader checks. So one wrong byte costs one entry and not the block: an entry is given out where
the table says it stands and its own ids agree, and what is wrong inside of it the reader's digest
tells. Nothing is searched for: a payload may hold anything, also what looks like an entry.
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
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES

# How an entry begins (``geminga_protocol.bookkeeper.digest`` draws all of it):
# +-----------+----------+---
# | ledger_id | entry_id | ...
# |  i64      |  i64     |
# +-----------+----------+---
_ENTRY_IDS = Struct(">qq")
_NOWHERE = -1


def presumed_header(
    block: bytes, ledger_id: int, first_entry: int, last_entry: int, count: int, size: int
) -> BlockHeader:
    """The header of a block of ``size`` bytes, whose own is damaged, by what the index says of it.

    Its master key is not known: it is all zeros.
    """
    is_dense = last_entry - first_entry == count - 1
    return BlockHeader(
        BlockKind.DENSE_ENTRIES if is_dense else BlockKind.ENTRIES,
        count,
        ledger_id,
        first_entry,
        size - BLOCK_HEADER_BYTES,
        bytes(MASTER_KEY_BYTES),
        raw_content_crc(block),
    )


def salvage_entries(header: BlockHeader, content: bytes) -> dict[int, bytes]:
    """The entries of a damaged block that are where they should be, by id.

    ``content`` may be shorter than the header says. Any other entry that the block spans may have
    been in it: only a sound block can tell that it was not.
    """
    places = salvage_places(header, content)
    return {entry_id: content[place] for entry_id, place in places.items()}


def salvage_places(header: BlockHeader, content: bytes) -> dict[int, slice]:
    """Where in the content of a damaged block its entries stand, as far as that can be told."""
    begin = table_bytes(header)
    if len(content) < begin:
        return {}
    ids = decode_ids(header, content)
    row = begin - TABLE_ROW_BYTES * header.count
    sizes: Sequence[int] = struct.unpack_from(f">{header.count}I", content, row)
    starts = _starts(header, content, ids, sizes)
    places: dict[int, slice] = {}
    ends = [*starts[1:], header.content_bytes]
    for entry_id, size, start, end in zip(ids, sizes, starts, ends, strict=True):
        if start == _NOWHERE:
            continue
        # Where the next one stands is known, also if this one's size is what is wrong.
        stop = start + size if end == _NOWHERE else end
        if start + _ENTRY_IDS.size <= stop <= len(content):
            places[entry_id] = slice(start, stop)
    return places


def _starts(
    header: BlockHeader, content: bytes, ids: Sequence[int], sizes: Sequence[int]
) -> list[int]:
    """Where each entry begins; ``_NOWHERE`` where nothing there says that it is that entry."""
    begin = table_bytes(header)
    forwards = list(accumulate(sizes, initial=begin))
    surplus = header.content_bytes - forwards.pop()
    wanted = [_ENTRY_IDS.pack(header.ledger_id, entry_id) for entry_id in ids]
    from_front = _stand_at(forwards, content, wanted)
    if not surplus:
        return from_front
    # The sizes are wrong. Up to the first wrong one they are good from the front, behind the last
    # from the end; what both find must be at the same place.
    from_end = _stand_at([start + surplus for start in forwards], content, wanted)
    front, end = _chain(from_front), _chain(from_end[::-1])[::-1]
    return [_agreed(one, other) for one, other in zip(front, end, strict=True)]


def _stand_at(places: Sequence[int], content: bytes, wanted: Sequence[bytes]) -> list[int]:
    """The places at which the entry that begins so stands, ``_NOWHERE`` for the others."""
    return [
        place if place >= 0 and content.startswith(each, place) else _NOWHERE
        for place, each in zip(places, wanted, strict=True)
    ]


def _chain(starts: list[int]) -> list[int]:
    """The places up to the first that is not known."""
    known = starts.index(_NOWHERE) if _NOWHERE in starts else len(starts)
    return starts[:known] + [_NOWHERE] * (len(starts) - known)


def _agreed(one: int, other: int) -> int:
    if _NOWHERE in (one, other):
        return max(one, other)
    return one if one == other else _NOWHERE
