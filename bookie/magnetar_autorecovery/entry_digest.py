"""Checks a whole entry against its ledger's digest, of every kind that BookKeeper has.

Copies are made of all ledgers in the cluster, also of those that a Java client wrote with another
digest than ours. Facts: ``DigestManager``, ``CRC32DigestManager``, ``MacDigestManager`` and
``DummyDigestManager`` of Apache BookKeeper. Pure.
"""

from __future__ import annotations

import hmac
from hashlib import sha1
from struct import Struct
from zlib import crc32

from magnetar_protocol.bookkeeper.digest import (
    DIGESTED_HEADER,
    DIGESTED_HEADER_BYTES,
    verify_entry,
)
from magnetar_protocol.bookkeeper.errors import EntryDigestMismatch
from magnetar_protocol.records.ledger_metadata import DigestType

# +-----------+----------+----------------+--------+---------+---------+
# | ledger_id | entry_id | last_confirmed | length | digest  | payload |
# |  i64      |  i64     |  i64           |  i64   |         |         |
# +-----------+----------+----------------+--------+---------+---------+
#  The digest is over all the rest: CRC32C a u32, CRC32 a u64, HMAC 20 bytes, DUMMY nothing.
_CRC32 = Struct(">Q")
_HMAC_BYTES = 20


class EntryDigest:
    """The digest of one ledger's entries."""

    def __init__(self, digest_type: DigestType | None, password: bytes) -> None:
        # Metadata from before there was a choice says nothing, and means the keyed one.
        self._digest_type = DigestType.HMAC if digest_type is None else digest_type
        self._key = sha1(b"mac" + password, usedforsecurity=False).digest()

    def verify(self, entry: bytes, ledger_id: int, entry_id: int) -> None:
        """Raise ``EntryDigestMismatch`` where the entry is damaged, too short, or another one."""
        if len(entry) < DIGESTED_HEADER_BYTES:
            raise EntryDigestMismatch(ledger_id, entry_id, f"{len(entry)} bytes are no entry")
        if self._digest_type is DigestType.CRC32C:
            verify_entry(entry, ledger_id, entry_id)
            return
        found_ledger, found_entry, _, _ = DIGESTED_HEADER.unpack_from(entry)
        if (found_ledger, found_entry) != (ledger_id, entry_id):
            raise EntryDigestMismatch(
                ledger_id, entry_id, f"is entry {found_entry} of ledger {found_ledger}"
            )
        header, rest = entry[:DIGESTED_HEADER_BYTES], entry[DIGESTED_HEADER_BYTES:]
        if not self._fits(header, rest):
            raise EntryDigestMismatch(ledger_id, entry_id, f"its {self._digest_type.name} is wrong")

    def _fits(self, header: bytes, rest: bytes) -> bool:
        if self._digest_type is DigestType.CRC32:
            payload = rest[_CRC32.size :]
            return rest[: _CRC32.size] == _CRC32.pack(crc32(payload, crc32(header)))
        if self._digest_type is DigestType.HMAC:
            computed = hmac.digest(self._key, header + rest[_HMAC_BYTES:], "sha1")
            return hmac.compare_digest(computed, rest[:_HMAC_BYTES])
        return True
