"""Which messages survive a compaction: the newest of every key that has a value. Pure.

Messages are numbered as they are read. A key is remembered as a digest with the number of its
newest message, about 150 bytes however long the key is; when all is read, a bit for each message
says whether it stays, and the keys are forgotten. A message in chunks stays with all of its chunks;
upstream keeps the last one only, which no client can assemble. Chunks of a message whose last one
is still to come stay too.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from geminga_broker.compaction.selection.entries import Message

# Two keys with the same digest would lose one: with a billion keys the odds are 1 in 10^20.
DIGEST_BYTES = 16
BYTE_BITS = 8


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=DIGEST_BYTES).digest()


class NewestMessages:
    """Phase one: finds the newest message of every key.

    It is given the messages of every entry in order. ``retain_null_key`` keeps messages without a
    key (topicCompactionRetainNullKey).
    """

    def __init__(self, *, retain_null_key: bool) -> None:
        self._retain_null_key = retain_null_key
        # By digest of the key: the number of its newest message, which has a value.
        self._newest: dict[bytes, int] = {}
        # Messages that stay whatever follows: without a key, or in an entry that stays whole.
        self._always: list[int] = []
        # Chunks of messages that are not complete yet, by digest of the message's uuid.
        self._begun: dict[bytes, list[int]] = {}
        # By the number of the last chunk of a complete message: the numbers of all before it.
        self._chunks: dict[int | None, list[int]] = {}
        # How many messages were seen: the number of the next one.
        self._count = 0
        # How many messages do not survive, as upstream counts them.
        self.removed = 0

    def see(self, messages: Sequence[Message] | None) -> None:
        """Take the ``messages`` of the next entry; None for an entry that stays whole."""
        if messages is None:
            self._always.append(self._count)
            self._count += 1
            return
        if not messages:
            self.removed += 1  # a marker
        for message in messages:
            # The empty place of a message that was compacted out before keeps its number.
            if not message.is_gone:
                self._see_one(message)
            self._count += 1

    def _see_one(self, message: Message) -> None:
        # A message in chunks counts as one, at the place of its last chunk.
        chunk = message.chunk
        if chunk is not None:
            uuid = _digest(chunk.uuid)
            if chunk.is_first:
                # What had this uuid before was never completed: its producer has begun again.
                self._begun[uuid] = []
            begun = self._begun.setdefault(uuid, [])
            if not chunk.is_last:
                begun.append(self._count)
                return
            del self._begun[uuid]
            self._chunks[self._count] = begun
        if message.key is None:
            if self._retain_null_key:
                self._always.append(self._count)
            else:
                self._remove(self._count)
            return
        digest = _digest(message.key)
        former = self._newest.pop(digest, None)
        if not message.has_value:
            # It deletes the key, and does not stay itself. Upstream counts the two as one.
            self._remove(self._count)
            self._chunks.pop(former, None)
        else:
            self._newest[digest] = self._count
            if former is not None:
                self._remove(former)

    def _remove(self, number: int) -> None:
        """Count a message that does not survive; its chunks do not either."""
        self.removed += 1
        self._chunks.pop(number, None)

    def survivors(self) -> Survivors:
        """The messages that stay of all that were seen. Gives up all memory: phase two needs a bit
        for each message only."""
        bits = bytearray(self._count // BYTE_BITS + 1)
        staying = (self._newest.values(), self._always, *self._chunks.values())
        for numbers in (*staying, *self._begun.values()):
            for number in numbers:
                bits[number // BYTE_BITS] |= 1 << number % BYTE_BITS
        for each in (self._newest, self._always, self._chunks, self._begun):
            each.clear()
        return Survivors(bits)


class Survivors:
    """Phase two: which messages stay, for the same entries in the same order."""

    def __init__(self, bits: bytearray) -> None:
        # Bit n of the whole, least significant first, stands for the message of number n.
        self._bits = bits
        # The number of the next message.
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
