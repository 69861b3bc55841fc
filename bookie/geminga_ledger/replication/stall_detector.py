"""Detects a bookie that owes answers and gives none, even where no entry waits for them.

Where an ack quorum is smaller than the write quorum, entries are confirmed without the slowest
bookie. One that hangs for good would leave every entry a copy short, and nothing would stop for it.
So a periodic check compares the last answers of each bookie with those of the check before. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Answers = Sequence[int]
"""Entry ids that one read brought from a bookie. Only its identity matters here."""


@dataclass(eq=False, slots=True)
class StallDetector:
    """Remembers, for each bookie of an ensemble, since when it has answered nothing."""

    # By bookie: its last answers at the check before, and when they were first seen.
    _seen: dict[int, tuple[Answers, float]] = field(
        default_factory=dict[int, tuple[Answers, float]], init=False
    )

    # The first unconfirmed entry at the check before, and since when it has been that.
    _oldest: int = field(default=-1, init=False)
    _oldest_since_s: float = field(default=0.0, init=False)

    def waited_s(self, oldest: int, now_s: float) -> float:
        """For how long ``oldest`` (-1: none) has been the first unconfirmed entry, in whole checks.

        Called at each check: an entry counts from the first check that finds it in front.
        """
        if oldest != self._oldest:
            self._oldest, self._oldest_since_s = oldest, now_s
        return now_s - self._oldest_since_s

    def silent_s(self, bookie: int, last: Answers, now_s: float, *, owes: bool) -> float:
        """For how long ``bookie`` has owed answers without giving any, in whole checks.

        ``last`` is what it answered last: another object each time it did.
        """
        seen = self._seen.get(bookie)
        # Three ways in which the time begins anew: nothing is owed, this is the first check, or an
        # answer has come since the last one. By identity: an answer that repeats entries is an
        # answer as well.
        if not owes or seen is None or seen[0] is not last:
            self._seen[bookie] = last, now_s
            return 0.0
        return now_s - seen[1]
