"""Decides when the next of many events is due, so that they are spread evenly over time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False)
class Pace:
    """Limits events to ``rate`` a second from ``start_s`` on; a rate of 0 is no limit.

    Events that were late are caught up on, so that the average is kept.
    """

    # The next event is due at ``start_s`` + ``done`` / ``rate``: nothing else is remembered, so an
    # event that was late does not delay those behind it.
    rate: float
    start_s: float
    # Events that have happened.
    done: int = 0

    def due(self, now_s: float) -> float:
        """How many events are due and have not happened yet; infinitely many without a limit."""
        if not self.rate:
            return inf
        # The first one is due at once. The small addend compensates rounding: where the fourth
        # event at a rate of 10 is due, the difference of times may be 0.2999999 s.
        return int((now_s - self.start_s) * self.rate + 1e-6) + 1 - self.done

    def wait_s(self, now_s: float) -> float:
        """How many seconds to wait for the next event; 0 if it is due."""
        if not self.rate:
            return 0.0
        # Counted from the start and not from the last event: small delays do not add up.
        return max(0.0, self.start_s + self.done / self.rate - now_s)

    def add(self, events: int = 1) -> None:
        """Count events that have happened."""
        self.done += events
