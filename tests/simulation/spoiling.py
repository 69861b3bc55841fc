"""Entries that are spoilt on every bookie that has them: more than is promised to survive, so that
what is promised then can be tried. Nobody takes them for good ones."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterator
from itertools import accumulate

from geminga_bookie.formats import entry_log_v1
from geminga_bookie.formats.entry_log_v1 import TABLE_ROW_BYTES, BlockKind
from geminga_protocol.bookkeeper.digest import DIGESTED_HEADER_BYTES
from geminga_scenarios.storage import Storage

# After so long without writes everything is in an entry log, and nothing of it is replayed.
AT_REST_S = 2.0


async def spoil(storage: Storage, ledger_id: int, entry_ids: Collection[int]) -> list[int]:
    """Let bookies rest, then end them, spoil all copies of these entries, and start them again;
    which of the entries had any. Nobody may write meanwhile."""
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


def _spoil_copies(storage: Storage, ledger_id: int, entry_id: int) -> int:
    """Turn a bit of the digest over, in each copy; how many there are."""
    copies = 0
    for bookie in storage.bookies:
        for disk in bookie.devices.values():
            for path in sorted(disk.files):
                if path.endswith(entry_log_v1.SUFFIX):
                    places = _places(path, bytes(disk.files[path].content), ledger_id, entry_id)
                    for place in list(places):
                        disk.flip_bit(path, place + DIGESTED_HEADER_BYTES)
                        copies += 1
    return copies


def _places(path: str, content: bytes, ledger_id: int, entry_id: int) -> Iterator[int]:
    """Where the entry begins in an entry log, once for each time that it is there."""
    seed = entry_log_v1.decode_file_header(path, content)
    if seed is None:
        return
    offset = entry_log_v1.FILE_HEADER_BYTES
    while (header := entry_log_v1.decode_block_header(seed, content, offset)) is not None:
        begin = offset + entry_log_v1.BLOCK_HEADER_BYTES
        offset = begin + header.content_bytes
        if header.kind != BlockKind.LEDGERS and header.ledger_id == ledger_id:
            end = begin + entry_log_v1.table_bytes(header)
            table = content[begin:end]
            sizes = struct.unpack(f">{header.count}I", table[-TABLE_ROW_BYTES * header.count :])
            places = accumulate(sizes, initial=end)
            for found, place in zip(entry_log_v1.decode_ids(header, table), places, strict=False):
                if found == entry_id:
                    yield place
