"""How long a topic's entries take from the producer to the bookies' answer, measured by the run.

Entries are confirmed in the order in which they were taken. So a queue of pairs (when, how many),
one for each read of a client, is enough, and nothing is kept for the single entry.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from geminga_server.metrics import Durations, Histogram

# Upstream's, in milliseconds: dashboards ask for them by name.
WRITE_LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)


def write_latency_histogram() -> Histogram:
    """An empty one, of milliseconds."""
    return Histogram(WRITE_LATENCY_BOUNDS_MS)


@dataclass(slots=True, eq=False)
class WriteLatency:
    """The write latency of one topic; what it measures is added to ``of_broker`` too."""

    of_broker: Durations
    # When entries were taken from a producer (monotonic seconds), and how many of them are not
    # durable yet. The topic appends to it, and clears it when what is under way is given up.
    taken: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]], init=False)
    # The last full stats period, and the one that runs.
    shown: Histogram = field(default_factory=write_latency_histogram, init=False)
    _present: Histogram = field(default_factory=write_latency_histogram, init=False)

    def confirmed(self, entries: int, now_s: float) -> None:
        """Note that the oldest ``entries`` of those under way are durable."""
        taken = self.taken
        while entries and taken:
            taken_s, waiting = taken[0]
            # A pair may be confirmed in parts: bookies answer by their own batches, not by the
            # client's.
            count = min(waiting, entries)
            duration_ms = (now_s - taken_s) * 1000
            self.of_broker.add(duration_ms, count)
            self._present.add(duration_ms, count)
            if count == waiting:
                taken.popleft()
            else:
                taken[0] = (taken_s, waiting - count)
            entries -= count

    def renew(self) -> Histogram:
        """End the stats period and show it from now on."""
        # A new one, not an emptied one: ``shown`` may be in the hands of a collection of metrics.
        self.shown, self._present = self._present, write_latency_histogram()
        return self.shown
