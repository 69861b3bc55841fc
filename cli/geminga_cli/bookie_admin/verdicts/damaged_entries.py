"""Which entries of a damaged block are damaged, and where in the file. Pure.

A block's checksum tells that something is wrong with it, an entry's own digest what. CRC32C and
CRC32 can be checked by anybody; of a ledger with another kind only who knows its password can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.salvage_v1 import salvage_places
from geminga_ledger.digests import entry_decoder
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.records.ledger_metadata import DigestType

# Damaged entries that are named in words; all of them are facts.
NAMED_MAX = 10
_CHECKS = [entry_decoder(each, b"") for each in (DigestType.CRC32C, DigestType.CRC32)]


@dataclass(frozen=True, slots=True)
class DamagedEntry:
    """``offset`` and ``size_bytes`` say where it stands in the file, None where that is lost."""

    entry_id: int
    offset: int | None = None
    size_bytes: int | None = None

    def words(self) -> str:
        """For people."""
        where = "not where it should be" if self.offset is None else f"at {self.offset}"
        return f"entry {self.entry_id} {where}"


@dataclass(frozen=True, slots=True)
class BlockDamage:
    """What is known of a damaged block; nothing where ``is_checkable`` is False."""

    entries: Sequence[DamagedEntry]
    is_checkable: bool = True

    def words(self) -> str:
        """For people."""
        if not self.is_checkable:
            return "which entries are damaged only their reader can tell"
        if not self.entries:
            return "each entry in it is sound"
        more = f" and {len(self.entries) - NAMED_MAX} more" if len(self.entries) > NAMED_MAX else ""
        return f"damaged: {', '.join(each.words() for each in self.entries[:NAMED_MAX])}{more}"

    def record(self) -> list[dict[str, object]] | None:
        """For programs; None where it is not known."""
        if not self.is_checkable:
            return None
        return [
            {"entry": each.entry_id, "offset": each.offset, "bytes": each.size_bytes}
            for each in self.entries
        ]


def damage_in(header: layout.BlockHeader, content: bytes, content_offset: int) -> BlockDamage:
    """Look at each entry of a block whose ``content``, at that place of the file, is damaged."""
    if len(content) < layout.table_bytes(header):
        return BlockDamage((), is_checkable=False)
    ids = layout.decode_ids(header, content)
    places = salvage_places(header, content)
    damaged = [
        _damaged(entry_id, places.get(entry_id), content_offset)
        for entry_id in ids
        if entry_id not in places or not _is_sound(header.ledger_id, entry_id, content, places)
    ]
    # Where no entry fits, it is rather the digest that is another one.
    is_checkable = len(damaged) < len(ids) or len(ids) == 1
    return BlockDamage(damaged if is_checkable else (), is_checkable=is_checkable)


def _damaged(entry_id: int, place: slice | None, content_offset: int) -> DamagedEntry:
    if place is None:
        return DamagedEntry(entry_id)
    return DamagedEntry(entry_id, content_offset + place.start, place.stop - place.start)


def _is_sound(ledger_id: int, entry_id: int, content: bytes, places: dict[int, slice]) -> bool:
    place = places[entry_id]
    for check in _CHECKS:
        try:
            check(content, place.start, place.stop, ledger_id, entry_id)
        except EntryDigestMismatch:
            continue
        return True
    return False
