"""A token bucket: so much in a time, taken at once or bit by bit. Pure.

A bucket is full at first and fills up continuously. More may be taken than it holds (a batch, a
large message): the rest is owed, and paid back before anything else. Who may go on when is its
user's choice: dispatchers wait until there is a token, publishers only until none is owed.
"""

from __future__ import annotations

import math

# Less than this is what arithmetic of floats leaves over or loses.
ROUNDING = 1e-6


class TokenBucket:
    """``count`` tokens for each ``period_s``, which is also the most that it holds."""

    __slots__ = ("_capacity", "_filled_at_s", "_rate", "_tokens")

    def __init__(self, count: float, period_s: float, now_s: float) -> None:
        assert count > 0
        assert period_s > 0
        self._capacity = float(count)
        self._rate = count / period_s
        self._tokens = float(count)
        self._filled_at_s = now_s

    @classmethod
    def limiting(cls, count: int, period_s: float, now_s: float) -> TokenBucket | None:
        """The bucket for a limit as policies write it: None, nothing to count, for 0 and below."""
        return cls(count, period_s, now_s) if count > 0 else None

    def available(self, now_s: float) -> int:
        """How many whole ones there are; below 0: so many are owed."""
        return math.floor(self._fill(now_s) + ROUNDING)

    def _fill(self, now_s: float) -> float:
        # A clock that went back brings nothing, and takes nothing away.
        elapsed_s = max(0.0, now_s - self._filled_at_s)
        self._tokens = min(self._tokens + elapsed_s * self._rate, self._capacity)
        self._filled_at_s = now_s
        return self._tokens

    def take(self, count: float, now_s: float) -> None:
        """Take ``count`` tokens, though there be fewer."""
        self._tokens = self._fill(now_s) - count

    def wait_s(self, now_s: float, *, until: int) -> float:
        """How long until there are so many; until 0: until none is owed."""
        return max(0.0, (until - self._fill(now_s)) / self._rate)

    def change(self, count: float, period_s: float, now_s: float) -> None:
        """From now on so many for so long; what there is stays."""
        self._fill(now_s)
        self._capacity = float(count)
        self._rate = count / period_s
