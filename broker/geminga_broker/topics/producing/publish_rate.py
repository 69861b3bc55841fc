"""How fast may be published: token buckets, as upstream's ``PublishRateLimiterImpl``. Pure.

What was sent is always taken; who sent more than there was is not read until nothing is owed. No
more is saved up than what a second brings.
"""

from __future__ import annotations

from geminga_broker.policies.publishing import PublishLimits
from geminga_server.rates.token_bucket import TokenBuckets

# Limits on publishing are said for a second.
PERIOD_S = 1


class PublishRate:
    """Counts what is published against ``limits``, which are not all unlimited.

    ``is_over`` is set where they do not hold any more: then nobody waits for it.
    """

    def __init__(self, limits: PublishLimits, now_s: float) -> None:
        self.limits = limits
        self.is_over = False
        self._buckets = TokenBuckets(limits.messages_per_s, limits.bytes_per_s, PERIOD_S, now_s)

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        """So much was published."""
        self._buckets.take(messages, size_bytes, now_s)

    def wait_s(self, now_s: float) -> float:
        """How long publishers must not be read, 0: they may be now."""
        return 0.0 if self.is_over else self._buckets.wait_s(now_s, until=0)
