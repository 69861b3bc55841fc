"""What one subscription has acknowledged: a mark-delete position and the holes beyond it. Pure.

Entries beyond the mark-delete position are kept as one byte an entry, a bytearray a ledger: setting
one is O(1) in any order, and finding the next unacknowledged one is a ``bytearray.find`` at memory
speed. A ledger holds at most some ten thousand entries, so a million holes are a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from magnetar_broker.log.chain import LedgerChain
from magnetar_broker.log.positions import Position

Words = tuple[int, ...]
"""A bit set in signed 64-bit words, least significant first."""

PositionRange = tuple[Position, Position]
"""``(lower, upper]``: lower excluded, upper included, both in the same ledger, as upstream's."""

# Sets of a million messages, in a batch: an entry has 5 MiB at most, a message six bytes at least.
BATCH_WORDS_MAX = 16 * 1024

# For each bit of a byte: what turns a byte into that bit alone, 0 or 1.
_BITS_OF_BYTE = 8
_ONE_BIT = tuple(bytes(value >> bit & 1 for value in range(256)) for bit in range(_BITS_OF_BYTE))
# Where a range begins, unless at a ledger's first entry.
_HOLE_BEFORE_MARK = b"\0\1"


def bits_set(words: Words) -> int:
    """How many bits are set; words are signed, as protobuf's int64 gives them."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in words)


def _packed(marks: bytearray) -> int:
    """The set of the indexes of ``marks`` that are 1, every eighth of them at once: 2 ns a mark,
    where ``int(digits, 2)`` takes 50."""
    members = 0
    for bit in range(_BITS_OF_BYTE):
        members |= int.from_bytes(marks[bit::_BITS_OF_BYTE], "little") << bit
    return members


def _unpacked(members: int) -> bytearray:
    """The marks of a set."""
    packed = members.to_bytes((members.bit_length() + 7) // _BITS_OF_BYTE, "little")
    marks = bytearray(_BITS_OF_BYTE * len(packed))
    for bit in range(_BITS_OF_BYTE):
        marks[bit::_BITS_OF_BYTE] = packed.translate(_ONE_BIT[bit])
    return marks


class Acknowledged:
    """The set of acknowledged positions of one cursor over ``chain``.

    Everything not greater than ``mark_delete`` is acknowledged; ``mark_delete`` moves by itself
    over whatever joins it.
    """

    def __init__(self, chain: LedgerChain, mark_delete: Position) -> None:
        self._chain = chain
        self.mark_delete = mark_delete
        self._ahead: dict[int, bytearray] = {}
        self._partial: dict[Position, Words] = {}
        self.ahead_count = 0

    def is_acknowledged(self, ledger_id: int, entry_id: int) -> bool:
        """Whether this entry needs no delivery any more."""
        if (ledger_id, entry_id) <= self.mark_delete:
            return True
        marks = self._ahead.get(ledger_id)
        return marks is not None and entry_id < len(marks) and marks[entry_id] == 1

    @property
    def has_holes(self) -> bool:
        """Whether anything beyond the mark-delete position is acknowledged."""
        return self.ahead_count > 0

    def acknowledge(self, ledger_id: int, entry_id: int) -> bool:
        """Acknowledge one entry; False when it was already (or is not in the log at all)."""
        mark = self.mark_delete
        if not self.ahead_count and ledger_id == mark[0] and entry_id == mark[1] + 1:
            span = self._chain.span(ledger_id)
            if span is None or entry_id >= span.entries:
                return False
            self.mark_delete = Position(ledger_id, entry_id)
            if self._partial:
                self._partial.pop(self.mark_delete, None)
            return True
        return self._acknowledge_anywhere(ledger_id, entry_id)

    def _acknowledge_anywhere(self, ledger_id: int, entry_id: int) -> bool:
        span = self._chain.span(ledger_id)
        if span is None or not 0 <= entry_id < span.entries:
            return False
        if self.is_acknowledged(ledger_id, entry_id):
            return False
        marks = self._ahead.setdefault(ledger_id, bytearray())
        if entry_id >= len(marks):
            marks.extend(bytes(max(entry_id + 1, min(2 * len(marks), span.entries)) - len(marks)))
        marks[entry_id] = 1
        self.ahead_count += 1
        if self._partial:
            self._partial.pop(Position(ledger_id, entry_id), None)
        # The entry after the mark was not acknowledged until now: only this one can be it.
        if entry_id == (self.mark_delete[1] + 1 if ledger_id == self.mark_delete[0] else 0):
            self._advance()
        return True

    def acknowledge_upto(self, position: Position) -> bool:
        """Acknowledge everything not greater than ``position``; False when it was already."""
        if position <= self.mark_delete:
            return False
        position = min(position, max(self._chain.last_confirmed, self.mark_delete))
        if position <= self.mark_delete:
            return False
        self.mark_delete = position
        self._forget_passed()
        self._advance()
        return True

    def _advance(self) -> None:
        """Move the mark over acknowledged entries that follow it, across ledgers."""
        while self.ahead_count:
            following = self._chain.next_after(self.mark_delete)
            marks = self._ahead.get(following[0])
            if marks is None or following[1] >= len(marks) or not marks[following[1]]:
                return
            stop = marks.find(0, following[1])
            end = len(marks) if stop < 0 else stop
            self.mark_delete = Position(following[0], end - 1)
            self._forget_passed()

    def _forget_passed(self) -> None:
        ledger_id, entry_id = self.mark_delete
        for passed in [each for each in self._ahead if each < ledger_id]:
            self.ahead_count -= self._ahead.pop(passed).count(1)
        marks = self._ahead.get(ledger_id)
        if marks is not None:
            self.ahead_count -= marks.count(1, 0, entry_id + 1)
            if entry_id + 1 >= len(marks):
                del self._ahead[ledger_id]
            else:
                marks[: entry_id + 1] = bytes(entry_id + 1)
        if self._partial:
            mark = self.mark_delete
            self._partial = {at: bits for at, bits in self._partial.items() if at > mark}

    def reset(self, mark_delete: Position) -> None:
        """Begin anew at ``mark_delete``: nothing beyond it is acknowledged."""
        self.mark_delete = mark_delete
        self._ahead.clear()
        self._partial.clear()
        self.ahead_count = 0

    # Batch indexes: for an entry of which some messages are acknowledged, the 64-bit words of
    # those that are not (bit = 1: still to be consumed), least significant first, as
    # CommandAck.ack_set and BatchedEntryDeletionIndexInfo.deleteSet carry them.

    def acknowledge_batch_indexes(self, ledger_id: int, entry_id: int, remaining: Words) -> bool:
        """Keep only bits also in ``remaining``; True when that acknowledges the whole entry.

        False, and nothing is kept, for an entry that is not in the log, and for a set that is
        longer than a batch may be: its messages are delivered again until the entry is done.
        """
        span = self._chain.span(ledger_id)
        if span is None or not 0 <= entry_id < span.entries or len(remaining) > BATCH_WORDS_MAX:
            return False
        if self.is_acknowledged(ledger_id, entry_id):
            return False
        at = Position(ledger_id, entry_id)
        before = self._partial.get(at)
        words = (
            remaining
            if before is None
            else tuple(a & b for a, b in zip(before, remaining, strict=False))
        )
        if any(words):
            self._partial[at] = words
            return False
        return self.acknowledge(ledger_id, entry_id)

    def remaining_indexes(self, ledger_id: int, entry_id: int) -> Words | None:
        """The words of messages still to be consumed of this entry, or None for all of them."""
        if not self._partial:
            return None
        return self._partial.get(Position(ledger_id, entry_id))

    @property
    def partial_entries(self) -> dict[Position, Words]:
        """Entries with some of their messages acknowledged."""
        return self._partial

    def ranges(self) -> Iterator[PositionRange]:
        """Acknowledged ranges beyond the mark-delete position, in order, ``(lower, upper]``."""
        for ledger_id in sorted(self._ahead):
            marks = self._ahead[ledger_id]
            start = marks.find(1)
            while start >= 0:
                stop = marks.find(0, start)
                end = len(marks) if stop < 0 else stop
                yield Position(ledger_id, start - 1), Position(ledger_id, end - 1)
                start = marks.find(1, end)

    @property
    def range_count(self) -> int:
        """How many ranges there are, counted at memory speed."""
        return sum(
            marks.count(_HOLE_BEFORE_MARK) + marks.startswith(b"\1")
            for marks in self._ahead.values()
        )

    def bits(self) -> dict[int, int]:
        """The same as a bit set of entry ids for each ledger: smaller where there are many."""
        return {ledger_id: _packed(marks) for ledger_id, marks in sorted(self._ahead.items())}

    def restore_bits(self, bits: Mapping[int, int]) -> None:
        """Take over what ``bits`` gave, after ``reset``; entries the log does not have are left."""
        for ledger_id, members in bits.items():
            span = self._chain.span(ledger_id)
            if span is not None:
                marks = _unpacked(members)[: span.entries]
                self._ahead[ledger_id] = marks
                self.ahead_count += marks.count(1)
        self._forget_passed()
        self._advance()

    def restore(
        self, ranges: Iterable[PositionRange], partial: Iterable[tuple[Position, Words]] = ()
    ) -> None:
        """Take over what ``ranges`` and ``partial`` say, after ``reset``."""
        for lower, upper in ranges:
            for ledger_id, first, last in self._spread(lower, upper):
                marks = self._ahead.setdefault(ledger_id, bytearray())
                if last >= len(marks):
                    marks.extend(bytes(last + 1 - len(marks)))
                self.ahead_count += last + 1 - first - marks.count(1, first, last + 1)
                marks[first : last + 1] = b"\1" * (last + 1 - first)
        self._partial.update(partial)
        self._forget_passed()
        self._advance()

    def _spread(self, lower: Position, upper: Position) -> Iterator[tuple[int, int, int]]:
        """A range as ``(ledger_id, first, last)`` of each ledger it touches that still exists."""
        only = self._chain.span(lower[0]) if lower[0] == upper[0] else None
        for span in self._chain.spans if only is None else (only,):
            if lower[0] <= span.ledger_id <= upper[0]:
                first = lower[1] + 1 if span.ledger_id == lower[0] else 0
                last = upper[1] if span.ledger_id == upper[0] else span.entries
                first, last = max(first, 0), min(last, span.entries - 1)
                if first <= last:
                    yield span.ledger_id, first, last
