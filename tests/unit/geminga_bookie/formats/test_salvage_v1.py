"""One wrong byte costs a block one entry at most, and no entry is ever given out as another."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.fakes import KEY, make_entry

from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.index_v2 import BlockLocation
from geminga_bookie.formats.salvage_v1 import presumed_header, salvage_entries
from geminga_ledger.entries.digests import payload_decoder
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.records.ledgers.ledger_metadata import DigestType

LEDGER = 5
SEED = 99
DENSE = {number: make_entry(LEDGER, number, b"payload %d" % number) for number in range(7, 13)}
SPARSE = {number: make_entry(LEDGER, number, b"payload %d" % number) for number in (7, 9, 11, 300)}
decode = payload_decoder(DigestType.CRC32C, b"")


def block_of(entries: dict[int, bytes]) -> bytes:
    (block,) = layout.cut_blocks(LEDGER, entries, 1 << 30)
    return layout.encode_block_header(SEED, block, KEY) + b"".join(block.pieces)


def salvaged(block: bytes, entries: dict[int, bytes], size: int) -> dict[int, bytes]:
    header = layout.decode_block_header("f", SEED, block, 0)
    if header is None:
        at = BlockLocation(LEDGER, min(entries), max(entries), 1, 0, size, len(entries))
        header = presumed_header(at, block)
    return salvage_entries(header, block[layout.BLOCK_HEADER_BYTES :])


def good(found: dict[int, bytes]) -> dict[int, bytes]:
    """Those that a reader would take."""
    taken: dict[int, bytes] = {}
    for entry_id, entry in found.items():
        try:
            decode(entry, 0, len(entry), LEDGER, entry_id)
        except EntryDigestMismatch:
            continue
        taken[entry_id] = entry
    return taken


@pytest.mark.parametrize("entries", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80, 0xFF])
def test_any_one_wrong_byte_costs_one_entry_at_most(entries: dict[int, bytes], flip: int) -> None:
    intact = block_of(entries)
    for offset in range(len(intact)):
        damaged = bytearray(intact)
        damaged[offset] ^= flip
        found = salvaged(bytes(damaged), entries, len(intact))
        assert set(found) <= set(entries)
        taken = good(found)
        assert taken.items() <= entries.items()
        assert len(taken) >= len(entries) - 1, offset


@pytest.mark.parametrize("entries", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_what_stands_before_the_end_of_a_torn_block_is_given_out(
    entries: dict[int, bytes],
) -> None:
    intact = block_of(entries)
    for size in range(layout.BLOCK_HEADER_BYTES, len(intact)):
        taken = good(salvaged(intact[:size], entries, len(intact)))
        assert taken.items() <= entries.items()
        missing = len(intact) - size
        tail = list(entries.values())
        lost = 0
        while missing > 0 and tail:
            missing -= len(tail.pop())
            lost += 1
        if not missing > 0:
            assert len(taken) == len(entries) - lost


def test_an_entry_within_a_payload_is_never_found_where_sizes_are_wrong() -> None:
    """The size of the first is damaged so that the second would begin inside of the first."""
    forged = make_entry(LEDGER, 1, b"forged")
    first = make_entry(LEDGER, 0, b"x" * 50 + forged)
    entries = {0: first, 1: make_entry(LEDGER, 1, b"right"), 2: make_entry(LEDGER, 2, b"last")}
    intact = block_of(entries)
    damaged = bytearray(intact)
    damaged[60:64] = first.index(forged).to_bytes(4, "big")
    taken = good(salvaged(bytes(damaged), entries, len(intact)))
    assert taken.get(1) in (None, entries[1])
    assert taken[2] == entries[2]
