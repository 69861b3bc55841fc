"""Where dispatchers pass that share a dispatch rate, and queue up while nothing is left of it.

Who waits is called when there is something again, one after the other as they came, each only while
something is left: whoever took it all waits behind the others the next time. Nobody overtakes those
who wait. There is one timer, and only while somebody waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

from geminga_broker.policies.dispatching import DispatchLimit
from geminga_broker.subscriptions.dispatch_rate import DispatchRate
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# Those who wait are called no sooner: a few hundred messages at once cost less than one by one.
PAUSE_S = 0.1
# Nor later: the clock may have been slow, a relative limit may have risen.
PAUSE_S_MAX = 60.0

Published = Callable[[], tuple[float, float]]
"""How many messages and bytes are published a second."""
Wake = Callable[[], None]


class LimitOf(Enum):
    """Whose consumers share a dispatch rate."""

    BROKER = "broker"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class RateLimiter:
    """One dispatch rate. ``published`` is asked where its limit is relative to that."""

    __slots__ = ("_clock", "_published", "_rate", "_timer", "_waiting", "limit_of")

    def __init__(
        self,
        limit: DispatchLimit,
        clock: Clock,
        published: Published | None = None,
        *,
        limit_of: LimitOf = LimitOf.TOPIC,
    ) -> None:
        self.limit_of = limit_of
        self._clock = clock
        self._published = published
        self._rate = DispatchRate(limit, clock.monotonic())
        self._waiting: dict[Wake, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> DispatchLimit:
        """What is counted against."""
        return self._rate.limit

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def available(self) -> tuple[float, float]:
        """How many messages and bytes may pass; none where one of them is not above 0."""
        now_s = self._clock.monotonic()
        if self._published is not None and self._rate.limit.is_relative:
            self._rate.published(*self._published(), now_s)
        return self._rate.available(now_s)

    def take(self, messages: int, size_bytes: int) -> None:
        """So much has passed."""
        self._rate.take(messages, size_bytes, self._clock.monotonic())

    def wait(self, wake: Wake) -> None:
        """Call ``wake`` when there is something again and it is its turn."""
        self._waiting.setdefault(wake)
        if self._timer is None:
            self._call_later()

    def leave(self, wake: Wake) -> None:
        """Do not call ``wake`` any more."""
        self._waiting.pop(wake, None)

    def _call_later(self) -> None:
        delay_s = min(max(self._rate.wait_s(self._clock.monotonic()), PAUSE_S), PAUSE_S_MAX)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._call)

    def _call(self) -> None:
        self._timer = None
        for _ in range(len(self._waiting)):
            if not self._waiting or min(self.available()) <= 0:
                break
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            try:
                wake()
            except Exception:
                # A mistake of ours, at one subscription: the others would wait for ever.
                log.exception("dispatch failed")
        if self._waiting and self._timer is None:
            self._call_later()

    def close(self) -> None:
        """Let everybody go: nothing is limited here any more. They are called once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            asyncio.get_running_loop().call_soon(wake)
