"""How long a topic's entries take from the producer to the bookies' answer, measured by the run.

Entries are confirmed in the order in which they were taken. So a queue of pairs (when, how many),
one for each read of a client, is enough, and nothing is kept for the single entry.
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
    """The write latency of one topic; what it measures is added to ``of_broker`` too."""

    def __init__(self, of_broker: Durations) -> None:
        # The last full stats period, and the one that runs.
        self.shown = write_latency_histogram()
        self._present = write_latency_histogram()
        self._of_broker = of_broker
        # When entries were taken (monotonic seconds), and how many of them are not durable yet.
        self._taken: deque[tuple[float, int]] = deque()

    def taken(self, entries: int, now_s: float) -> None:
        """Note that ``entries`` were taken from a producer."""
        self._taken.append((now_s, entries))

    def confirmed(self, entries: int, now_s: float) -> None:
        """Note that the oldest ``entries`` of those under way are durable."""
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
        """Forget what is under way: it will not be confirmed."""
        self._taken.clear()

    def renew(self) -> Histogram:
        """End the stats period and show it from now on."""
        self.shown, self._present = self._present, write_latency_histogram()
        return self.shown
