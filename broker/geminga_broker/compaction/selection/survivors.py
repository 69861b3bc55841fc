"""Which messages survive a compaction: the newest of every key that has a value. Pure.

Messages are numbered as they are read. A key is remembered as a digest with the number of its
newest message, about 150 bytes however long the key is; when all is read, a bit for each message
says whether it stays, and the keys are forgotten. A message in chunks stays with all of its chunks;
upstream keeps the last one only, which no client can assemble. Chunks of a message whose last one
is still to come stay too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from geminga_broker.compaction.selection.entries import Message

# Two keys with the same digest would lose one: with a billion keys the odds are 1 in 10^20.
DIGEST_BYTES = 16
BYTE_BITS = 8


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True, eq=False)
class NewestMessages:
    """Phase one: finds the newest message of every key.

    It is given the messages of every entry in order.
    """

    # Whether messages without a key are kept (topicCompactionRetainNullKey).
    retain_null_key: bool = field(kw_only=True)
    # How many messages do not survive, as upstream counts them.
    removed: int = field(default=0, init=False)
    # By digest of the key: the number of its newest message, which has a value.
    _newest: dict[bytes, int] = field(default_factory=dict[bytes, int], init=False)
    # Messages that stay whatever follows: without a key, or in an entry that stays whole.
    _always: list[int] = field(default_factory=list[int], init=False)
    # Chunks of messages that are not complete yet, by digest of the message's uuid.
    _begun: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]], init=False)
    # By the number of the last chunk of a complete message: the numbers of all before it.
    _chunks: dict[int | None, list[int]] = field(
        default_factory=dict[int | None, list[int]], init=False
    )
    # How many messages were seen: the number of the next one.
    _count: int = field(default=0, init=False)

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
            # A message whose first chunks were trimmed begins with a later one.
            begun = self._begun.setdefault(uuid, [])
            if not chunk.is_last:
                begun.append(self._count)
                return
            del self._begun[uuid]
            # By the last chunk: that number stands for the message from here on, in ``_newest``
            # too.
            self._chunks[self._count] = begun
        if message.key is None:
            if self.retain_null_key:
                self._always.append(self._count)
            else:
                self._remove(self._count)
            return
        digest = _digest(message.key)
        # Taken out in any case: a message without a value leaves the key without an entry.
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
        # One bit for each message: a hundred million of them take 12 MB.
        bits = bytearray(self._count // BYTE_BITS + 1)
        staying = (self._newest.values(), self._always, *self._chunks.values())
        for numbers in (*staying, *self._begun.values()):
            for number in numbers:
                bits[number // BYTE_BITS] |= 1 << number % BYTE_BITS
        # Before phase two, which may take hours at its rate.
        for each in (self._newest, self._always, self._chunks, self._begun):
            each.clear()
        return Survivors(bits)


@dataclass(slots=True, eq=False)
class Survivors:
    """Phase two: which messages stay, for the same entries in the same order."""

    # Bit n of the whole, least significant first, stands for the message of number n.
    bits: bytearray
    # The number of the next message.
    _count: int = field(default=0, init=False)

    def take(self, places: int) -> list[bool]:
        """For each of the next ``places`` messages, whether it stays."""
        # Numbers go on over entries, as in phase one: an entry that phase two skipped would shift
        # all that follow.
        first = self._count
        self._count += places
        bits = self.bits
        return [
            bits[number // BYTE_BITS] >> number % BYTE_BITS & 1 == 1
            for number in range(first, self._count)
        ]
