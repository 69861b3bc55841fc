"""Entries that are to be delivered again, each after a delay.

A consumer has one timer for entries that were refused, and another one for those that were received
and may not be acknowledged in time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga._channels.pending.acks import Position

# So many entries are held, of some 200 bytes each. Beyond it the oldest are due at once.
ENTRIES_HELD_MAX = 100_000


@dataclass(slots=True, eq=False)
class DueEntries:
    """Entries with the times at which they are due, in seconds of the loop's clock.

    Time has partitions of ``granularity_s``, and all entries of one are due together at its end:
    adding and removing cost the same however many entries there are, and none has a timer.
    """

    # More than 0.
    granularity_s: float
    held_max: int = ENTRIES_HELD_MAX
    # The three together, for a granularity of 0.1 s:
    #
    #   _numbers        417            418   (a heap)
    #   _partitions     417: {a, c}    418: {}
    #   _partition_of   a: 417, c: 417
    #
    # An entry is in ``_partition_of`` exactly while it is in the partition that is noted there. A
    # number is in the heap exactly once for each partition, and a partition may be empty.
    #
    # The number of the partition of each entry.
    _partition_of: dict[Position, int] = field(default_factory=dict[Position, int], init=False)
    # The entries of each partition, by its number. Inner dicts for their order: a set's order would
    # differ from run to run.
    _partitions: dict[int, dict[Position, None]] = field(
        default_factory=dict[int, dict[Position, None]], init=False
    )
    # A heap of the keys of ``_partitions``: the next one due is the first.
    _numbers: list[int] = field(default_factory=list[int], init=False)

    def add(self, position: Position, due_s: float) -> None:
        """Have an entry due at ``due_s`` or up to ``granularity_s`` later. An entry that is here
        already keeps its time."""
        if position in self._partition_of:
            return
        # Rounded up: an entry is never due before its time.
        number = math.ceil(due_s / self.granularity_s)
        self._partition_of[position] = number
        partition = self._partitions.get(number)
        if partition is None:
            partition = self._partitions[number] = {}
            heapq.heappush(self._numbers, number)
        partition[position] = None

    def remove(self, position: Position) -> None:
        """Take an entry out; it need not be here."""
        number = self._partition_of.pop(position, None)
        # The partition stays, even if it is empty now: taking its number out of the heap would cost
        # a search. ``next_due_s`` drops it when its turn comes.
        if number is not None:
            del self._partitions[number][position]

    def remove_up_to(self, position: Position) -> None:
        """Take this entry out, and all that come before it in their topic."""
        # All are looked at, since they are in the order in which they are due.
        for held in [each for each in self._partition_of if each <= position]:
            self.remove(held)

    @property
    def next_due_s(self) -> float | None:
        """When the next entries are due; ``None`` without entries, 0 while there are too many."""
        while self._numbers and not self._partitions[self._numbers[0]]:
            del self._partitions[heapq.heappop(self._numbers)]
        if not self._numbers:
            return None
        is_too_much = len(self._partition_of) > self.held_max
        return 0.0 if is_too_much else self._numbers[0] * self.granularity_s

    def take_due(self, now_s: float) -> list[Position]:
        """Take out the entries that are due, the earliest first."""
        due: list[Position] = []
        while (next_s := self.next_due_s) is not None and next_s <= now_s:
            number = self._numbers[0]
            is_due = number * self.granularity_s <= now_s
            taken = list(self._partitions[number])
            if not is_due:  # too many are held: the oldest of them leave early
                # Then either no more than ``held_max`` are left, or this partition is empty and the
                # next round takes from the one behind it.
                taken = taken[: len(self._partition_of) - self.held_max]
            for position in taken:
                self.remove(position)
            due += taken
        return due

    def clear(self) -> None:
        """Forget everything: a broker to which the consumer attaches anew delivers it again."""
        self._partition_of.clear()
        self._partitions.clear()
        self._numbers.clear()


class RedeliveryTimer:
    """Calls ``on_due`` with the entries that are due, by one timer for all of them."""

    def __init__(self, granularity_s: float, on_due: Callable[[list[Position]], None]) -> None:
        self._entries = DueEntries(granularity_s)
        # HOT: each acknowledgement calls one of these, so they are no methods of their own. The
        # timer stays as it is, and may find nothing due.
        self.remove: Callable[[Position], None] = self._entries.remove
        self.remove_up_to: Callable[[Position], None] = self._entries.remove_up_to
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        # One timer for the next entries that are due, and the time for which it is set; infinity
        # without one.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = math.inf

    def add(self, position: Position, delay_s: float) -> None:
        """Have an entry due after ``delay_s``."""
        self._entries.add(position, self._loop.time() + delay_s)
        self._set_timer()

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
        self._stop_timer()

    def _set_timer(self) -> None:
        """Have the timer run when the next entries are due; it may run earlier already."""
        due_s = self._entries.next_due_s
        if due_s is None:
            self._stop_timer()
        # Only ever brought forward: a timer that runs before anything is due sets itself anew in
        # ``_fire``.
        elif due_s < self._timer_due_s:
            self._stop_timer()
            self._timer_due_s = due_s
            self._timer = self._loop.call_at(due_s, self._fire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_due_s = math.inf

    def _fire(self) -> None:
        self._stop_timer()
        due = self._entries.take_due(self._loop.time())
        # The timer is set after this call, which may add entries itself.
        if due:
            self._on_due(due)
        self._set_timer()
