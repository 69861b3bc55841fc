"""Messages in the order of their delivery times: a timing wheel of packed arrays. Pure.

The wheel is hierarchical: a message takes 24 bytes in a slot, and there are a few hundred slots at
most, however many messages there are and however far in the future they are due. Adding is O(1); a
message is moved to a finer slot once for each level at most (six levels are 500 years), all of a
slot at a time.

Time is counted in ticks. A message belongs to the first tick that begins at or after its delivery
time, so it comes out never early, and a tick late at most::

    level 0     1 tick a slot        the ticks of one level-1 slot
    level 1     64 ticks a slot      the slots of one level-2 slot
    level 2     4,096 ticks a slot   …

When time enters a slot of level n, its messages are distributed over the slots of lower levels.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TypeAlias

from geminga_protocol.records.topics.delayed_buckets import DelayedIndex

# A slot of level n spans 64**n ticks; the slots of a level are those of one slot of the next.
LEVEL_BITS = 6
# Three signed 64-bit numbers: when it is due, its ledger, its entry.
MESSAGE_NUMBERS = 3
MESSAGE_BYTES = 8 * MESSAGE_NUMBERS

_Slot: TypeAlias = "array[int]"


def _messages(slot: _Slot) -> Iterator[DelayedIndex]:
    numbers = iter(slot)
    return zip(numbers, numbers, numbers, strict=True)


class TimeWheel:
    """Messages by delivery time, in ticks of ``tick_ms``. ``now_ms`` is the time at the start."""

    def __init__(self, now_ms: int, tick_ms: int) -> None:
        assert tick_ms > 0
        self._tick_ms = tick_ms
        # Everything of this tick and before has been taken out of the slots.
        self._tick = now_ms // tick_ms
        # By level: the slots that are not empty, by their number (a tick's number without the lower
        # digits). All slots of a level are earlier than those of the next.
        self._levels: list[dict[int, _Slot]] = []
        # Messages that are due and were not taken yet, in no order within a tick.
        self._due: _Slot = array("q")
        # The numbers in all slots together, three for each message.
        self._numbers_waiting = 0

    def __len__(self) -> int:
        return (self._numbers_waiting + len(self._due)) // MESSAGE_NUMBERS

    def add(self, deliver_at_ms: int, ledger_id: int, entry_id: int) -> None:
        """Add a message, in any order."""
        tick = -(-deliver_at_ms // self._tick_ms)
        # Rounded up, so that nothing is early. What is due by now belongs to no slot any more.
        if tick <= self._tick:
            self._due.extend((deliver_at_ms, ledger_id, entry_id))
            return
        # The highest digit (of 6 bits) in which the tick differs from the present one: below that
        # digit the message is somewhere in a slot that time has not entered yet.
        level = ((tick ^ self._tick).bit_length() - 1) // LEVEL_BITS
        while level >= len(self._levels):
            self._levels.append({})
        slots = self._levels[level]
        number = tick >> level * LEVEL_BITS
        slot = slots.get(number)
        if slot is None:
            slot = slots[number] = array("q")
        slot.extend((deliver_at_ms, ledger_id, entry_id))
        self._numbers_waiting += MESSAGE_NUMBERS

    def next_ms(self) -> int | None:
        """When to check again (Unix time): nothing is due before. None where there is nothing.

        For a slot of a higher level that is when the slot begins; its messages may be later.
        """
        if self._due:
            return self._tick * self._tick_ms
        found = self._first_slot()
        if found is None:
            return None
        level, number = found
        return (number << level * LEVEL_BITS) * self._tick_ms

    def _first_slot(self) -> tuple[int, int] | None:
        for level, slots in enumerate(self._levels):
            if slots:
                return level, min(slots)
        return None

    def take_due(self, now_ms: int, count_max: int) -> list[DelayedIndex]:
        """Take out at most ``count_max`` messages that are due, the earliest tick first."""
        tick = now_ms // self._tick_ms
        numbers = count_max * MESSAGE_NUMBERS
        # Only as many turns as are needed: what else is due stays in its slots.
        while len(self._due) < numbers and self._turn(tick):
            pass
        taken = self._due[:numbers]
        del self._due[:numbers]
        return list(_messages(taken))

    def has_due(self, now_ms: int, count: int) -> bool:
        """Whether at least ``count`` messages are due."""
        numbers = count * MESSAGE_NUMBERS
        while len(self._due) < numbers:
            if not self._turn(now_ms // self._tick_ms):
                return False
        return True

    def _turn(self, tick_max: int | None = None) -> bool:
        """Go on to the next slot that is not empty; False where it begins after ``tick_max``."""
        found = self._first_slot()
        if found is None:
            return False
        level, number = found
        tick = number << level * LEVEL_BITS
        if tick_max is not None and tick > tick_max:
            return False
        slot = self._levels[level].pop(number)
        self._numbers_waiting -= len(slot)
        # Only the beginning of that slot, though time may be further by now: slots in between are
        # still to be turned.
        self._tick = tick
        if level == 0:
            self._due.extend(slot)
        else:
            # Relative to the tick that was just set, they belong to lower levels.
            for message in _messages(slot):
                self.add(*message)
        return True

    def in_order(self) -> Iterator[list[DelayedIndex]]:
        """All messages in the order of their times, in pieces; the wheel itself stays as it is.

        Messages may be taken out meanwhile, but none added.
        """
        copy = TimeWheel(0, self._tick_ms)
        copy._tick = self._tick
        copy._due = self._due[:]
        # Slots are shared: turning takes them out of the copy's levels and changes none of them.
        copy._levels = [dict(slots) for slots in self._levels]
        copy._numbers_waiting = self._numbers_waiting
        while True:
            piece, copy._due = copy._due, array("q")
            if piece:
                yield sorted(_messages(piece))
            if not copy._turn():
                return
