"""V2 requests off the hot path: reads of several entries at once, and authentication.

``v2`` has adds and reads of one entry. Facts: ``BookieProtoEncoding`` and
``BatchedReadEntryProcessor`` of Apache BookKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from geminga_protocol.bookkeeper.codes import Flag, Operation
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES
from geminga_protocol.bookkeeper.requests_pb2 import AuthMessage
from geminga_protocol.errors import TruncatedFrame, WireError
from geminga_protocol.framing import FRAME_SIZE

# A request to read several entries; the master key is there if and only if the read is fencing:
# +-------------+-----------+-------------+------------+-----------+-----------+--------------+
# | header word | ledger_id | first entry | request id | max count | max bytes | [master key] |
# |  u32        |  i64      |  i64        |  i64       |  i32      |  i64      |  20 bytes    |
# +-------------+-----------+-------------+------------+-----------+-----------+--------------+
#  A max count of 0 or less means as many as fit; max bytes limits the whole response frame.
_BATCH_READ = Struct(">Iqqqiq")
BATCH_READ_BYTES = 40
assert _BATCH_READ.size == BATCH_READ_BYTES

# Its answer; each entry is preceded by its size:
# +------------+-------------+-------------+-----------+-------------+------------+------+-------
# | frame size | header word | return code | ledger_id | first entry | request id | size | entry ...
# |  u32       |  u32        |  i32        |  i64      |  i64        |  i64       |  u32 |
# +------------+-------------+-------------+-----------+-------------+------------+------+-------
_BATCH_ANSWER = Struct(">IIiqqq")
BATCH_ANSWER_BYTES = 36
assert _BATCH_ANSWER.size == BATCH_ANSWER_BYTES
BATCH_ENTRY_SIZE_BYTES = 4

# As in ``v2``: version, operation and flags in one word.
_VERSION_WORD = 2 << 24
_BATCH_WORD = _VERSION_WORD | Operation.BATCH_READ << 16
_AUTH_WORD = _VERSION_WORD | Operation.AUTH << 16


@dataclass(frozen=True, slots=True)
class BatchRead:
    """A request to read consecutive entries of a ledger, from ``first_entry`` on."""

    ledger_id: int
    first_entry: int
    # Chosen by the client; the answer repeats it.
    request_id: int
    # 0 stands for no limit.
    count_max: int
    # Of the whole answer frame.
    bytes_max: int
    # None on a read that does not fence the ledger.
    master_key: bytes | None


def parse_batch_read(buffer: bytes, start: int, end: int) -> BatchRead:
    """Read the request at ``buffer[start:end]`` (a frame without its size).

    Raises ``WireError`` for garbage.
    """
    if end - start < BATCH_READ_BYTES:
        raise TruncatedFrame("a request for several entries", BATCH_READ_BYTES, end - start)
    word, ledger_id, first_entry, request_id, count_max, bytes_max = _BATCH_READ.unpack_from(
        buffer, start
    )
    master_key = None
    if word & Flag.FENCING:
        key_end = start + BATCH_READ_BYTES + MASTER_KEY_BYTES
        if end < key_end:
            raise TruncatedFrame("a fencing request", key_end - start, end - start)
        master_key = buffer[start + BATCH_READ_BYTES : key_end]
    # Unlike in a read of one entry, -1 (the last entry) makes no sense as the first of several.
    if ledger_id < 0 or first_entry < 0:
        raise WireError("a request for several entries with a negative ledger id or entry id")
    return BatchRead(ledger_id, first_entry, request_id, max(0, count_max), bytes_max, master_key)


def encode_batch_answer(
    request: BatchRead, code: int, entries: Sequence[bytes] = ()
) -> list[bytes]:
    """The pieces of a whole answer, to be written one after the other; entries are not copied."""
    # A frame's size does not count itself.
    size = BATCH_ANSWER_BYTES - FRAME_SIZE.size
    size += sum(map(len, entries)) + BATCH_ENTRY_SIZE_BYTES * len(entries)
    pieces = [
        _BATCH_ANSWER.pack(
            size, _BATCH_WORD, code, request.ledger_id, request.first_entry, request.request_id
        )
    ]
    for entry in entries:
        pieces += (FRAME_SIZE.pack(len(entry)), entry)
    return pieces


def encode_auth_answer(message: AuthMessage) -> bytes:
    """A whole answer to a request to authenticate."""
    content = message.SerializeToString()
    # An answer in V2 has no return code and no ids for authentication: header word and protobuf
    # only.
    word = _AUTH_WORD.to_bytes(4, "big")
    return FRAME_SIZE.pack(len(word) + len(content)) + word + content
