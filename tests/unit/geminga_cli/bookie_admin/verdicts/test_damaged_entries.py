"""One wrong byte is found in the entry that it is in, with that entry's place in the file."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.fakes import KEY, make_entry

from geminga_bookie.formats import entry_log_v1 as layout
from geminga_cli.bookie_admin.verdicts.damaged_entries import (
    NAMED_MAX,
    BlockDamage,
    DamagedEntry,
    damage_in,
)

LEDGER, SEED, AT = 5, 99, 1000
ENTRIES = {number: make_entry(LEDGER, number, b"payload %d" % number) for number in range(7, 13)}


def look(change: int, entries: dict[int, bytes] = ENTRIES, cut: int = 0) -> BlockDamage:
    """At a block with one byte flipped, counted from the begin of its content."""
    (block,) = layout.cut_blocks(LEDGER, entries, 1 << 30)
    whole = layout.encode_block_header(SEED, block, KEY) + b"".join(block.pieces)
    header = layout.decode_block_header("f", SEED, whole, 0)
    assert header is not None
    content = bytearray(whole[layout.BLOCK_HEADER_BYTES : len(whole) - cut])
    content[change] ^= 1
    return damage_in(header, bytes(content), AT)


def place_of(entry_id: int) -> int:
    """Where an entry begins in the content of ``ENTRIES``' block."""
    (block,) = layout.cut_blocks(LEDGER, ENTRIES, 1 << 30)
    return b"".join(block.pieces).index(ENTRIES[entry_id])


@pytest.mark.parametrize("entry_id", ENTRIES)
def test_the_entry_with_the_wrong_byte_is_named_with_its_place(entry_id: int) -> None:
    place, size_bytes = place_of(entry_id), len(ENTRIES[entry_id])
    damage = look(place + size_bytes - 1)
    assert damage.entries == [DamagedEntry(entry_id, AT + place, size_bytes)]
    assert damage.words() == f"damaged: entry {entry_id} at {AT + place}"
    assert damage.record() == [{"entry": entry_id, "offset": AT + place, "bytes": size_bytes}]


def test_an_entry_that_does_not_say_that_it_is_it_has_no_place() -> None:
    damage = look(place_of(9))
    assert damage.entries == [DamagedEntry(9)]
    assert damage.words() == "damaged: entry 9 not where it should be"


def test_a_damaged_table_is_told_from_damaged_entries() -> None:
    assert look(0) == BlockDamage([])
    assert look(0).words() == "each entry in it is sound"


def test_entries_whose_digest_cannot_be_checked_here_are_not_called_damaged() -> None:
    secret = {number: entry[:32] + b"mac" + entry[32:] for number, entry in ENTRIES.items()}
    damage = look(-1, secret)
    assert damage == BlockDamage((), is_checkable=False)
    assert damage.record() is None
    assert "only a reader of the ledger can check" in damage.words()


def test_a_block_of_one_entry_has_its_damage_there() -> None:
    assert [each.entry_id for each in look(-1, {7: ENTRIES[7]}).entries] == [7]


def test_a_block_cut_off_in_its_table_tells_nothing() -> None:
    (block,) = layout.cut_blocks(LEDGER, ENTRIES, 1 << 30)
    assert not look(0, cut=sum(map(len, block.pieces)) - 3).is_checkable


def test_many_are_counted() -> None:
    damage = BlockDamage([DamagedEntry(number) for number in range(NAMED_MAX + 3)])
    assert damage.words().endswith(" and 3 more")
    assert len(damage.record() or ()) == NAMED_MAX + 3
