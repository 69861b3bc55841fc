"""Integers as protobuf encodes them: varints, and signed numbers in unsigned fields.

For the hand-written encoders and parsers; all other code leaves integers to protobuf.
"""

from __future__ import annotations

from geminga_protocol.errors import WireError

UINT64_MAX = 0xFFFF_FFFF_FFFF_FFFF
INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
# 64 bits in groups of seven.
VARINT_BYTES_MAX = 10

# A varint is a number in groups of seven bits, the lowest first, one group a byte; the highest bit
# of a byte is set where another byte follows.
# +-----------------+-----------------+-----------------+
# | 1, bits 0 to 6  | 1, bits 7 to 13 | 0, bits 14...20 |      here of three bytes
# +-----------------+-----------------+-----------------+
# LAST has the last byte of a varint by its seven bits; LOW_7 and LOW_14 have one and two bytes that
# are followed by others. Looking up takes half the time of shifting (0.12 us instead of 0.26 for
# three bytes, CPython 3.11); the big table costs 0.7 MB, and 1 ms on import.
LAST = [bytes((low,)) for low in range(128)]
LOW_7 = [bytes((low | 128,)) for low in range(128)]
LOW_14 = [low + high for high in LOW_7 for low in LOW_7]
assert len(LOW_14) == 1 << 14


def encode_varint(number: int) -> bytes:
    """The varint of ``number``, signed or unsigned, of 64 bits; a negative one has ten bytes."""
    if number < 128:
        if number >= 0:
            return LAST[number]
        # Two's complement in 64 bits, as protobuf writes int32 and int64 alike.
        number &= UINT64_MAX
    if number < 1 << 14:
        return LOW_7[number & 127] + LAST[number >> 7]
    if number < 1 << 21:
        return LOW_14[number & 16383] + LAST[number >> 14]
    # Two groups of seven bits at a time: five calls at most.
    return LOW_14[number & 16383] + encode_varint(number >> 14)


def decode_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """Read the varint at ``position``; return its value and the position behind it.

    Raises ``WireError`` where it does not end within the buffer or has more than 64 bits.
    """
    number = shift = 0
    try:
        while shift < 7 * VARINT_BYTES_MAX:
            byte = buffer[position]
            position += 1
            if byte < 128:
                number |= byte << shift
                # The tenth byte has room for 7 bits, of which only the lowest is bit 63.
                if number > UINT64_MAX:
                    break
                return number, position
            number |= (byte & 127) << shift
            shift += 7
    except IndexError:
        pass
    raise WireError(f"the varint before byte {position} has no end or too many bits")


def unsigned(number: int) -> int:
    """The uint64 that stands for a signed 64-bit number on the wire: -1 is UINT64_MAX."""
    return number & UINT64_MAX


def signed(number: int) -> int:
    """The signed 64-bit number that a uint64 on the wire stands for: UINT64_MAX is -1."""
    return number - (UINT64_MAX + 1) if number > INT64_MAX else number
