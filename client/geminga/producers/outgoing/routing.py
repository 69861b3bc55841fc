"""Routing: which partition a message goes to, by its key, in turns, or by a user's function.

The hashes are those of upstream's clients, to the bit: all producers of a topic must send a key to
the same partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

HashName = Literal["java_string", "murmur3", "boost"]


class RoutedMessage(NamedTuple):
    """What a ``Router`` chooses a partition by.

    - ``payload``: the bytes that the schema made of the value.
    - ``key``: the key as it is stored, Base64 for a key of bytes; ``None`` without one.
    - ``properties``: the properties of the message, empty without any.
    """

    payload: bytes
    key: str | None
    properties: Mapping[str, str]


# Called with a message and the number of partitions; returns the index of a partition.
Router = Callable[[RoutedMessage, int], int]
RouterName = Literal["round_robin", "single"]


def java_string_hash(key: str) -> int:
    """Java's ``String.hashCode`` without its sign, as upstream's ``JavaStringHash``."""
    # As Java's arithmetic of 32 bits, which drops what overflows.
    code = 0
    if key.isascii():  # a byte for each UTF-16 unit
        for unit in key.encode():
            code = (31 * code + unit) & 0xFFFF_FFFF
    else:
        # Java's text may have half of a pair of surrogates, and hashes it.
        units = key.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            code = (31 * code + (units[at] << 8) + units[at + 1]) & 0xFFFF_FFFF
    return code & 0x7FFF_FFFF


def murmur3_hash(key: str) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) of the UTF-8 text without its sign, as upstream's
    ``Murmur3_32Hash``."""
    text = key.encode()
    whole = len(text) & ~3
    code = 0
    for at in range(0, whole, 4):
        code ^= _mixed(int.from_bytes(text[at : at + 4], "little"))
        code = (code << 13 | code >> 19) & 0xFFFF_FFFF
        code = (code * 5 + 0xE654_6B64) & 0xFFFF_FFFF
    # The last block, of 0 to 3 bytes, is mixed, and not rotated. Of no bytes this is 0, and leaves
    # the hash as it is.
    code ^= _mixed(int.from_bytes(text[whole:], "little")) ^ len(text)
    code = ((code ^ code >> 16) * 0x85EB_CA6B) & 0xFFFF_FFFF
    code = ((code ^ code >> 13) * 0xC2B2_AE35) & 0xFFFF_FFFF
    return (code ^ code >> 16) & 0x7FFF_FFFF


def boost_hash(key: str) -> int:
    """``boost::hash`` of the UTF-8 text on 64 bits, as Boost has it since 1.81, without its sign:
    upstream's ``BoostHash``.

    Blocks of 8 bytes; the last one, of 0 to 7, is read as two overlapping numbers of 4 bytes, or as
    its first, middle and last byte.
    """
    text = key.encode()
    whole = len(text) & ~7
    blocks = [int.from_bytes(text[at : at + 8], "little") for at in range(0, whole, 8)]
    rest = text[whole:]
    last = len(rest) - 1
    if last >= 3:
        first, second = (int.from_bytes(part, "little") for part in (rest[:4], rest[-4:]))
        blocks.append(first | second << 8 * (last - 3))
    elif last >= 0:
        middle = (last + 1) // 2
        end = last & 2
        blocks.append(rest[0] | rest[middle] << 8 * middle | rest[end] << 8 * end)
    else:
        blocks.append(0)
    # Of the seed, which is 0, and the step.
    offset = _folded(_BOOST_STEP)
    code = offset ^ len(text)
    for block in blocks:
        offset += _BOOST_STEP
        code ^= _folded(block + offset)
    return _folded(code + offset) & 0x7FFF_FFFF


# The golden ratio of 64 bits, and its square modulo 2 ** 64.
_BOOST_STEP = 0x9E37_79B9_7F4A_7C15
_BOOST_FACTOR = 0xDF44_2D22_CE48_59B9


def _folded(number: int) -> int:
    """Boost's ``mulx``: the two halves of a product of 128 bits, combined by XOR."""
    product = (number & 0xFFFF_FFFF_FFFF_FFFF) * _BOOST_FACTOR
    return (product ^ product >> 64) & 0xFFFF_FFFF_FFFF_FFFF


def _mixed(block: int) -> int:
    """MurmurHash3's mixing of one block of 32 bits."""
    block = (block * 0xCC9E_2D51) & 0xFFFF_FFFF
    block = (block << 15 | block >> 17) & 0xFFFF_FFFF
    return (block * 0x1B87_3593) & 0xFFFF_FFFF


HASHES: Mapping[HashName, Callable[[str], int]] = {
    "java_string": java_string_hash,
    "murmur3": murmur3_hash,
    "boost": boost_hash,
}


class PartitionRouter:
    """Chooses the partitions of one producer's messages.

    Messages with a key go by its hash. Others go to the partitions in turn (``round_robin``), or
    all to one (``single``). A turn lasts until the batch that it began has left, so that batches
    are as large as without partitions. Turns begin at ``first``, a random number: producers begin
    at different partitions.
    """

    def __init__(self, router: Router | RouterName, hashing: HashName, first: int) -> None:
        if not callable(router) and router not in ("round_robin", "single"):
            raise ValueError(f"{router!r} is no router: round_robin, single or a function")
        if hashing not in HASHES:
            raise ValueError(f"{hashing!r} is no hash: java_string, murmur3 or boost")
        self._router = router
        self._hash = HASHES[hashing]
        # Counts all turns; the remainder is taken only where a partition is chosen, since their
        # number may grow.
        self._turn = first

    def partition(self, message: RoutedMessage, partitions: int, *, has_open_batch: bool) -> int:
        """The index of the partition for a message.

        ``has_open_batch``: does the partition of the last turn have a batch that has not left yet?
        Raises ``ValueError`` where a user's function chose a partition that does not exist.
        """
        # Asked first: a user's function also decides about messages with a key.
        if callable(self._router):
            index = self._router(message, partitions)
            if not 0 <= index < partitions:
                raise ValueError(f"the router chose partition {index} of {partitions}")
            return index
        # Before any turn: the messages of a key keep their order in one partition.
        if message.key is not None:
            return self._hash(message.key) % partitions
        if self._router == "round_robin" and not has_open_batch:
            self._turn += 1
        return self._turn % partitions

    def turn(self, partitions: int) -> int:
        """The index of the partition of the last turn."""
        return self._turn % partitions
