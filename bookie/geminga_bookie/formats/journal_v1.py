"""The journal's layout, version 1: groups of requests as they came, each group checksummed.

One group is what one sync made durable: after a crash it is there as a whole or not at all. Adds
stand in it as V2 wire frames, untouched (``geminga_protocol.bookkeeper.v2`` draws them). So an
entry is not encoded again to be journalled, and each carries its ledger's master key. Files,
waiting and replaying are the business of ``journal`` and ``replay``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from geminga_bookie.errors import UnknownFormat
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES

SUFFIX = ".journal"
VERSION = 1

# A file:
# +----------+---------+----------+-------------+------------+--------+---------+-------
# | magic    | version | (unused) | file number | created ms | crc32c | group   | group ...
# |  8 bytes |  u16    |  u16     |  u64        |  u64       |  u32   |         |
# +----------+---------+----------+-------------+------------+--------+---------+-------
#  crc32c covers the 28 bytes before it. It is also the seed of the groups' header checksums, so
#  that bytes of another journal inside a payload never pass for a group of this one.
_FILE_HEADER = Struct(">8sHHQQI")
FILE_HEADER_BYTES = 32
FILE_MAGIC = b"GMNGJRNL"
assert _FILE_HEADER.size == FILE_HEADER_BYTES

# A group; numbers rise by one from group to group, also from file to file:
# +-------+--------------+------------+-------------+---------------+------+------+-----
# | magic | group number | body bytes | body crc32c | header crc32c | item | item | ...
# |  u32  |  u64         |  u32       |  u32        |  u32          |             body
# +-------+--------------+------------+-------------+---------------+------+------+-----
#  u32 is enough for the body: sockets are not read while more than ``journal_queue_bytes_max``
#  (32 MiB) waits for the disk.
_GROUP_HEADER = Struct(">IQIII")
_GROUP_HEADER_CHECKED = Struct(">IQII")
GROUP_HEADER_BYTES = 24
GROUP_MAGIC = 0x4D475447
_GROUP_MAGIC_BYTES = GROUP_MAGIC.to_bytes(4, "big")
assert _GROUP_HEADER.size == GROUP_HEADER_BYTES

# An item:
# +------+------------+---------------------+
# | kind | size       | content             |      size counts the content
# |  u8  |  u32       |                     |
# +------+------------+---------------------+
#  ADDS:  V2 requests to add, one after the other, each with its frame size before it
#  FENCE: ledger_id i64, master key 20 bytes
#  EXPLICIT_LAC: ledger_id i64, master key 20 bytes, then the body as the writer sent it
_ITEM_HEADER = Struct(">BI")
ITEM_HEADER_BYTES = 5
_FENCE = Struct(">BIq20s")
_FENCE_CONTENT = Struct(">q20s")
assert _ITEM_HEADER.size == ITEM_HEADER_BYTES

# A request to add inside ADDS: frame size, header word, master key, then the entry, which begins
# with its ledger id and entry id.
_ADD = Struct(">II20sqq")
# The flags in the header word do not matter any more: whether the add was to be taken was decided
# before it was journalled.
_ADD_ENTRY_OFFSET = 28
_FRAME_SIZE_BYTES = 4
ADD_FRAME_BYTES_MIN = _ADD.size - _FRAME_SIZE_BYTES


@dataclass(frozen=True, slots=True)
class JournalMark:
    """A place between two groups of one journal.

    The index keeps one for each journal, of which it says: everything before it is in the entry
    logs, and replaying begins there.
    """

    file_number: int
    offset: int
    # The number of the group that begins at the mark: another number there is damage.
    next_group: int


# The mark of a journal of which the index knows nothing: the first file that exists is replayed.
JOURNAL_BEGINNING = JournalMark(0, 0, 0)


class ItemKind(IntEnum):
    """What an item of a group holds."""

    ADDS = 1
    FENCE = 2
    EXPLICIT_LAC = 3


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a file begins with."""

    number: int
    created_ms: int
    # Goes into the checksum of every group header of the file.
    seed: int


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """What stands before a group's body of ``body_bytes``."""

    number: int
    body_bytes: int
    body_crc: int


# An add as it is replayed: ledger id, entry id, master key, entry.
Add = tuple[int, int, bytes, bytes]


class Fence(NamedTuple):
    """From here on the ledger takes no normal adds."""

    ledger_id: int
    master_key: bytes


class ExplicitLac(NamedTuple):
    """The last-add-confirmed that the ledger's writer sent in ``body``, without an entry."""

    ledger_id: int
    master_key: bytes
    body: bytes


# An item that is not adds.
Mark = Fence | ExplicitLac


def file_name(number: int) -> str:
    """The name of journal file ``number``; names sort like numbers."""
    return f"{number:012d}{SUFFIX}"


def file_number(name: str) -> int | None:
    """The number in a journal file's name; None for any other file."""
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits != name and digits.isdecimal() else None


def encode_file_header(number: int, created_ms: int) -> bytes:
    """The bytes a new file begins with."""
    # The place of the checksum is packed as zero, cut off, and filled with the real one.
    checked: bytes = _FILE_HEADER.pack(FILE_MAGIC, VERSION, 0, number, created_ms, 0)[:-4]
    return checked + int(crc32c(checked)).to_bytes(4, "big")


def decode_file_header(path: str, content: bytes) -> FileHeader | None:
    """Decode the header; None where it is torn: the file was being made when the bookie died.

    Raises ``UnknownFormat`` for a whole header of another kind or version.
    """
    # The checksum is checked before the version: a torn header may hold any version.
    if len(content) < FILE_HEADER_BYTES:
        return None
    magic, version, _, number, created_ms, seed = _FILE_HEADER.unpack_from(content)
    if crc32c(content[: FILE_HEADER_BYTES - 4]) != seed:
        return None
    if magic != FILE_MAGIC or version != VERSION:
        raise UnknownFormat(path, f"it is no journal of version {VERSION}")
    return FileHeader(number, created_ms, seed)


def encode_group_header(seed: int, number: int, body_bytes: int, body_crc: int) -> bytes:
    """The 24 bytes before a group's body, whose checksum was computed while it grew."""
    checked: bytes = _GROUP_HEADER_CHECKED.pack(GROUP_MAGIC, number, body_bytes, body_crc)
    return checked + int(crc32c(checked, seed)).to_bytes(4, "big")


def decode_group_header(seed: int, buffer: bytes, offset: int) -> GroupHeader | None:
    """The group header at ``offset``; None where there is no whole and right one."""
    if len(buffer) - offset < GROUP_HEADER_BYTES:
        return None
    # The magic is checked first: nearly all places that a search tries fail it, without a checksum.
    magic, number, body_bytes, body_crc, header_crc = _GROUP_HEADER.unpack_from(buffer, offset)
    if magic != GROUP_MAGIC:
        return None
    if crc32c(buffer[offset : offset + GROUP_HEADER_BYTES - 4], seed) != header_crc:
        return None
    return GroupHeader(number, body_bytes, body_crc)


def find_group_header(seed: int, buffer: bytes) -> int:
    """The offset of the first group header anywhere in ``buffer``; -1 where there is none."""
    offset = buffer.find(_GROUP_MAGIC_BYTES)
    while offset >= 0 and decode_group_header(seed, buffer, offset) is None:
        # The magic may stand in a payload too. Only a header that fits its checksum counts.
        offset = buffer.find(_GROUP_MAGIC_BYTES, offset + 1)
    return offset


def encode_adds_header(content_bytes: int) -> bytes:
    """What stands before ``content_bytes`` of add requests."""
    return _ITEM_HEADER.pack(ItemKind.ADDS, content_bytes)


def encode_mark(mark: Mark) -> bytes:
    """A whole item of another kind than adds."""
    if isinstance(mark, Fence):
        return _FENCE.pack(ItemKind.FENCE, _FENCE_CONTENT.size, mark.ledger_id, mark.master_key)
    # An explicit LAC begins like a fence, and the body takes what is left of the item.
    size = _FENCE_CONTENT.size + len(mark.body)
    return _FENCE.pack(ItemKind.EXPLICIT_LAC, size, mark.ledger_id, mark.master_key) + mark.body


def decode_body(path: str, body: bytes) -> Iterator[tuple[list[Add], Mark | None]]:
    """The items of a body whose checksum was right, in order: either adds, or one mark.

    Raises ``UnknownFormat`` where they are not laid out as above: a newer program wrote them.
    """
    # The checksum was right, so damage cannot be the reason for what is wrong below.
    offset = 0
    while offset < len(body):
        if len(body) - offset < ITEM_HEADER_BYTES:
            raise UnknownFormat(path, "an item of a group is cut off")
        kind, size = _ITEM_HEADER.unpack_from(body, offset)
        start = offset + ITEM_HEADER_BYTES
        offset = start + size
        if offset > len(body):
            raise UnknownFormat(path, "an item is longer than its group")
        if kind == ItemKind.ADDS:
            yield _decode_adds(path, body, start, offset), None
        elif kind == ItemKind.FENCE and size == _FENCE_CONTENT.size:
            yield [], Fence(*_FENCE_CONTENT.unpack_from(body, start))
        elif kind == ItemKind.EXPLICIT_LAC and size >= _FENCE_CONTENT.size:
            ledger_id, master_key = _FENCE_CONTENT.unpack_from(body, start)
            said = body[start + _FENCE_CONTENT.size : offset]
            yield [], ExplicitLac(ledger_id, master_key, said)
        else:
            raise UnknownFormat(path, f"an item of kind {kind} is not known")


def _decode_adds(path: str, body: bytes, offset: int, end: int) -> list[Add]:
    adds: list[Add] = []
    while offset < end:
        if end - offset < _ADD.size:
            raise UnknownFormat(path, "a request to add is cut off")
        frame_bytes, _, master_key, ledger_id, entry_id = _ADD.unpack_from(body, offset)
        # The size has a lower bound too: any smaller one cannot hold what was just read.
        frame_end = offset + _FRAME_SIZE_BYTES + frame_bytes
        if frame_bytes < ADD_FRAME_BYTES_MIN or frame_end > end:
            raise UnknownFormat(path, "a request to add does not end where it says")
        adds.append((ledger_id, entry_id, master_key, body[offset + _ADD_ENTRY_OFFSET : frame_end]))
        offset = frame_end
    return adds


assert _FENCE_CONTENT.size == 8 + MASTER_KEY_BYTES
