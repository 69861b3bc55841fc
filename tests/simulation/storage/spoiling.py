"""Entries that are spoilt on bookies that have them: on one, or on every one, which is more than is
promised to survive, so that what is promised then can be tried. No reader takes them for good."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from geminga_bookie.formats import entry_log_v1
from geminga_bookie.formats.entry_log_v1 import TABLE_ROW_BYTES, BlockKind
from geminga_protocol.bookkeeper.digest import DIGESTED_HEADER_BYTES
from geminga_scenarios.storage import Storage
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.host import Host

# After so long without writes everything is in an entry log, and nothing of it is replayed.
AT_REST_S = 2.0
# More than an entry's ids, and less than what stands before its payload.
SHORT_ENTRY_BYTES = 20


async def spoil(storage: Storage, ledger_id: int, entry_ids: Collection[int]) -> list[int]:
    """Let bookies rest, then end them, spoil all copies of these entries, and start them again;
    which of the entries had any. Nothing may be written meanwhile."""
    await asyncio.sleep(AT_REST_S)
    running = [each for each in storage.bookies if each.is_running]
    for bookie in running:
        bookie.kill()
    spoilt = [each for each in entry_ids if _spoil_copies(storage, ledger_id, each)]
    storage.world.note(f"spoilt on all disks: {spoilt} of ledger {ledger_id}")
    for bookie in running:
        if not bookie.is_running:
            bookie.restart()
    return spoilt


def spoil_last_entry(bookie: Host, ledger_id: int, last: int) -> bool:
    """Spoil a bookie's copy of the last entry that it has of a ledger, ``last`` or one before;
    whether it has any. The bookie is down."""
    return any(_spoil_copies_of(bookie, ledger_id, each) for each in range(last, -1, -1))


def cut_entries_short(disk: SimulatedDisk, path: str, chance: Random) -> bool:
    """In each block of an entry log that has three, spoil the size of an entry and the ids of the
    one behind it, so that nothing tells where that begins; whether there is such a block. The last
    entry stays as it is."""
    content = disk.files[path].content
    blocks = [each for each in _blocks(path, bytes(content)) if each.sizes[2:]]
    for block in blocks:
        index = chance.randrange(len(block.sizes) - 2)
        row = block.sizes_begin + TABLE_ROW_BYTES * index
        content[row : row + TABLE_ROW_BYTES] = SHORT_ENTRY_BYTES.to_bytes(TABLE_ROW_BYTES, "big")
        disk.flip_bit(path, block.places[index + 1])
    return bool(blocks)


def _spoil_copies(storage: Storage, ledger_id: int, entry_id: int) -> int:
    return sum(_spoil_copies_of(bookie, ledger_id, entry_id) for bookie in storage.bookies)


def _spoil_copies_of(bookie: Host, ledger_id: int, entry_id: int) -> int:
    """Turn a bit of the digest over, in each copy; how many there are."""
    copies = 0
    for disk in bookie.devices.values():
        for path in sorted(disk.files):
            if path.endswith(entry_log_v1.SUFFIX):
                for block in list(_blocks(path, bytes(disk.files[path].content))):
                    if block.ledger_id == ledger_id and entry_id in block.entry_ids:
                        place = block.places[block.entry_ids.index(entry_id)]
                        disk.flip_bit(path, place + DIGESTED_HEADER_BYTES)
                        copies += 1
    return copies


@dataclass(frozen=True, slots=True)
class _Block:
    """The entries of one block of an entry log: where their sizes stand, and they themselves."""

    ledger_id: int
    entry_ids: Sequence[int]
    sizes: Sequence[int]
    sizes_begin: int
    places: Sequence[int]


def _blocks(path: str, content: bytes) -> Iterator[_Block]:
    seed = entry_log_v1.decode_file_header(path, content)
    if seed is None:
        return
    offset = entry_log_v1.FILE_HEADER_BYTES
    while (header := entry_log_v1.decode_block_header(path, seed, content, offset)) is not None:
        begin = offset + entry_log_v1.BLOCK_HEADER_BYTES
        offset = begin + header.content_bytes
        if header.kind != BlockKind.LEDGERS and offset <= len(content):
            end = begin + entry_log_v1.table_bytes(header)
            sizes_begin = end - TABLE_ROW_BYTES * header.count
            sizes = struct.unpack(f">{header.count}I", content[sizes_begin:end])
            entry_ids = entry_log_v1.decode_ids(header, content[begin:end])
            places = list(accumulate(sizes, initial=end))
            yield _Block(header.ledger_id, entry_ids, sizes, sizes_begin, places)
