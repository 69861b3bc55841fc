"""When to write the next journal group: at once, or a little later with more company.

A sync costs the same for one entry as for hundreds (about 0.4 ms of CPU: the system call, the way
to a thread and back, waking the clients), so under load it pays to begin one every few milliseconds
only. Whether waiting pays is learned, not configured: clients that keep sending lose nothing by a
wait; clients that have sent all they may, and wait for our answer, get slower by it. So the
interval is tried out: a longer one is kept while as many entries come as before. Where few come,
nobody waits.

Pure: facts in, seconds out.
"""

from __future__ import annotations

# Event loops' timers count milliseconds: a shorter wait cannot be had.
STEP_S = 0.001
# An interval that brings fewer entries together than this is not worth its latency.
COMPANY_MIN = 16
# A group of this many costs less than 2 us for each entry: it need not wait for more.
ENOUGH_ENTRIES = 250
# How long one interval is watched before it is judged.
WINDOW_S = 0.05
# A longer interval is kept if it brings this share of the entries that came before.
KEPT_RATE = 0.95
# Windows between two trials; doubled after each that failed.
FIRST_PATIENCE = 2
PATIENCE_MAX = 64
# After so many windows with an interval it is tried whether more would come without.
TRUST_WINDOWS = 40


class Pacing:
    """Learns the interval between the beginnings of two groups, from 0 to ``interval_max_s``."""

    __slots__ = (
        "_entries",
        "_interval_max_s",
        "_known_interval_s",
        "_known_rate",
        "_patience",
        "_rate",
        "_started_s",
        "_till_doubt",
        "_till_trial",
        "_window_began_s",
        "interval_s",
    )

    def __init__(self, interval_max_s: float) -> None:
        self.interval_s = 0.0
        self._interval_max_s = interval_max_s
        self._started_s = 0.0
        self._window_began_s = 0.0
        self._entries = 0
        self._rate = 0.0
        # What a failed trial goes back to; a trial is on while ``interval_s`` differs from it.
        self._known_interval_s = 0.0
        self._known_rate = 0.0
        self._patience = FIRST_PATIENCE
        # Windows until a longer interval is tried; until it is tried to have none.
        self._till_trial = FIRST_PATIENCE
        self._till_doubt = TRUST_WINDOWS

    def wait_s(self, now_s: float, entries: int) -> float:
        """How long a group of ``entries`` should wait from now on; 0 for not at all."""
        if not self.interval_s or entries >= ENOUGH_ENTRIES:
            return 0.0
        wait_s = self._started_s + self.interval_s - now_s
        wait_s = min(wait_s, (ENOUGH_ENTRIES - entries) / self._rate)
        return wait_s if wait_s >= STEP_S / 2 else 0.0

    def started(self, now_s: float, entries: int) -> None:
        """A group of ``entries`` begins to be written."""
        self._started_s = now_s
        self._entries += entries
        window_s = now_s - self._window_began_s
        if window_s >= WINDOW_S:
            self._rate = self._entries / window_s
            self._window_began_s = now_s
            self._entries = 0
            self._judge()

    def _judge(self) -> None:
        """A window is over: keep or drop what was tried in it, perhaps try something else."""
        if self._rate * self._interval_max_s < COMPANY_MIN:
            self.interval_s = self._known_interval_s = 0.0
        elif self.interval_s > self._known_interval_s:
            self._end_trial(is_kept=self._rate >= self._known_rate * KEPT_RATE)
        elif self.interval_s < self._known_interval_s:
            self._end_trial(is_kept=self._rate * KEPT_RATE > self._known_rate)
        else:
            self._known_rate = self._rate
            self._begin_trial()

    def _end_trial(self, *, is_kept: bool) -> None:
        is_shorter = self.interval_s < self._known_interval_s
        if is_kept:
            self._known_interval_s = self.interval_s
            self._known_rate = self._rate
        else:
            self.interval_s = self._known_interval_s
        # Both a longer interval that failed and none that did better say: do not try longer soon.
        has_failed = is_kept == is_shorter
        self._patience = min(2 * self._patience, PATIENCE_MAX) if has_failed else FIRST_PATIENCE
        self._till_trial = self._patience
        self._till_doubt = TRUST_WINDOWS

    def _begin_trial(self) -> None:
        self._till_trial -= 1
        self._till_doubt -= 1
        if self.interval_s and self._till_doubt <= 0:
            self.interval_s = 0.0
        elif self._till_trial <= 0:
            self.interval_s = min(self.interval_s + STEP_S, self._interval_max_s)
