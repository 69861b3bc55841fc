"""BookKeeper's V2 requests and responses: a fixed header, written and parsed by hand.

HOT: every entry is added to several bookies. Encoders return the bytes that precede a payload, so
that no payload is copied. Parsers read frames where ``framing.FrameReader`` found them and return
plain tuples. The inside of an entry is in ``digest``; a stream may also contain V3 frames, which
``is_v3`` tells apart. Facts: ``BookieProtocol`` and ``BookieProtoEncoding`` of Apache BookKeeper.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from geminga_protocol.bookkeeper.codes import (
    FRAME_BYTES_MAX_DEFAULT,
    Flag,
    Operation,
    ReturnCode,
)
from geminga_protocol.bookkeeper.digest import (
    DIGESTED_HEADER,
    ENTRY_HEADER_BYTES,
    MASTER_KEY_BYTES,
)
from geminga_protocol.bookkeeper.errors import UnsupportedOperation, UnsupportedVersion
from geminga_protocol.errors import TruncatedFrame, WireError

__all__ = [
    "FRAME_BYTES_MAX_DEFAULT",
    "LAST_ENTRY",
    "Flag",
    "Operation",
    "Request",
    "Response",
    "ReturnCode",
    "encode_add",
    "encode_add_header",
    "encode_add_response",
    "encode_read",
    "encode_read_response_header",
    "encode_response",
    "is_v3",
    "parse_request",
    "parse_response",
]

VERSION = 2
# Instead of an entry id in a read: the last entry of the ledger that the bookie has.
LAST_ENTRY = -1

# Every frame begins with its size and its header:
# +------------+---------+-----------+-------+
# | frame size | version | operation | flags |      frame size counts what follows it
# |  u32       |  u8     |  u8       |  u16  |
# +------------+---------+-----------+-------+
# Version, operation and flags are read and written as one u32, the header word.
_ADD_HEADER_WORD = VERSION << 24 | Operation.ADD << 16
_READ_HEADER_WORD = VERSION << 24 | Operation.READ << 16
_HEADER_WORD_BYTES = 4

# A request to add an entry:
# +------------+-------------+------------+-----------------------------------+
# | frame size | header word | master key | entry (begins ledger_id entry_id) |
# |  u32       |  u32        |  20 bytes  |                                   |
# +------------+-------------+------------+-----------------------------------+
_ADD = Struct(">II20s")
# With the header of an entry (see ``digest``) that is made together with the request.
_FRESH_ADD = Struct(">II20sqqqqI")
# What a bookie reads of it, from the header word on.
_ADD_REQUEST = Struct(">I20sqq")
# What the frame size counts beside the entry, and beside the payload of an entry.
_ADD_OVERHEAD_BYTES = _HEADER_WORD_BYTES + MASTER_KEY_BYTES
_FRESH_ADD_OVERHEAD_BYTES = _ADD_OVERHEAD_BYTES + ENTRY_HEADER_BYTES
_ADD_REQUEST_BYTES_MIN = 40
assert _ADD_REQUEST.size == _ADD_REQUEST_BYTES_MIN

# A request to read an entry; the master key is there if and only if the read is fencing:
# +------------+-------------+-----------+----------+--------------+
# | frame size | header word | ledger_id | entry_id | [master key] |
# |  u32       |  u32        |  i64      |  i64     |  [20 bytes]  |
# +------------+-------------+-----------+----------+--------------+
_READ = Struct(">IIqq")
_FENCING_READ = Struct(">IIqq20s")
_READ_REQUEST = Struct(">Iqq")
_READ_BYTES = 20
_FENCING_READ_BYTES = 40
assert _READ_REQUEST.size == _READ_BYTES

# A response; the body is the entry where a read succeeded, otherwise it is empty:
# +------------+-------------+-------------+-----------+----------+--------+
# | frame size | header word | return code | ledger_id | entry_id | [body] |
# |  u32       |  u32        |  i32        |  i64      |  i64     |        |
# +------------+-------------+-------------+-----------+----------+--------+
_RESPONSE = Struct(">IIiqq")
_RESPONSE_FRAME = Struct(">Iiqq")
_RESPONSE_BYTES = 24
assert _RESPONSE_FRAME.size == _RESPONSE_BYTES

# A V3 frame is a protobuf message that begins with field 1, length-delimited. A V2 frame begins
# with its version, and no version was ever called 10.
_V3_FIRST_BYTE = 0x0A

# (operation, flags, ledger_id, entry_id, master_key, body_start). An add's entry stands at
# buffer[body_start:end]; the master key is None on reads that do not fence.
Request = tuple[int, int, int, int, bytes | None, int]
# (operation, return_code, ledger_id, entry_id, body_start). An entry that was read stands at
# buffer[body_start:end].
Response = tuple[int, int, int, int, int]


def is_v3(buffer: bytes, start: int, end: int) -> bool:
    """Whether the frame at ``buffer[start:end]`` is a V3 protobuf message rather than V2."""
    return start < end and buffer[start] == _V3_FIRST_BYTE


def encode_add_header(master_key: bytes, entry_bytes: int, flags: int = 0) -> bytes:
    """The 28 bytes that precede an existing entry of ``entry_bytes`` in a request to add it."""
    return _ADD.pack(_ADD_OVERHEAD_BYTES + entry_bytes, _ADD_HEADER_WORD | flags, master_key)


def encode_add(
    ledger_id: int,
    entry_id: int,
    last_confirmed: int,
    length: int,
    payload: bytes,
    master_key: bytes,
    flags: int = 0,
) -> bytes:
    """The 64 bytes that precede the payload of a new entry: request and entry header in one.

    The result equals ``encode_add_header`` followed by ``digest.encode_entry_header``. The same
    bytes go to every bookie of the entry's write set.
    """
    # The digest covers the header without itself, then the payload: one run over both.
    digest = crc32c(
        payload, crc32c(DIGESTED_HEADER.pack(ledger_id, entry_id, last_confirmed, length))
    )
    return _FRESH_ADD.pack(
        _FRESH_ADD_OVERHEAD_BYTES + len(payload),
        _ADD_HEADER_WORD | flags,
        master_key,
        ledger_id,
        entry_id,
        last_confirmed,
        length,
        digest,
    )


def encode_read(
    ledger_id: int, entry_id: int, flags: int = 0, master_key: bytes | None = None
) -> bytes:
    """A whole request to read one entry, or the last one (``LAST_ENTRY``).

    ``Flag.FENCING`` and the master key are given together or not at all.
    """
    if master_key is None:
        assert not flags & Flag.FENCING
        return _READ.pack(_READ_BYTES, _READ_HEADER_WORD | flags, ledger_id, entry_id)
    assert flags & Flag.FENCING
    return _FENCING_READ.pack(
        _FENCING_READ_BYTES, _READ_HEADER_WORD | flags, ledger_id, entry_id, master_key
    )


def encode_add_response(code: int, ledger_id: int, entry_id: int) -> bytes:
    """A whole answer to an add."""
    # An answer has no flags: they are 0.
    return _RESPONSE.pack(_RESPONSE_BYTES, _ADD_HEADER_WORD, code, ledger_id, entry_id)


def encode_read_response_header(
    code: int, ledger_id: int, entry_id: int, entry_bytes: int = 0
) -> bytes:
    """The bytes that precede the entry in the answer to a read, or a whole answer without entry.

    ``entry_id`` is that of the request: ``LAST_ENTRY`` in the answer to a read of the last entry.
    """
    return _RESPONSE.pack(
        _RESPONSE_BYTES + entry_bytes, _READ_HEADER_WORD, code, ledger_id, entry_id
    )


def encode_response(operation: int, code: int, ledger_id: int, entry_id: int) -> bytes:
    """A whole answer without body to any operation, also to one that is not served."""
    return _RESPONSE.pack(
        _RESPONSE_BYTES, VERSION << 24 | (operation & 0xFF) << 16, code, ledger_id, entry_id
    )


def parse_request(buffer: bytes, start: int, end: int) -> Request:
    """Read the V2 request at ``buffer[start:end]`` (a frame without its size).

    Raises ``UnsupportedVersion`` or ``UnsupportedOperation``, after which the bookie can refuse the
    request and read on, and another ``WireError`` for garbage.
    """
    # Numbers instead of members of ``Operation`` and ``Flag``, whose look-up costs time for every
    # entry. A request that passes no check falls through to the description of its fault. A frame
    # shorter than the shortest valid request, a read, could make ``unpack_from`` read numbers out
    # of the next frame in the buffer: it checks the end of the buffer, not that of the frame.
    if end - start >= _READ_BYTES and buffer[start] == VERSION:
        operation = buffer[start + 1]
        if operation == 1 and end - start >= _ADD_REQUEST_BYTES_MIN:
            word, master_key, ledger_id, entry_id = _ADD_REQUEST.unpack_from(buffer, start)
            if ledger_id >= 0 and entry_id >= 0:
                # 24 bytes: header word and master key. The entry begins with the two ids that were
                # just read, because bookies store an entry with its ids.
                return 1, word & 0xFFFF, ledger_id, entry_id, master_key, start + 24
        elif operation == 2:
            word, ledger_id, entry_id = _READ_REQUEST.unpack_from(buffer, start)
            # Bit 0 is FENCING. A read that does not fence carries no master key: bookies let any
            # client read any ledger, and compare passwords only where a request changes the ledger.
            if not word & 1:
                if ledger_id >= 0 and entry_id >= LAST_ENTRY:
                    return 2, word & 0xFFFF, ledger_id, entry_id, None, start + _READ_BYTES
            elif end - start >= _FENCING_READ_BYTES and ledger_id >= 0 and entry_id >= LAST_ENTRY:
                body_start = start + _FENCING_READ_BYTES
                master_key = buffer[start + _READ_BYTES : body_start]
                return 2, word & 0xFFFF, ledger_id, entry_id, master_key, body_start
    raise _fault_of_request(buffer, start, end)


def parse_response(buffer: bytes, start: int, end: int) -> Response:
    """Read the V2 response at ``buffer[start:end]`` (a frame without its size).

    Raises ``UnsupportedVersion``, and another ``WireError`` for garbage.
    """
    if end - start < _RESPONSE_BYTES:
        raise TruncatedFrame("a bookie's response", _RESPONSE_BYTES, end - start)
    # The header word has version (8 bits), operation (8) and flags (16), from the top.
    word, code, ledger_id, entry_id = _RESPONSE_FRAME.unpack_from(buffer, start)
    # The return code is not interpreted here: one that V2 does not have becomes an error that names
    # it, in ``errors.refusal_of``.
    if word >> 24 != VERSION:
        raise UnsupportedVersion(word >> 24)
    return word >> 16 & 0xFF, code, ledger_id, entry_id, start + _RESPONSE_BYTES


def _fault_of_request(buffer: bytes, start: int, end: int) -> WireError:
    """The error that describes a request which ``parse_request`` could not read."""
    frame_bytes = end - start
    if frame_bytes < _HEADER_WORD_BYTES:
        return TruncatedFrame("the header of a bookie request", _HEADER_WORD_BYTES, frame_bytes)
    # FENCING is in the lower of the two bytes of flags.
    version, operation, flags = buffer[start], buffer[start + 1], buffer[start + 3]
    if version != VERSION:
        return UnsupportedVersion(version)
    if operation not in (Operation.ADD, Operation.READ):
        return UnsupportedOperation(operation)
    if operation == Operation.ADD:
        wanted_bytes = _ADD_REQUEST_BYTES_MIN
    elif flags & Flag.FENCING:
        wanted_bytes = _FENCING_READ_BYTES
    else:
        wanted_bytes = _READ_BYTES
    if frame_bytes < wanted_bytes:
        return TruncatedFrame("a bookie request", wanted_bytes, frame_bytes)
    return WireError("a bookie request with a negative ledger id or entry id")
