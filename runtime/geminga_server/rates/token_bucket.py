"""Token buckets: limits on messages, bytes, or both in a period.

A bucket is full at first and fills up continuously. More may be taken than it holds (a batch, a
large message): the rest is owed, and paid back before anything else. Users choose how long they
wait: dispatchers until there is a token, publishers only until none is owed.
"""

from __future__ import annotations

import math

# Differences below this are errors of floating-point arithmetic.
ROUNDING = 1e-6
ANY_NUMBER = math.inf


# Ten tokens a second, of which a batch takes 25 at once:
#
#     time      0 s           1 s     1.5 s    1.6 s    2.5 s
#     tokens    10 -> -15     -5      0        1        10, and no more
#
# Publishers go on after 1.5 s (``until=0``), dispatchers after 1.6 s (``until=1``).
class TokenBucket:
    """``count`` tokens for each ``period_s``; the bucket holds at most ``count``."""

    __slots__ = ("_capacity", "_filled_at_s", "_rate", "_tokens")

    def __init__(self, count: float, period_s: float, now_s: float) -> None:
        assert count > 0
        assert period_s > 0
        self._capacity = float(count)
        # Tokens per second.
        self._rate = count / period_s
        # How many there were at ``_filled_at_s``; negative: so many were owed.
        self._tokens = float(count)
        self._filled_at_s = now_s

    @classmethod
    def limiting(cls, count: int, period_s: float, now_s: float) -> TokenBucket | None:
        """The bucket for a limit as policies write it; None for 0 and below: there is no limit."""
        return cls(count, period_s, now_s) if count > 0 else None

    def available(self, now_s: float) -> int:
        """How many whole tokens there are; negative: so many are owed."""
        # Rounding may have made a whole token a trifle less.
        return math.floor(self._fill(now_s) + ROUNDING)

    def _fill(self, now_s: float) -> float:
        # A clock that went back adds no tokens, and takes none away.
        elapsed_s = max(0.0, now_s - self._filled_at_s)
        self._tokens = min(self._tokens + elapsed_s * self._rate, self._capacity)
        self._filled_at_s = now_s
        return self._tokens

    def take(self, count: float, now_s: float) -> None:
        """Take ``count`` tokens, even if there are fewer."""
        # Below zero without a bound: a message of any size passes once, and is paid for by waiting.
        self._tokens = self._fill(now_s) - count

    def wait_s(self, now_s: float, *, until: int) -> float:
        """Seconds until there are ``until`` tokens; 0: until none is owed."""
        # Only an estimate where others take from the same bucket meanwhile: callers ask again
        # afterwards.
        return max(0.0, (until - self._fill(now_s)) / self._rate)

    def change(self, count: float, period_s: float, now_s: float) -> None:
        """Change the limit to ``count`` for each ``period_s``; the tokens that there are stay."""
        # By the old rate up to now, by the new one from here on. A debt stays a debt. More tokens
        # than the new capacity are cut off by the next ``_fill``.
        self._fill(now_s)
        self._capacity = float(count)
        self._rate = count / period_s


class TokenBuckets:
    """Limits on messages and on bytes for each ``period_s``, of which at least one is set; 0 and
    below: no limit."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self, messages: int, size_bytes: int, period_s: float, now_s: float) -> None:
        # None for a limit that is not set: a bucket of zero would refuse everything.
        self._messages = TokenBucket.limiting(messages, period_s, now_s)
        self._bytes = TokenBucket.limiting(size_bytes, period_s, now_s)

    def available(self, now_s: float) -> tuple[float, float]:
        """How many messages and bytes there are tokens for; negative: so many are owed."""
        return (
            ANY_NUMBER if self._messages is None else self._messages.available(now_s),
            ANY_NUMBER if self._bytes is None else self._bytes.available(now_s),
        )

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        """Take so many of both, even if there are fewer."""
        if self._messages is not None:
            self._messages.take(messages, now_s)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_s)

    def wait_s(self, now_s: float, *, until: int) -> float:
        """Seconds until there are ``until`` tokens of both; 0: until none is owed."""
        # At least one is set, and the slower one decides.
        buckets = (self._messages, self._bytes)
        return max(each.wait_s(now_s, until=until) for each in buckets if each is not None)

    def change(self, messages: float, size_bytes: float, period_s: float, now_s: float) -> None:
        """Change those limits that are set; the tokens that there are stay."""
        if self._messages is not None:
            self._messages.change(messages, period_s, now_s)
        if self._bytes is not None:
            self._bytes.change(size_bytes, period_s, now_s)
