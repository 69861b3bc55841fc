"""Which messages survive a compaction: the newest of every key that has a value. Pure.

Messages are numbered as they are read. A key is remembered as a digest with the number of its
newest message, about 150 bytes however long the key is; when all is read, a bit for each message
says whether it stays, and the keys are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from magnetar_broker.compaction.entries import Message

# Two keys with the same digest would lose one: with a billion keys the odds are 1 in 10^20.
DIGEST_BYTES = 16
BYTE_BITS = 8


class Newest:
    """Phase one: fed with the messages of every entry, in order.

    ``retain_null_key`` keeps messages without a key (topicCompactionRetainNullKey). ``removed``
    counts the messages that do not survive, as upstream counts them.
    """

    def __init__(self, *, retain_null_key: bool) -> None:
        self._retain_null_key = retain_null_key
        self._newest: dict[bytes, int] = {}
        self._always: list[int] = []
        self._count = 0
        self.removed = 0

    @property
    def keys(self) -> int:
        """How many keys have a value so far."""
        return len(self._newest)

    def see(self, messages: Sequence[Message] | None) -> None:
        """The next entry holds ``messages``; None for one that stays whole."""
        if messages is None:
            self._always.append(self._count)
            self._count += 1
            return
        if not messages:
            self.removed += 1  # a marker
        for message in messages:
            if not message.is_gone:
                self._see_one(message)
            self._count += 1

    def _see_one(self, message: Message) -> None:
        if message.key is None:
            if self._retain_null_key:
                self._always.append(self._count)
            else:
                self.removed += 1
            return
        digest = blake2b(message.key.encode(), digest_size=DIGEST_BYTES).digest()
        if message.has_value:
            self.removed += digest in self._newest
            self._newest[digest] = self._count
        else:
            self.removed += 1
            self._newest.pop(digest, None)

    def survivors(self) -> Survivors:
        """What stays of all that was seen; nothing is remembered here any more."""
        bits = bytearray(self._count // BYTE_BITS + 1)
        for number in self._always:
            bits[number // BYTE_BITS] |= 1 << number % BYTE_BITS
        for number in self._newest.values():
            bits[number // BYTE_BITS] |= 1 << number % BYTE_BITS
        self._newest.clear()
        self._always.clear()
        return Survivors(bits)


class Survivors:
    """Phase two: asked about the same entries in the same order."""

    def __init__(self, bits: bytearray) -> None:
        self._bits = bits
        self._count = 0

    def take(self, places: int) -> list[bool]:
        """For each of the next ``places`` messages, whether it stays."""
        first = self._count
        self._count += places
        bits = self._bits
        return [
            bits[number // BYTE_BITS] >> number % BYTE_BITS & 1 == 1
            for number in range(first, self._count)
        ]
