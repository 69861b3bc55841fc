"""Sets of 32-bit numbers in the portable format of Roaring bitmaps.

A set is a Python integer here: bit n is set where n is a member. Facts: "Roaring Bitmap Format
Specification". The bytes are equal to those that ``RoaringBitmap.serialize`` of the Java library
writes after ``runOptimize``.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error

from geminga_protocol.records.errors import MalformedRecord

# All numbers are little-endian. Members with the same upper 16 bits, the key, share a container;
# the containers follow each other in the order of their keys.
#
# +--------------------------------+----------------------------+---------------+------------+
# | cookie: u16, with runs 12347   | key, members - 1: u16 each | offset: u32   | containers |
# | (then containers - 1: u16, and | for each container         | for each      |            |
# | a bit for each: has it runs?), |                            | (not where    |            |
# | without 12346 as u32 (then     |                            | there are     |            |
# | containers: u32)               |                            | runs and < 4) |            |
# +--------------------------------+----------------------------+---------------+------------+
COOKIE = 12346
COOKIE_WITH_RUNS = 12347
OFFSETS_FROM = 4

# A container has one of three forms, with the lower 16 bits of its members:
#   array   each member as u16; for 4096 members at most
#   bits    a bit for each of the 65,536 numbers
#   runs    u16 number of runs, then u16 first member and u16 members - 1 of each
KEY_BITS = 16
BITS_BYTES = (1 << KEY_BITS) // 8
ARRAY_MEMBERS_MAX = 4096
MEMBER_BYTES = 2
RUNS_HEAD_BYTES = 2
RUN_BYTES = 4

_U16 = Struct("<H")
_U32 = Struct("<I")
_PAIR = Struct("<HH")
_KEY_MASK = (1 << (1 << KEY_BITS)) - 1
_RECORD = "Roaring bitmap"
# One container for each key of 16 bits.
_CONTAINERS_MAX = 1 << KEY_BITS


def encode_bits(members: int) -> bytes:
    """The bytes of the set. ``members`` has no bit beyond 2**32."""
    # One item for each container that is not empty.
    keys, sizes, containers, with_runs = [], [], [], []
    key = 0
    while members:
        chunk = members & _KEY_MASK
        if chunk:
            content, has_runs = _container(chunk)
            keys.append(key)
            sizes.append(chunk.bit_count())
            containers.append(content)
            with_runs.append(has_runs)
        # Shifting copies the rest of the set each time: 65,536 keys at most, and in practice entry
        # ids of one ledger, which have few.
        members >>= 1 << KEY_BITS
        key += 1
    if any(with_runs):
        flags = sum(1 << index for index, has_runs in enumerate(with_runs) if has_runs)
        head = _PAIR.pack(COOKIE_WITH_RUNS, len(keys) - 1)
        head += flags.to_bytes((len(keys) + 7) // 8, "little")
    else:
        head = _U32.pack(COOKIE) + _U32.pack(len(keys))
    head += b"".join(map(_PAIR.pack, keys, (size - 1 for size in sizes)))
    # Offsets count from the beginning of the bytes, and include themselves.
    if not any(with_runs) or len(keys) >= OFFSETS_FROM:
        at = len(head) + _U32.size * len(keys)
        for content in containers:
            head += _U32.pack(at)
            at += len(content)
    return head + b"".join(containers)


def _container(chunk: int) -> tuple[bytes, bool]:
    """The container of a chunk of 65,536 bits in its smallest form, and whether that is runs."""
    size = chunk.bit_count()
    content_bytes = MEMBER_BYTES * size if size <= ARRAY_MEMBERS_MAX else BITS_BYTES
    # A run begins at each bit whose lower neighbour is not set.
    run_count = (chunk & ~(chunk << 1)).bit_count()
    # ``runOptimize`` converts to runs only where they are smaller, never where they are equal.
    if RUNS_HEAD_BYTES + RUN_BYTES * run_count < content_bytes:
        runs = b"".join(_PAIR.pack(first, last - first) for first, last in _runs(chunk))
        return _U16.pack(run_count) + runs, True
    if size > ARRAY_MEMBERS_MAX:
        return chunk.to_bytes(BITS_BYTES, "little"), False
    members = (each for first, last in _runs(chunk) for each in range(first, last + 1))
    return b"".join(map(_U16.pack, members)), False


def _runs(chunk: int) -> Iterator[tuple[int, int]]:
    """The first and the last member of each run of set bits, in ascending order."""
    at = 0
    while chunk:
        gap = (chunk & -chunk).bit_length() - 1
        chunk >>= gap
        # The lowest bit that is not set, as a number of bits: the length of the run that begins at
        # bit 0.
        length = (~chunk & (chunk + 1)).bit_length() - 1
        at += gap
        yield at, at + length - 1
        chunk >>= length
        at += length


def decode_bits(value: bytes) -> int:
    """Read a set. Raises ``MalformedRecord``."""
    try:
        return _decoded(value)
    except error as cause:
        raise MalformedRecord(_RECORD, f"it ends too early: {cause}") from cause


def _decoded(value: bytes) -> int:
    """Read a set; raises ``struct.error`` where ``value`` ends too early."""
    # Stage 1: where each container's key and number of members are.
    at, flags, count = _read_head(value)
    descriptors = [_PAIR.unpack_from(value, at + _PAIR.size * index) for index in range(count)]
    at += _PAIR.size * count
    if flags is None or count >= OFFSETS_FROM:
        # The offsets serve random access. Containers follow each other without gaps.
        at += _U32.size * count
    # Stage 2: the containers, one behind the other; ``at`` is where the next one begins.
    members = 0
    for index, (key, size_less_one) in enumerate(descriptors):
        # The form of each container follows from the head: runs by the flag, otherwise by the
        # number of members.
        if flags is not None and flags >> index & 1:
            chunk, at = _read_runs(value, at)
        elif size_less_one < ARRAY_MEMBERS_MAX:
            # Setting bits in bytes: shifting an integer of 8 KiB for each would copy it each time.
            marks = bytearray(BITS_BYTES)
            members_bytes = MEMBER_BYTES * (size_less_one + 1)
            for (member,) in _U16.iter_unpack(_slice(value, at, members_bytes)):
                marks[member >> 3] |= 1 << (member & 7)
            chunk = int.from_bytes(marks, "little")
            at += members_bytes
        else:
            chunk = int.from_bytes(_slice(value, at, BITS_BYTES), "little")
            at += BITS_BYTES
        members |= chunk << (key << KEY_BITS)
    return members


def _read_head(value: bytes) -> tuple[int, int | None, int]:
    """Where the keys begin, a bit for each container with runs (None without), their number."""
    (cookie,) = _U32.unpack_from(value)
    if cookie == COOKIE:
        (count,) = _U32.unpack_from(value, _U32.size)
        if count > _CONTAINERS_MAX:
            raise MalformedRecord(_RECORD, f"{count} containers, at most {_CONTAINERS_MAX} can be")
        return 2 * _U32.size, None, count
    if cookie & 0xFFFF != COOKIE_WITH_RUNS:
        raise MalformedRecord(_RECORD, f"it begins with {cookie}, not with {COOKIE}")
    count = (cookie >> 16) + 1
    flags_bytes = (count + 7) // 8
    at = _U32.size + flags_bytes
    return at, int.from_bytes(value[_U32.size : at], "little"), count


def _read_runs(value: bytes, at: int) -> tuple[int, int]:
    (count,) = _U16.unpack_from(value, at)
    at += RUNS_HEAD_BYTES
    chunk = 0
    for index in range(count):
        first, length_less_one = _PAIR.unpack_from(value, at + RUN_BYTES * index)
        chunk |= ((1 << length_less_one + 1) - 1) << first
    # A damaged run may reach beyond the container.
    return chunk & _KEY_MASK, at + RUN_BYTES * count


def _slice(value: bytes, at: int, size_bytes: int) -> bytes:
    # A slice of bytes beyond their end is short without an error.
    if at + size_bytes > len(value):
        raise MalformedRecord(_RECORD, "it ends too early")
    return value[at : at + size_bytes]
