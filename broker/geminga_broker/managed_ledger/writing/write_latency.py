"""How long a topic's entries take from the producer to the bookies' answer, counted by the run.

Entries are confirmed in the order in which they were taken: when which were taken is a queue of a
time and a number for each read of a client, and nothing is kept for the single entry.
"""

from __future__ import annotations

from collections import deque

from geminga_server.metrics import Durations, Histogram

# Upstream's, in milliseconds: dashboards ask for them by name.
WRITE_LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)


def write_latency_histogram() -> Histogram:
    """An empty one, of milliseconds."""
    return Histogram(WRITE_LATENCY_BOUNDS_MS)


class WriteLatency:
    """One topic's; what it counts goes to ``of_broker`` too. ``shown`` is the last period's."""

    def __init__(self, of_broker: Durations) -> None:
        self.shown = write_latency_histogram()
        self._present = write_latency_histogram()
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
            duration_ms = (now_s - taken_s) * 1000
            self._of_broker.add(duration_ms, count)
            self._present.add(duration_ms, count)
            if count == waiting:
                taken.popleft()
            else:
                taken[0] = (taken_s, waiting - count)
            entries -= count

    def given_up(self) -> None:
        """Nothing that is on its way will be confirmed."""
        self._taken.clear()

    def renew(self) -> Histogram:
        """A period is over: it is what is shown from now on."""
        self.shown, self._present = self._present, write_latency_histogram()
        return self.shown
