"""Which entries of a damaged block are damaged, and where they are in the file. Pure.

A block's checksum shows that something in it is wrong; the digest of each entry shows what. CRC32C
and CRC32 can be checked here. In a ledger with another kind of digest, only a reader that knows the
ledger's password can check entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.salvage_v1 import salvage_places
from geminga_ledger.entries.digests import entry_decoder
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.records.ledgers.ledger_metadata import DigestType

# The words name at most so many damaged entries; the facts have all of them.
NAMED_MAX = 10
# The kind of digest is in the ledger's metadata, which a file does not have: either may fit.
_CHECKS = [entry_decoder(each, b"") for each in (DigestType.CRC32C, DigestType.CRC32)]


@dataclass(frozen=True, slots=True)
class DamagedEntry:
    """A damaged entry, and its place in the file."""

    entry_id: int
    # None where the place was damaged, too.
    offset: int | None = None
    size_bytes: int | None = None

    def words(self) -> str:
        """The entry for people."""
        where = "not where it should be" if self.offset is None else f"at {self.offset}"
        return f"entry {self.entry_id} {where}"


@dataclass(frozen=True, slots=True)
class BlockDamage:
    """What is known of a damaged block."""

    entries: Sequence[DamagedEntry]
    # False where nothing is known: the table of entries is lost, or the digest is of another kind.
    is_checkable: bool = True

    def words(self) -> str:
        """The damage for people."""
        if not self.is_checkable:
            return "only a reader of the ledger can check which entries are damaged"
        if not self.entries:
            return "each entry in it is sound"
        more = f" and {len(self.entries) - NAMED_MAX} more" if len(self.entries) > NAMED_MAX else ""
        return f"damaged: {', '.join(each.words() for each in self.entries[:NAMED_MAX])}{more}"

    def record(self) -> list[dict[str, object]] | None:
        """The damage for programs; None where nothing is known."""
        if not self.is_checkable:
            return None
        return [
            {"entry": each.entry_id, "offset": each.offset, "bytes": each.size_bytes}
            for each in self.entries
        ]


def damage_in(header: layout.BlockHeader, content: bytes, content_offset: int) -> BlockDamage:
    """Check each entry of a damaged block; ``content_offset`` is the place of ``content``."""
    # Without the whole table no entry has a place.
    if len(content) < layout.table_bytes(header):
        return BlockDamage((), is_checkable=False)
    # From here on the table of entries is whole, but what is in it may be damaged: a place may be
    # missing.
    ids = layout.decode_ids(header, content)
    places = salvage_places(header, content)
    damaged: list[DamagedEntry] = []
    for entry_id in ids:
        place = places.get(entry_id)
        if place is None:
            damaged.append(DamagedEntry(entry_id))
        elif not _is_sound(header.ledger_id, entry_id, content, place):
            offset, size_bytes = content_offset + place.start, place.stop - place.start
            damaged.append(DamagedEntry(entry_id, offset, size_bytes))
    # Where no entry is sound, the ledger more likely has another kind of digest. A single entry may
    # well be the damaged one.
    is_checkable = len(damaged) < len(ids) or len(ids) == 1
    return BlockDamage(damaged if is_checkable else (), is_checkable=is_checkable)


def _is_sound(ledger_id: int, entry_id: int, content: bytes, place: slice) -> bool:
    for check in _CHECKS:
        try:
            # The password is part of an HMAC only: CRCs need none.
            check(content, place.start, place.stop, ledger_id, entry_id)
        except EntryDigestMismatch:
            continue
        return True
    return False
