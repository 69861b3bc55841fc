"""How fast clients may publish: token buckets, as upstream's ``PublishRateLimiterImpl``. Pure.

A run that was sent is always taken, even beyond the limit. A connection that sent more than there
was is not read until the debt is paid. At most the tokens of one second are saved up.
"""

from __future__ import annotations

from geminga_broker.policies.publish import PublishLimits
from geminga_server.rates.token_bucket import TokenBuckets

# Limits on publishing are stated per second.
PERIOD_S = 1


class PublishRate:
    """Counts what is published against ``limits``, at least one of which is a limit."""

    def __init__(self, limits: PublishLimits, now_s: float) -> None:
        self.limits = limits
        # Set when other limits have replaced these: connections that are paused by this rate are
        # read again at their next check. They look again after ``THROTTLE_REVIEW_S`` of
        # ``sessions.back_pressure``, a second, at the latest.
        self.is_over = False
        # What is published is taken out of them; they may go below zero.
        self.buckets = TokenBuckets(limits.messages_per_s, limits.bytes_per_s, PERIOD_S, now_s)

    def wait_s(self, now_s: float) -> float:
        """How many seconds the connections must not be read; 0 if they may be read now."""
        # Until no token is owed, not until there is one: the next run may then come, whatever its
        # size.
        return 0.0 if self.is_over else self.buckets.wait_s(now_s, until=0)
