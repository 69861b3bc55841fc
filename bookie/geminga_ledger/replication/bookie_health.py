"""How the bookies have behaved lately, as this process has seen it.

A bookie that failed or was slow is in doubt for a moment: reads ask it last, and it replaces no
other bookie while there are better ones. One that fails often (errors and timeouts; links remember
by themselves which bookies cannot be reached) goes into quarantine: ledgers are placed on it only
where no other bookie is left. Facts: ``bookkeeperClientHealthCheck…`` of Pulsar's broker.conf,
whose numbers are the defaults of ``LedgerConfig``.

Pure: times come in, in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True, kw_only=True)
class BookieHealth:
    """What is remembered of all bookies. Grows with the bookies there ever were: tens."""

    # How long a doubt lasts.
    doubt_s: float
    # So many errors within the interval bring a bookie into quarantine, for so long.
    errors_max: int
    interval_s: float
    quarantine_s: float
    # By bookie: when it last gave a reason for doubt, the times of its newest errors, and when its
    # quarantine began.
    _doubted_at_s: dict[str, float] = field(default_factory=dict[str, float], init=False)
    _errors: dict[str, deque[float]] = field(default_factory=dict[str, deque[float]], init=False)
    _quarantined_at_s: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def doubt(self, bookie_id: str, now_s: float) -> None:
        """The bookie was slow, or gave a damaged copy."""
        self._doubted_at_s[bookie_id] = now_s

    def failed(self, bookie_id: str, now_s: float) -> bool:
        """The bookie answered with an error, or not in time.

        Returns whether it is in quarantine from now on, and was not before.
        """
        # A doubt at once, though a quarantine takes several errors: reads ask another bookie from
        # the first error on.
        self.doubt(bookie_id, now_s)
        errors = self._errors.setdefault(bookie_id, deque(maxlen=self.errors_max))
        errors.append(now_s)
        # The oldest of the newest ``errors_max`` errors decides.
        if len(errors) < self.errors_max or now_s - errors[0] > self.interval_s:
            return False
        # The next quarantine needs as many errors again.
        errors.clear()
        was_quarantined = self.is_quarantined(bookie_id, now_s)
        # Where the bookie is in quarantine already, that begins anew: the ledgers that it holds
        # still use it, so it can go on failing.
        self._quarantined_at_s[bookie_id] = now_s
        return not was_quarantined

    def is_doubtful(self, bookie_id: str, now_s: float) -> bool:
        """Whether another bookie should be asked first, if there is one."""
        return self.doubted_at_s(bookie_id, now_s) > -math.inf

    def doubted_at_s(self, bookie_id: str, now_s: float) -> float:
        """When it last gave a reason for doubt; minus infinity where it is not in doubt now."""
        doubted_at_s = self._doubted_at_s.get(bookie_id, -math.inf)
        return doubted_at_s if now_s - doubted_at_s < self.doubt_s else -math.inf

    def is_quarantined(self, bookie_id: str, now_s: float) -> bool:
        """Whether new ledgers should be placed elsewhere."""
        return now_s - self._quarantined_at_s.get(bookie_id, -math.inf) < self.quarantine_s
