"""How long a topic's entries take from the producer to the bookies' answer, counted by the run.

Entries are confirmed in the order in which they were taken: when which were taken is a queue of a
time and a number for each read of a client, and nothing is kept for the single entry.
"""

from __future__ import annotations

from collections import deque

from geminga_broker.counting.buckets import Buckets, count_write, write_latency_buckets
from geminga_broker.counting.durations import Durations


class WriteLatency:
    """One topic's; what it counts goes to ``of_broker`` too. ``shown`` is the last period's."""

    def __init__(self, of_broker: Durations) -> None:
        self.shown = write_latency_buckets()
        self._present = write_latency_buckets()
        self._of_broker = of_broker
        self._taken: deque[tuple[float, int]] = deque()

    def taken(self, entries: int, now_s: float) -> None:
        """So many entries are on their way."""
        self._taken.append((now_s, entries))

    def confirmed(self, entries: int, now_s: float) -> None:
        """The oldest so many of them are durable."""
        taken = self._taken
        while entries and taken:
            taken_s, waiting = taken[0]
            count = min(waiting, entries)
            self._count((now_s - taken_s) * 1000, count)
            if count == waiting:
                taken.popleft()
            else:
                taken[0] = (taken_s, waiting - count)
            entries -= count

    def _count(self, duration_ms: float, times: int) -> None:
        self._of_broker.add(duration_ms, times)
        count_write(self._present, duration_ms, times)

    def given_up(self) -> None:
        """Nothing that is on its way will be confirmed."""
        self._taken.clear()

    def renew(self) -> Buckets:
        """A period is over: it is what is shown from now on."""
        self.shown, self._present = self._present, write_latency_buckets()
        return self.shown
