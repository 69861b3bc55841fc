"""How fast may be dispatched: messages and bytes for each period, as token buckets. Pure.

A bucket holds what one period brings and is full at first; it fills up continuously. Whoever finds
a token in it may send, and may owe it the rest of what was sent together (a batch, a large
message): then nobody sends before that is paid back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ANY_NUMBER = float("inf")
# Less than this is what arithmetic of floats leaves over or loses.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class DispatchLimit:
    """So much in ``period_s``; 0 and below: any number. Where the limit ``is_relative``, it is how
    much faster may be dispatched than is published."""

    messages: int = 0
    size_bytes: int = 0
    period_s: int = 1
    is_relative: bool = False

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages <= 0 and self.size_bytes <= 0


@dataclass(frozen=True, slots=True)
class Counting:
    """What is counted; upstream's names in brackets."""

    of_those_keeping_up: bool = True
    """Whether those are held back that read what was just published
    (dispatchThrottlingOnNonBacklogConsumerEnabled)."""
    batches_as_one: bool = False
    """Whether a batch counts as one message (dispatchThrottlingOnBatchMessageEnabled)."""


COUNT_ALL = Counting()


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

    def wait_s(self, now_s: float) -> float:
        """How long until there is one."""
        return max(0.0, (1 - self._fill(now_s)) / self._rate)

    def change(self, count: float, period_s: float, now_s: float) -> None:
        """From now on so many for so long; what there is stays."""
        self._fill(now_s)
        self._capacity = float(count)
        self._rate = count / period_s


class DispatchRate:
    """Counts what is dispatched against ``limit``, which is not unlimited."""

    __slots__ = ("_bytes", "_messages", "limit")

    def __init__(self, limit: DispatchLimit, now_s: float) -> None:
        assert not limit.is_unlimited
        self.limit = limit
        self._messages = _bucket(limit.messages, limit.period_s, now_s)
        self._bytes = _bucket(limit.size_bytes, limit.period_s, now_s)

    def available(self, now_s: float) -> tuple[float, float]:
        """How many messages and bytes may be sent; nothing where one of them is not above 0."""
        return (
            ANY_NUMBER if self._messages is None else self._messages.available(now_s),
            ANY_NUMBER if self._bytes is None else self._bytes.available(now_s),
        )

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        """So much was sent."""
        if self._messages is not None:
            self._messages.take(messages, now_s)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_s)

    def wait_s(self, now_s: float) -> float:
        """How long until something may be sent."""
        buckets = (self._messages, self._bytes)
        return max(each.wait_s(now_s) for each in buckets if each is not None)

    def published(self, messages_per_s: float, bytes_per_s: float, now_s: float) -> None:
        """So fast is published now: a relative limit lies so much above."""
        limit = self.limit
        period_s = limit.period_s
        if limit.is_relative and self._messages is not None:
            self._messages.change(messages_per_s * period_s + limit.messages, period_s, now_s)
        if limit.is_relative and self._bytes is not None:
            self._bytes.change(bytes_per_s * period_s + limit.size_bytes, period_s, now_s)


def _bucket(count: int, period_s: int, now_s: float) -> TokenBucket | None:
    return TokenBucket(count, period_s, now_s) if count > 0 else None
