"""An entry log is told block by block, and past whatever is damaged in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY, make_entry
from tests.unit.geminga_cli.bookie_admin.files.test_journal import Bytes, wrong

from geminga_bookie.formats import entry_log_v1 as layout
from geminga_cli.bookie_admin.files.entry_log import entry_log_findings
from geminga_cli.bookie_admin.verdicts.finding import Finding

HEADER = layout.encode_file_header(3, 1000)
SEED = int.from_bytes(HEADER[-4:], "big")


def block(ledger_id: int, entries: dict[int, bytes]) -> bytes:
    (made,) = layout.cut_blocks(ledger_id, entries, 1 << 20)
    return layout.encode_block_header(SEED, made, KEY) + b"".join(made.pieces)


BLOCKS = [
    block(1, {0: b"a" * 50, 1: b"b" * 50}),
    block(2, {5: b"c", 9: b"d"}),
    layout.encode_ledgers(SEED, [layout.LedgerRecord(1, KEY, is_fenced=True, last_entry=1)]),
]
WHOLE = HEADER + b"".join(BLOCKS)
SECOND = len(HEADER) + len(BLOCKS[0])
THIRD = SECOND + len(BLOCKS[1])


def look(content: bytes, ledger_id: int | None = None) -> list[Finding]:
    return list(entry_log_findings("a/000000000003.entries", Bytes(content), ledger_id))


def test_a_sound_log_is_told_block_by_block() -> None:
    found = look(WHOLE)
    assert [each.words for each in found] == [
        "entry log 3",
        "ledger 1: entries 0-1, 108 bytes",
        "ledger 2: entries 5, 9, 18 bytes",
        "1 fenced",
    ]
    assert [each.offset for each in found] == [0, 32, SECOND, THIRD]
    assert wrong(found) == []


def test_a_flipped_byte_names_ledger_and_entries() -> None:
    damaged = bytearray(WHOLE)
    damaged[SECOND - 1] ^= 1
    found = look(bytes(damaged), ledger_id=2)
    assert wrong(found) == [(32, "block")]
    assert found[1].words == (
        "ledger 1: 2 entries from 0 on: the content does not fit its checksum; "
        "only a reader of the ledger can check which entries are damaged"
    )
    assert [each.offset for each in found] == [0, 32, SECOND]


def test_a_flipped_byte_is_located_in_its_entry() -> None:
    entries = {number: make_entry(1, number, b"x" * 50) for number in range(3)}
    damaged = bytearray(HEADER + block(1, entries))
    damaged[-1] ^= 1
    found = look(bytes(damaged))
    place = len(damaged) - len(entries[2])
    assert found[1].words.endswith(f"; damaged: entry 2 at {place}")
    assert found[1].facts["damagedEntries"] == [
        {"entry": 2, "offset": place, "bytes": len(entries[2])}
    ]


def test_a_damaged_block_header_is_passed_over() -> None:
    damaged = bytearray(WHOLE)
    damaged[SECOND + 20] ^= 1
    found = look(bytes(damaged))
    assert wrong(found) == [(SECOND, "damage")]
    assert [each.offset for each in found] == [0, 32, SECOND, THIRD]


def test_a_torn_end_and_a_damaged_header_are_told() -> None:
    assert wrong(look(WHOLE[:-1])) == [(THIRD, "ledgers")]
    assert wrong(look(WHOLE + b"xyz")) == [(len(WHOLE), "damage")]
    damaged = bytearray(WHOLE)
    damaged[15] ^= 1
    assert wrong(look(bytes(damaged))) == [(0, "header")]


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.integers(0, len(WHOLE)))
def test_no_damage_ends_it(place: int, change: int, end: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    for content in (bytes(damaged), bytes(damaged[:end])):
        offsets = [each.offset for each in look(content)]
        assert offsets == sorted(offsets)
    assert wrong(look(bytes(damaged)))
