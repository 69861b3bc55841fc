"""Which entries are held back, a byte an entry: the reader of a log passes over them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.acknowledgement.entry_bitmap import EntryBitmap
from geminga_broker.managed_ledger.positions import Position


@dataclass(slots=True, eq=False)
class DelayedBitmap:
    """A set of positions that are passed over, and read when they are due."""

    # By ledger id. A bitmap may be empty.
    _ledgers: dict[int, EntryBitmap] = field(default_factory=dict[int, EntryBitmap], init=False)
    # How many positions all bitmaps have: counting marks is slow, and ``len`` is called for every
    # run that is read.
    _count: int = field(default=0, init=False)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: tuple[int, int]) -> bool:
        marks = self._ledgers.get(position[0])
        return marks is not None and position[1] in marks

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """Hold an entry back; False where it is held already, or the mark-delete position has
        passed it."""
        marks = self._ledgers.get(ledger_id)
        if marks is None:
            marks = self._ledgers[ledger_id] = EntryBitmap(0)
        # Read again after the mark-delete position has passed it: ``EntryBitmap`` takes no such
        # entry.
        elif entry_id < marks.first:
            return False
        # The length of the ledger is not known here. With this one the bitmap doubles at most.
        is_new = marks.add(entry_id, 2 * entry_id + 1)
        self._count += is_new
        return is_new

    def add_bits(self, ledger_id: int, members: int) -> None:
        """Hold back the entries of a bit set."""
        marks = self._ledgers.get(ledger_id)
        # Bits can be added to an empty bitmap only: what was marked is added again with them.
        if marks is not None:
            self._count -= marks.count()
            members |= marks.bits()
        marks = self._ledgers[ledger_id] = EntryBitmap(0)
        self._count += marks.add_bits(members, members.bit_length())

    def release(self, ledger_id: int, entry_id: int) -> bool:
        """Release an entry; False where it was not held back."""
        marks = self._ledgers.get(ledger_id)
        if marks is None or not marks.discard(entry_id):
            return False
        self._count -= 1
        return True

    def pass_by(self, mark_delete: Position) -> None:
        """Forget everything up to ``mark_delete``."""
        # A list: the dictionary changes meanwhile.
        for ledger_id in [each for each in self._ledgers if each < mark_delete[0]]:
            self._count -= self._ledgers.pop(ledger_id).count()
        marks = self._ledgers.get(mark_delete[0])
        if marks is not None:
            self._count -= marks.cut(mark_delete[1] + 1)

    def run_end(self, ledger_id: int, entry_id: int) -> int:
        """The first entry of the ledger from ``entry_id`` on that is not held back."""
        marks = self._ledgers.get(ledger_id)
        # Before ``first`` lies what the mark-delete position has passed: none of it is held back.
        if marks is None or entry_id < marks.first:
            return entry_id
        return marks.run_end(entry_id)

    def last_of(self, ledger_id: int) -> Position | None:
        """The last entry of the ledger that is held back."""
        # The bitmap may have been emptied by releases, and still be there.
        marks = self._ledgers.get(ledger_id)
        last = None if marks is None else marks.last()
        return None if last is None else Position(ledger_id, last)

    def runs(self, first_ledger_id: int, last_ledger_id: int) -> Iterator[tuple[int, int, int]]:
        """What is held back in these ledgers: ``(ledger_id, first, last)``, in order."""
        for ledger_id in sorted(self._ledgers):
            if first_ledger_id <= ledger_id <= last_ledger_id:
                for first, last in self._ledgers[ledger_id].runs():
                    yield ledger_id, first, last
