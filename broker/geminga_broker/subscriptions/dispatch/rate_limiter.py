"""One dispatch rate, shared by several dispatchers, which queue up when it is used up.

Waiting dispatchers are called first come, first served, as long as tokens are left. A dispatcher
that used all of them waits behind the others the next time, and a newcomer does not overtake the
queue (``waiting``). There is one timer, and only while a dispatcher waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

from geminga_broker.policies.dispatch import DispatchLimit
from geminga_runtime.clock import Clock
from geminga_server.rates.token_bucket import TokenBuckets

log = logging.getLogger(__name__)

# Waiting dispatchers are called no sooner: some hundred messages at once cost less than one by one.
PAUSE_S = 0.1
# Nor later: the clock may have been set back, and a relative limit may have risen meanwhile.
PAUSE_S_MAX = 60.0

Published = Callable[[], tuple[float, float]]
"""How many messages and bytes are published per second."""
Wake = Callable[[], None]


class LimitOf(Enum):
    """Whose consumers share a dispatch rate."""

    BROKER = "broker"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class RateLimiter:
    """The tokens of ``limit``, which is not unlimited.

    A dispatcher that finds a token may send, and owe the rest of what it sends at once (a batch, a
    large message): then no dispatcher sends until that debt is paid. ``published`` gives the
    publish rate, for limits that are relative to it.
    """

    __slots__ = ("_buckets", "_clock", "_published", "_timer", "limit", "limit_of", "waiting")

    def __init__(
        self,
        limit: DispatchLimit,
        clock: Clock,
        published: Published | None = None,
        *,
        limit_of: LimitOf = LimitOf.TOPIC,
    ) -> None:
        assert not limit.is_unlimited
        self.limit = limit
        self.limit_of = limit_of
        self._clock = clock
        self._published = published
        now_s = clock.monotonic()
        self._buckets = TokenBuckets(limit.messages, limit.size_bytes, limit.period_s, now_s)
        # The waiting dispatchers in their order. A dict, so that none waits twice. Dispatchers take
        # themselves out when they get other limiters.
        self.waiting: dict[Wake, None] = {}
        # Runs while a dispatcher waits.
        self._timer: asyncio.TimerHandle | None = None

    def available(self) -> tuple[float, float]:
        """How many messages and bytes may be sent; none unless both are above 0."""
        now_s, limit = self._clock.monotonic(), self.limit
        if self._published is not None and limit.is_relative:
            # The limit is added to the current publish rate. Tokens that are there stay.
            messages_per_s, bytes_per_s = self._published()
            self._buckets.change(
                messages_per_s * limit.period_s + limit.messages,
                bytes_per_s * limit.period_s + limit.size_bytes,
                limit.period_s,
                now_s,
            )
        return self._buckets.available(now_s)

    def take(self, messages: int, size_bytes: int) -> None:
        """Count what was sent."""
        self._buckets.take(messages, size_bytes, self._clock.monotonic())

    # The queue

    def wait(self, wake: Wake) -> None:
        """Call ``wake`` once, when tokens are there and its turn has come."""
        # A dispatcher that waits already keeps its place. Equal bound methods are one key: each
        # dispatcher waits once, however often it asks.
        self.waiting.setdefault(wake)
        if self._timer is None:
            self._call_later()

    def _call_later(self) -> None:
        wait_s = self._buckets.wait_s(self._clock.monotonic(), until=1)
        delay_s = min(max(wait_s, PAUSE_S), PAUSE_S_MAX)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._call)

    def _call(self) -> None:
        self._timer = None
        # At most once each: a dispatcher that waits again is behind those counted here.
        for _ in range(len(self.waiting)):
            if not self.waiting or min(self.available()) <= 0:
                break
            wake = next(iter(self.waiting))
            # Before the call: a dispatcher that still has something to send puts itself in again,
            # behind the others.
            del self.waiting[wake]
            try:
                wake()
            except Exception:
                # A mistake of ours, at one subscription: the others must still be called.
                log.exception("dispatch failed")
        # A dispatcher that waits again has started the timer itself.
        if self.waiting and self._timer is None:
            self._call_later()

    def close(self) -> None:
        """Stop limiting, and call every waiting dispatcher once, in the next turn of the loop."""
        # Not at once: the caller is about to give these dispatchers other limiters.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self.waiting = self.waiting, {}
        for wake in waiting:
            asyncio.get_running_loop().call_soon(wake)
