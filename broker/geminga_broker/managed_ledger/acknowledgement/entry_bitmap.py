"""Which entries of one ledger are marked, a byte an entry, from a first entry on. Pure.

Cursors mark acknowledged entries, delayed delivery marks entries that are not due. A set would
take 60 bytes an entry; a bit set of Python's integers would be copied for every change. In a
bytearray, marking an entry is O(1) in any order, and the end of a run is found with ``find`` at
memory speed. What the mark-delete position passes is cut off in front, where a bytearray gives it
up without moving the rest: each byte is made, counted and given up once, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_BITS_OF_BYTE = 8
# For each bit of a byte: the table that turns a byte into that bit alone, 0 or 1.
_ONE_BIT = tuple(bytes(value >> bit & 1 for value in range(256)) for bit in range(_BITS_OF_BYTE))
# Where a run begins, unless it begins at the first byte.
_GAP_BEFORE_MARK = b"\0\1"


@dataclass(slots=True, eq=False)
class EntryBitmap:
    """Marks of the entries from ``first`` on. Entries before it count as not marked."""

    first: int
    # A byte for each entry from ``first`` on, 1 where it is marked, as far as any was marked.
    _marks: bytearray = field(default_factory=bytearray, init=False)

    def __contains__(self, entry_id: int) -> bool:
        # A negative index is no error in Python: it would read a mark from the end.
        index = entry_id - self.first
        return 0 <= index < len(self._marks) and self._marks[index] == 1

    # Marking

    def add(self, entry_id: int, entries: int) -> bool:
        """Mark an entry of a ledger of ``entries``; False where it was marked already."""
        # The caller never gives an entry before ``first``: such an index would count from the end.
        marks, index = self._marks, entry_id - self.first
        if index < len(marks):
            if marks[index]:
                return False
        else:
            self._reach(index, entries)
        marks[index] = 1
        return True

    def add_all(self, entry_ids: Sequence[int], entries: int) -> int:
        """Mark entries of a ledger of ``entries``, lowest first; returns how many were not."""
        marks, first = self._marks, self.first
        start, stop = entry_ids[0] - first, entry_ids[-1] + 1 - first
        if stop > len(marks):
            self._reach(stop - 1, entries)
        # Counting before and after is faster than asking each entry, and the ids may repeat.
        marked_before = marks.count(1, start, stop)
        for entry_id in entry_ids:
            marks[entry_id - first] = 1
        return marks.count(1, start, stop) - marked_before

    def _reach(self, index: int, entries: int) -> None:
        """Make room for a mark at ``index``, and for as many marks again where the ledger goes on:
        so entries that are marked in their order do not extend the bytearray one at a time."""
        marks = self._marks
        # Twice as long each time, so that marking n entries in order copies O(n) bytes; never
        # beyond the entries that the ledger has now.
        size = max(index + 1, min(2 * len(marks), entries - self.first))
        marks.extend(bytes(size - len(marks)))

    def add_range(self, first: int, last: int) -> int:
        """Mark the entries from ``first`` to ``last``; returns how many were not."""
        start, stop = max(first - self.first, 0), last + 1 - self.first
        if stop <= start:
            return 0
        if stop > len(self._marks):
            # Exactly: ranges come from a stored record, all at once, and not in steps of one entry.
            self._marks.extend(bytes(stop - len(self._marks)))
        # Before they are marked: a record may name an entry in two ranges.
        fresh = stop - start - self._marks.count(1, start, stop)
        self._marks[start:stop] = b"\1" * (stop - start)
        return fresh

    def add_bits(self, members: int, entries: int) -> int:
        """Mark the bit set ``members`` in an empty bitmap, as far as the ledger of ``entries``
        goes; returns how many entries that are."""
        # Bits before ``first`` stand for what the mark-delete position has passed. Bit n stands for
        # entry n (``bits``), byte n for entry ``first + n``.
        members >>= self.first
        packed = members.to_bytes((members.bit_length() + 7) // _BITS_OF_BYTE, "little")
        marks = bytearray(_BITS_OF_BYTE * len(packed))
        # Every eighth mark at once, from the same bit of each byte.
        for bit in range(_BITS_OF_BYTE):
            marks[bit::_BITS_OF_BYTE] = packed.translate(_ONE_BIT[bit])
        self._marks = marks[: max(entries - self.first, 0)]
        return self.count()

    def discard(self, entry_id: int) -> bool:
        """Take the mark of an entry away; False where it had none."""
        if entry_id not in self:
            return False
        self._marks[entry_id - self.first] = 0
        return True

    def cut(self, first: int) -> int:
        """Begin at ``first`` from now on; returns how many marks are given up."""
        passed = first - self.first
        if passed <= 0:
            return 0
        marked = self._marks.count(1, 0, passed)
        # A bytearray moves its beginning for this, not its bytes.
        del self._marks[:passed]
        self.first = first
        return marked

    # Looking

    def between(self, first: int, last: int) -> bytearray:
        """A byte for each entry from ``first`` to ``last``, 1 where it is marked. ``first`` is not
        before the bitmap's own first entry."""
        known = self._marks[first - self.first : last + 1 - self.first]
        return known.ljust(last + 1 - first, b"\0")

    def run_end(self, entry_id: int) -> int:
        """The first entry from ``entry_id`` on that is not marked."""
        # Not negative: callers ask for entries from ``first`` on.
        start = entry_id - self.first
        if start >= len(self._marks):
            return entry_id
        stop = self._marks.find(0, start)
        return self.first + (len(self._marks) if stop < 0 else stop)

    def unmarked(self, first: int, end: int, count_max: int) -> Sequence[int]:
        """At most ``count_max`` entries from ``first`` on that are not marked, before ``end``."""
        marks, start = self._marks, self.first
        if first - start >= len(marks):
            return range(first, min(end, first + count_max))
        found: list[int] = []
        while len(found) < count_max and (first := self.run_end(first)) < end:
            # ``first`` begins a gap, which ends at the next mark or goes on to ``end``.
            stop = marks.find(1, first - start) if first - start < len(marks) else -1
            stop = end if stop < 0 else min(start + stop, end)
            found += range(first, min(stop, first + count_max - len(found)))
            first = stop
        return found

    def count(self) -> int:
        """How many entries are marked."""
        return self._marks.count(1)

    def last(self) -> int | None:
        """The last entry that is marked."""
        index = self._marks.rfind(1)
        return None if index < 0 else self.first + index

    def runs(self) -> Iterator[tuple[int, int]]:
        """Marked runs in order, the first and the last entry of each."""
        marks, first = self._marks, self.first
        start = marks.find(1)
        while start >= 0:
            stop = marks.find(0, start)
            end = len(marks) if stop < 0 else stop
            yield first + start, first + end - 1
            start = marks.find(1, end)

    @property
    def run_count(self) -> int:
        """How many runs there are, counted at memory speed."""
        # ``count`` finds no overlaps, and these two bytes cannot overlap themselves.
        return self._marks.count(_GAP_BEFORE_MARK) + self._marks.startswith(b"\1")

    def bits(self) -> int:
        """The entry ids as a bit set: bit n stands for entry n."""
        members = 0
        # Every eighth mark at once: 2 ns a mark, where ``int(digits, 2)`` takes 50.
        for bit in range(_BITS_OF_BYTE):
            members |= int.from_bytes(self._marks[bit::_BITS_OF_BYTE], "little") << bit
        # Zeros for all entries before ``first``: protobuf's words begin at entry 0.
        return members << self.first
