"""Bit sets as Java's ``BitSet`` writes them: signed 64-bit words, the lowest bits first.

Cursor records and acknowledgements contain them. In Python a set is one integer whose bit ``i`` is
member ``i``, so that union, difference and counting are single operations.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

_WORD_BYTES = 8
_WORD_CODE = "q"
assert array(_WORD_CODE).itemsize == _WORD_BYTES


# An example, of which the second word is negative:
#
#     │ words           [0b101, -9223372036854775808]
#     │ members         0, 2, 127                       bit 63 of the second word is its sign
#     │ the integer     1 << 127 | 0b101
def bits_of_words(words: Iterable[int]) -> int:
    """The set in ``words``, each -2**63 to 2**63-1. Raises ``OverflowError`` for other numbers."""
    packed = array(_WORD_CODE, words)
    # ``array`` has words in the order of the machine; what follows reads them as little-endian.
    if sys.byteorder == "big":
        packed.byteswap()
    return int.from_bytes(packed.tobytes(), "little")


def words_of_bits(bits: int) -> tuple[int, ...]:
    """The words of a set, without zero words at the end; no words for the empty set."""
    assert bits >= 0
    # A set whose highest bit is bit 63 of a word gives a negative word, as in Java.
    words = (bits.bit_length() + 63) // 64
    packed = array(_WORD_CODE, bits.to_bytes(words * _WORD_BYTES, "little"))
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)
