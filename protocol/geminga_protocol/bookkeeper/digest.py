"""The layout of an entry on bookies and on the wire, with its CRC32C, and the ledger's master key.

An entry's header says where it belongs and what its writer knew when it wrote it; the digest binds
the header to the payload. Facts: ``DigestManager``, ``CRC32CDigestManager`` and
``MacDigestManager.genDigest`` of Apache BookKeeper. Ledgers with another digest than CRC32C (Pulsar
writes none, unless told to) are not read here.
"""

from __future__ import annotations

from hashlib import sha1
from struct import Struct

from crc32c import crc32c

from geminga_protocol.bookkeeper.errors import EntryDigestMismatch

# +-----------+----------+----------------+--------+---------+---------+
# | ledger_id | entry_id | last_confirmed | length | digest  | payload |
# |  i64      |  i64     |  i64           |  i64   |  u32    |         |
# +-----------+----------+----------------+--------+---------+---------+
#  digested: the 32 bytes before the digest, then the payload.
#  last_confirmed is -1 before the first confirmed entry; length counts the payload bytes of the
#  ledger up to and including this entry.
ENTRY_HEADER = Struct(">qqqqI")
ENTRY_HEADER_BYTES = 36
DIGESTED_HEADER = Struct(">qqqq")
DIGESTED_HEADER_BYTES = 32
assert ENTRY_HEADER.size == ENTRY_HEADER_BYTES
assert DIGESTED_HEADER.size == DIGESTED_HEADER_BYTES

MASTER_KEY_BYTES = 20
ANY_ENTRY = -1


def master_key(password: bytes) -> bytes:
    """The 20 bytes that a bookie keeps of a ledger's password and compares on every add."""
    return sha1(b"ledger" + password, usedforsecurity=False).digest()


EMPTY_PASSWORD_MASTER_KEY = master_key(b"")


def encode_entry_header(
    ledger_id: int, entry_id: int, last_confirmed: int, length: int, payload: bytes
) -> bytes:
    """The 36 bytes that go before ``payload`` to make it an entry; the payload is not copied."""
    digested = DIGESTED_HEADER.pack(ledger_id, entry_id, last_confirmed, length)
    return ENTRY_HEADER.pack(
        ledger_id, entry_id, last_confirmed, length, crc32c(payload, crc32c(digested))
    )


def decode_entry(
    buffer: bytes, start: int, end: int, ledger_id: int, entry_id: int = ANY_ENTRY
) -> tuple[int, int, int, bytes]:
    """Check the entry at ``buffer[start:end]`` and take its payload out.

    Returns ``(entry_id, last_confirmed, length, payload)``. With ``ANY_ENTRY`` any entry of the
    ledger is right (the answer to a read of the last one). The one copy made is the payload, which
    the caller would have to take out of the receive buffer anyway.

    Raises ``EntryDigestMismatch`` where the entry is too short, damaged, or another one.
    """
    payload_start = start + ENTRY_HEADER_BYTES
    if payload_start > end or end > len(buffer):
        raise EntryDigestMismatch(ledger_id, entry_id, f"{end - start} bytes are no entry")
    found_ledger, found_entry, last_confirmed, length, digest = ENTRY_HEADER.unpack_from(
        buffer, start
    )
    payload = buffer[payload_start:end]
    computed = crc32c(payload, crc32c(buffer[start : start + DIGESTED_HEADER_BYTES]))
    if computed != digest:
        raise EntryDigestMismatch(
            ledger_id, entry_id, f"digest {digest:#010x}, computed {computed:#010x}"
        )
    if found_ledger != ledger_id or entry_id not in (found_entry, ANY_ENTRY):
        raise EntryDigestMismatch(
            ledger_id, entry_id, f"is entry {found_entry} of ledger {found_ledger}"
        )
    return found_entry, last_confirmed, length, payload
