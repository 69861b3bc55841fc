"""Checks the entries of a ledger, whichever digest its writer chose.

Geminga and Pulsar write CRC32C; other BookKeeper clients may have written the others, which can be
read here and copied whole, never written. Facts: ``DigestManager``, ``CRC32DigestManager``,
``MacDigestManager`` and ``DummyDigestManager`` of Apache BookKeeper. Pure.
"""

from __future__ import annotations

import hmac
import zlib
from collections.abc import Callable
from hashlib import sha1
from struct import Struct

from crc32c import crc32c

from geminga_protocol.bookkeeper.digest import (
    ANY_ENTRY,
    DIGESTED_HEADER,
    DIGESTED_HEADER_BYTES,
    decode_entry,
)
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.bookkeeper.v3 import EXPLICIT_LAC_IDS_BYTES
from geminga_protocol.records.ledgers.ledger_metadata import DigestType

# An entry; the digest covers what is before and after it:
# +-----------+----------+----------------+--------+----------------+---------+
# | ledger_id | entry_id | last_confirmed | length | digest         | payload |
# |  i64      |  i64     |  i64           |  i64   |  0 to 20 bytes |         |
# +-----------+----------+----------------+--------+----------------+---------+
# A CRC32 takes 8 bytes, an HMAC is SHA-1's, a dummy has none.
_DIGEST_BYTES = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}

# An explicit LAC: two of these ids, and the digest of them.
# +-----------+----------------+-----------------+
# | ledger_id | last_confirmed | digest          |
# |  i64      |  i64           |  0 to 20 bytes  |
# +-----------+----------------+-----------------+
_EXPLICIT_LAC_IDS = Struct(">qq")
assert _EXPLICIT_LAC_IDS.size == EXPLICIT_LAC_IDS_BYTES

Decoded = tuple[int, int, int, bytes]
"""``(entry_id, last_confirmed, length, bytes)``; the bytes are the payload or the whole entry."""

Decode = Callable[[bytes, int, int, int, int], Decoded]
"""Checks the entry at ``buffer[start:end]``: called with the buffer, start, end, the ledger's id
and the entry's (or ``ANY_ENTRY``). Raises ``EntryDigestMismatch``."""


def payload_decoder(digest_type: DigestType, password: bytes) -> Decode:
    """Takes the payload out of the entries of a ledger."""
    # HOT: the usual digest has a function of its own.
    if digest_type is DigestType.CRC32C:
        return decode_entry
    return _Decoder(digest_type, password).payload


def explicit_lac_decoder(
    digest_type: DigestType | None, password: bytes
) -> Callable[[bytes, int], int]:
    """Takes the last-add-confirmed out of an explicit LAC: called with body and ledger id.

    The decoder raises ``EntryDigestMismatch``.
    """
    return _Decoder(digest_type, password).explicit_lac


def entry_decoder(digest_type: DigestType | None, password: bytes) -> Decode:
    """Gives the entries as they are stored; without a known digest only their ids are checked."""
    return _Decoder(digest_type, password).entry


class _Decoder:
    """The digest of one ledger: its type, and the key where it is an HMAC."""

    def __init__(self, digest_type: DigestType | None, password: bytes) -> None:
        self._digest_type = digest_type
        # An unknown digest is treated as a dummy: nothing is computed or compared, and what follows
        # the header counts as payload.
        self._digest_bytes = _DIGEST_BYTES[digest_type] if digest_type is not None else 0
        # Not the master key, which every bookie knows: another prefix (``MacDigestManager``).
        self._key = sha1(b"mac" + password, usedforsecurity=False).digest()

    def payload(
        self, buffer: bytes, start: int, end: int, ledger_id: int, entry_id: int = ANY_ENTRY
    ) -> Decoded:
        found, last_confirmed, length = self._check(buffer, start, end, ledger_id, entry_id)
        payload_start = start + DIGESTED_HEADER_BYTES + self._digest_bytes
        return found, last_confirmed, length, buffer[payload_start:end]

    def entry(
        self, buffer: bytes, start: int, end: int, ledger_id: int, entry_id: int = ANY_ENTRY
    ) -> Decoded:
        found, last_confirmed, length = self._check(buffer, start, end, ledger_id, entry_id)
        return found, last_confirmed, length, buffer[start:end]

    def explicit_lac(self, body: bytes, ledger_id: int) -> int:
        ids, digest = body[:EXPLICIT_LAC_IDS_BYTES], body[EXPLICIT_LAC_IDS_BYTES:]
        if len(ids) < EXPLICIT_LAC_IDS_BYTES or len(digest) < self._digest_bytes:
            raise EntryDigestMismatch(ledger_id, ANY_ENTRY, f"{len(body)} bytes confirm nothing")
        computed = self._compute(ids, b"")
        # Where the digest is not known, what follows the ids is not looked at.
        if computed != digest[: self._digest_bytes]:
            raise EntryDigestMismatch(
                ledger_id, ANY_ENTRY, f"digest {digest.hex()}, computed {computed.hex()}"
            )
        found_ledger, last_confirmed = _EXPLICIT_LAC_IDS.unpack(ids)
        if found_ledger != ledger_id:
            raise EntryDigestMismatch(ledger_id, ANY_ENTRY, f"is of ledger {found_ledger}")
        return int(last_confirmed)

    def _check(
        self, buffer: bytes, start: int, end: int, ledger_id: int, entry_id: int
    ) -> tuple[int, int, int]:
        digest_start = start + DIGESTED_HEADER_BYTES
        payload_start = digest_start + self._digest_bytes
        if payload_start > end or end > len(buffer):
            raise EntryDigestMismatch(ledger_id, entry_id, f"{end - start} bytes are no entry")
        # Before the ids are looked at: those of a damaged header would only mislead.
        computed = self._compute(buffer[start:digest_start], buffer[payload_start:end])
        digest = buffer[digest_start:payload_start]
        if computed != digest:
            raise EntryDigestMismatch(
                ledger_id, entry_id, f"digest {digest.hex()}, computed {computed.hex()}"
            )
        found_ledger, found, last_confirmed, length = DIGESTED_HEADER.unpack_from(buffer, start)
        # A right digest over other ids: the bookie gave an entry that was not asked for.
        if found_ledger != ledger_id or entry_id not in (found, ANY_ENTRY):
            raise EntryDigestMismatch(
                ledger_id, entry_id, f"is entry {found} of ledger {found_ledger}"
            )
        return found, last_confirmed, length

    def _compute(self, header: bytes, payload: bytes) -> bytes:
        # A CRC goes on from that of the header, so that the payload need not be copied.
        if self._digest_type is DigestType.CRC32C:
            crc: int = crc32c(payload, crc32c(header))
            return crc.to_bytes(self._digest_bytes, "big")
        if self._digest_type is DigestType.CRC32:
            crc = zlib.crc32(payload, zlib.crc32(header))
            return crc.to_bytes(self._digest_bytes, "big")
        if self._digest_type is DigestType.HMAC:
            return hmac.digest(self._key, header + payload, "sha1")
        return b""
