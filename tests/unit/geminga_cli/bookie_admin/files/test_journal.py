"""A journal is told whole, and past whatever is damaged in it, with the place and the fault."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY, make_add

from geminga_bookie.errors import UnknownFormat
from geminga_bookie.formats import journal_v1 as layout
from geminga_cli.bookie_admin.files.journal import journal_findings
from geminga_cli.bookie_admin.verdicts.finding import Finding


class Bytes:
    """``Content`` in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)

    def read(self, offset: int, length: int) -> bytes:
        """As a file."""
        return self.content[offset : offset + length]


HEADER = layout.encode_file_header(7, 1000)
SEED = int.from_bytes(HEADER[-4:], "big")


def group(number: int, body: bytes) -> bytes:
    return layout.encode_group_header(SEED, number, len(body), crc32c(body)) + body


def adds(*entries: tuple[int, int]) -> bytes:
    content = b"".join(make_add(ledger, entry) for ledger, entry in entries)
    return layout.encode_adds_header(len(content)) + content


GROUPS = [
    group(4, adds((1, 0), (1, 1), (2, 5))),
    group(5, layout.encode_mark(layout.Fence(2, KEY))),
    group(6, adds((1, 2)) + layout.encode_mark(layout.ExplicitLac(1, KEY, b"lac"))),
]
WHOLE = HEADER + b"".join(GROUPS)
SECOND = len(HEADER) + len(GROUPS[0])
THIRD = SECOND + len(GROUPS[1])


def look(content: bytes, ledger_id: int | None = None) -> list[Finding]:
    return list(journal_findings("j", Bytes(content), ledger_id))


def wrong(findings: list[Finding]) -> list[tuple[int, str]]:
    return [(each.offset, each.kind) for each in findings if each.is_wrong]


def test_a_sound_journal_is_told_group_by_group() -> None:
    found = look(WHOLE)
    assert [each.words for each in found] == [
        "journal 7, made at 1000 ms",
        "4: ledger 1: entries 0-1; ledger 2: entries 5",
        "5: ledger 2: fenced",
        "6: ledger 1: entries 2; ledger 1: explicit last-add-confirmed",
    ]
    assert [each.offset for each in found] == [0, 32, SECOND, THIRD]
    assert wrong(found) == []
    assert found[1].record("j")["entries"] == {"1": [0, 1], "2": [5]}


def test_one_ledger_can_be_looked_for() -> None:
    assert [each.offset for each in look(WHOLE, 2)] == [0, 32, SECOND]
    assert [each.offset for each in look(WHOLE, 9)] == [0]


def test_reserved_zeros_are_the_end_and_no_fault() -> None:
    found = look(WHOLE + bytes(1000))
    assert (found[-1].kind, wrong(found)) == ("end", [])


def test_a_damaged_group_is_named_and_the_next_found() -> None:
    damaged = bytearray(WHOLE)
    damaged[SECOND] ^= 1  # its magic
    found = look(bytes(damaged))
    assert wrong(found) == [(SECOND, "damage")]
    assert found[-1].words.startswith("6: ")
    damaged = bytearray(WHOLE)
    damaged[SECOND - 1] ^= 1  # the last byte of the first group's body
    found = look(bytes(damaged))
    assert wrong(found) == [(32, "damage")]
    assert "do not fit their checksum" in found[1].words
    assert len(found) == 4


def test_a_torn_end_is_told() -> None:
    found = look(WHOLE[:-3])
    assert wrong(found) == [(THIRD, "torn")]
    assert "3 bytes of it are missing" in found[-1].words
    assert wrong(look(WHOLE + b"garbage")) == [(len(WHOLE), "torn")]


def test_a_gap_in_the_numbers_is_told() -> None:
    assert wrong(look(HEADER + GROUPS[0] + GROUPS[2])) == [(SECOND, "group")]


def test_a_damaged_header_leaves_the_groups_readable_where_its_seed_is_sound() -> None:
    damaged = bytearray(WHOLE)
    damaged[9] ^= 1
    found = look(bytes(damaged))
    assert wrong(found) == [(0, "header")]
    assert len(found) == 4
    assert wrong(look(HEADER[:10])) == [(0, "header")]


def test_another_kind_of_file_is_refused() -> None:
    other = bytearray(HEADER[:-4])
    other[0:8] = b"GMNGENTR"
    with pytest.raises(UnknownFormat):
        look(bytes(other) + int(crc32c(bytes(other))).to_bytes(4, "big"))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.integers(0, len(WHOLE)))
def test_no_damage_ends_it(place: int, change: int, end: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    for content in (bytes(damaged), bytes(damaged[:end])):
        found = look(content)
        offsets = [each.offset for each in found]
        assert offsets == sorted(offsets)
    assert wrong(look(bytes(damaged)))
