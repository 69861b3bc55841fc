"""How fast may be dispatched: messages and bytes for each period, as token buckets. Pure.

Whoever finds a token may send, and may owe the rest of what was sent together (a batch, a large
message): then nobody sends before that is paid back.
"""

from __future__ import annotations

from geminga_broker.policies.dispatching import DispatchLimit
from geminga_server.rates.token_bucket import TokenBuckets


class DispatchRate:
    """Counts what is dispatched against ``limit``, which is not unlimited."""

    __slots__ = ("_buckets", "limit")

    def __init__(self, limit: DispatchLimit, now_s: float) -> None:
        assert not limit.is_unlimited
        self.limit = limit
        self._buckets = TokenBuckets(limit.messages, limit.size_bytes, limit.period_s, now_s)

    def available(self, now_s: float) -> tuple[float, float]:
        """How many messages and bytes may be sent; nothing where one of them is not above 0."""
        return self._buckets.available(now_s)

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        """So much was sent."""
        self._buckets.take(messages, size_bytes, now_s)

    def wait_s(self, now_s: float) -> float:
        """How long until something may be sent."""
        return self._buckets.wait_s(now_s, until=1)

    def published(self, messages_per_s: float, bytes_per_s: float, now_s: float) -> None:
        """So fast is published now: a relative limit lies so much above."""
        limit, period_s = self.limit, self.limit.period_s
        if limit.is_relative:
            messages = messages_per_s * period_s + limit.messages
            size_bytes = bytes_per_s * period_s + limit.size_bytes
            self._buckets.change(messages, size_bytes, period_s, now_s)
