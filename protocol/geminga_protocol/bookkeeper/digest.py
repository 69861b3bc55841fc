"""The layout of an entry on bookies and on the wire, with its CRC32C, and the ledger's master key.

An entry's header contains its ids and what its writer knew when it wrote the entry; the digest
binds the header to the payload. A reader that finds a wrong digest reads another
replica. Facts: ``DigestManager``, ``CRC32CDigestManager`` and ``MacDigestManager.genDigest`` of
Apache BookKeeper. Here is the digest that Pulsar writes by default; the ledger client reads
ledgers with others too.
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
#  The digest is the CRC32C of the 32 bytes before it, then the payload.
#  last_confirmed is the last entry of the ledger that the writer knew to be acknowledged, -1 for
#  none: recovery begins behind the highest one that it finds. length is the sum of all payloads of
#  the ledger up to and including this entry, in bytes.
ENTRY_HEADER = Struct(">qqqqI")
ENTRY_HEADER_BYTES = 36
DIGESTED_HEADER = Struct(">qqqq")
DIGESTED_HEADER_BYTES = 32
assert ENTRY_HEADER.size == ENTRY_HEADER_BYTES
assert DIGESTED_HEADER.size == DIGESTED_HEADER_BYTES

MASTER_KEY_BYTES = 20
# Instead of an entry id: the caller accepts any entry of the ledger.
ANY_ENTRY = -1


def master_key(password: bytes) -> bytes:
    """The 20 bytes that a bookie stores for a ledger's password and compares on every add."""
    # Not for security here: the algorithm is BookKeeper's, and Pulsar's password is usually empty.
    return sha1(b"ledger" + password, usedforsecurity=False).digest()


EMPTY_PASSWORD_MASTER_KEY = master_key(b"")


def encode_entry_header(
    ledger_id: int, entry_id: int, last_confirmed: int, length: int, payload: bytes
) -> bytes:
    """The 36 bytes that precede ``payload`` in an entry; the payload is not copied."""
    digested = DIGESTED_HEADER.pack(ledger_id, entry_id, last_confirmed, length)
    return ENTRY_HEADER.pack(
        ledger_id, entry_id, last_confirmed, length, crc32c(payload, crc32c(digested))
    )


def decode_entry(
    buffer: bytes, start: int, end: int, ledger_id: int, entry_id: int = ANY_ENTRY
) -> tuple[int, int, int, bytes]:
    """Check the entry at ``buffer[start:end]`` and cut out its payload.

    Returns ``(entry_id, last_confirmed, length, payload)``. ``ANY_ENTRY`` accepts any entry of the
    ledger: the answer to a read of the last one. Only the payload is copied, which the caller would
    have to copy out of the receive buffer anyway.

    Raises ``EntryDigestMismatch`` where the entry is too short, damaged, or not the wanted one.
    """
    # A buffer that is too short must not pass as an entry with a shorter payload.
    payload_start = start + ENTRY_HEADER_BYTES
    if payload_start > end or end > len(buffer):
        raise EntryDigestMismatch(ledger_id, entry_id, f"{end - start} bytes are no entry")
    found_ledger, found_entry, last_confirmed, length, digest = ENTRY_HEADER.unpack_from(
        buffer, start
    )
    # Cut out before it is checked: crc32c reads whole objects, and the caller wants this copy.
    payload = buffer[payload_start:end]
    computed = crc32c(payload, crc32c(buffer[start : start + DIGESTED_HEADER_BYTES]))
    if computed != digest:
        raise EntryDigestMismatch(
            ledger_id, entry_id, f"digest {digest:#010x}, computed {computed:#010x}"
        )
    # A bookie can return a sound entry from the wrong place; the digest covers the ids, so they
    # show where the entry belongs.
    if found_ledger != ledger_id or entry_id not in (found_entry, ANY_ENTRY):
        raise EntryDigestMismatch(
            ledger_id, entry_id, f"is entry {found_entry} of ledger {found_ledger}"
        )
    return found_entry, last_confirmed, length, payload
