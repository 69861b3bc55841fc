"""When the journal writes its next group: at once, or a little later with more entries.

A sync costs the same for one entry as for hundreds (about 0.4 ms of CPU: the system call, the way
to a thread and back, waking the clients), so under load it pays to begin one every few milliseconds
only. Whether waiting pays is learned, not configured. Clients that keep sending lose nothing by a
wait; clients that have a limited number of adds in flight, and wait for our answers, get slower by
it. So intervals are tried out: a longer one is kept while as many entries come as before. Where few
entries come, no group waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Event loops' timers count milliseconds: a shorter wait cannot be had.
STEP_S = 0.001
# An interval that brings fewer entries together than this is not worth its latency.
COMPANY_MIN = 16
# In a group of this many an entry costs less than 2 us of the sync: it need not wait for more. (0.4
# ms of CPU by 250 are 1.6 us.)
ENOUGH_ENTRIES = 250
# How long an interval is watched before it is judged.
WINDOW_S = 0.05
# A longer interval is kept if it brings at least this share of the entries that came before.
KEPT_RATE = 0.95
# Windows before a longer interval is tried; each trial that fails doubles them, up to the maximum.
TRIAL_DELAY_MIN = 2
TRIAL_DELAY_MAX = 64
# Windows with an interval before it is tried whether more entries would come without one. That is
# every 2 seconds: what clients do may have changed.
TRUST_WINDOWS = 40


@dataclass(slots=True, eq=False)
class GroupPacing:
    """Learns the interval between the beginnings of two groups, from 0 to ``interval_max_s``.

    Time is divided into windows. At the end of each, the rate of entries in it says whether the
    interval that was on trial is kept, and whether another one is tried in the next window.
    """

    interval_max_s: float
    # The interval now; 0: no group waits.
    #
    # How the interval changes, at the end of windows:
    #
    #     settled: it is the known one
    #       |-- _till_trial is 0: one STEP_S more is on trial
    #       |     at least 95 % of the known rate: it becomes the known one (clients keep sending)
    #       |     less: back to the known one (clients wait for our answers)
    #       |-- _till_doubt is 0: no interval is on trial
    #       |     over 5 % more than the known rate: none becomes the known one
    #       |     else: back to the known one
    #       '-- too few entries come: none becomes the known one, at once
    interval_s: float = 0.0
    # When the last group began to be written.
    _started_s: float = field(init=False, default=0.0)
    _window_began_s: float = field(init=False, default=0.0)
    # Entries in this window so far, and entries per second in the last one.
    _entries: int = field(init=False, default=0)
    _rate: float = field(init=False, default=0.0)
    # What a failed trial goes back to, and the rate that a trial is compared with. A trial is on
    # while ``interval_s`` differs from the known interval.
    _known_interval_s: float = field(init=False, default=0.0)
    _known_rate: float = field(init=False, default=0.0)
    # Windows between two trials of a longer interval, and those that are left until the next.
    _trial_delay: int = field(init=False, default=TRIAL_DELAY_MIN)
    _till_trial: int = field(init=False, default=TRIAL_DELAY_MIN)
    # Windows until it is tried to have no interval.
    _till_doubt: int = field(init=False, default=TRUST_WINDOWS)

    def wait_s(self, now_s: float, entries: int) -> float:
        """How long a group of ``entries`` should wait from now on; 0 for not at all."""
        if not self.interval_s or entries >= ENOUGH_ENTRIES:
            return 0.0
        wait_s = self._started_s + self.interval_s - now_s
        # At the rate of the last window the group may be large enough sooner. The rate is never 0
        # here: there is an interval only after a window in which enough entries came.
        wait_s = min(wait_s, (ENOUGH_ENTRIES - entries) / self._rate)
        # A timer would round anything shorter up to a whole step.
        return wait_s if wait_s >= STEP_S / 2 else 0.0

    def started(self, now_s: float, entries: int) -> None:
        """Note that a group of ``entries`` begins to be written."""
        self._started_s = now_s
        self._entries += entries
        window_s = now_s - self._window_began_s
        if window_s < WINDOW_S:
            return
        self._rate = self._entries / window_s
        self._window_began_s = now_s
        self._entries = 0
        if self._rate * self.interval_max_s < COMPANY_MIN:
            # Too few entries come for any interval to pay. Always the case where ``interval_max_s``
            # is 0: then no group ever waits.
            self.interval_s = self._known_interval_s = 0.0
        elif self.interval_s > self._known_interval_s:
            self._end_trial(is_kept=self._rate >= self._known_rate * KEPT_RATE)
        elif self.interval_s < self._known_interval_s:
            # Less than 5 % more may be chance, and syncs cost CPU: the interval is kept then.
            self._end_trial(is_kept=self._rate * KEPT_RATE > self._known_rate)
        else:
            self._known_rate = self._rate
            self._till_trial -= 1
            self._till_doubt -= 1
            if self.interval_s and self._till_doubt <= 0:
                self.interval_s = 0.0
            elif self._till_trial <= 0:
                # At the maximum nothing changes, and so no trial begins.
                self.interval_s = min(self.interval_s + STEP_S, self.interval_max_s)

    def _end_trial(self, *, is_kept: bool) -> None:
        is_shorter = self.interval_s < self._known_interval_s
        if is_kept:
            self._known_interval_s = self.interval_s
            self._known_rate = self._rate
        else:
            self.interval_s = self._known_interval_s
        # That a longer interval failed, and that none did better, both say: clients wait for us, do
        # not try a longer one soon.
        has_failed = is_kept == is_shorter
        self._trial_delay = (
            min(2 * self._trial_delay, TRIAL_DELAY_MAX) if has_failed else TRIAL_DELAY_MIN
        )
        self._till_trial = self._trial_delay
        self._till_doubt = TRUST_WINDOWS
