"""Holds one dispatcher back at the rate limiters of its broker, its topic and its subscription.

There is a throttle only if something is limited. The dispatcher asks it which of the entries
that it could send may pass now, and reports what it has sent; if none may pass, the throttle lets
the dispatcher dispatch again when that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.reading.payloads import message_count
from geminga_broker.policies.dispatch import Counting
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf, RateLimiter
from geminga_server.rates.token_bucket import ANY_NUMBER

# A subscription with fewer entries to read than this keeps up with its topic
# (managedLedgerCursorBackloggedThreshold).
BACKLOG_ENTRIES = 1000


class Stalls:
    """How often rate limiters held one subscription back since its topic was loaded: whose limit
    it was, and whether messages or bytes were used up."""

    __slots__ = ("_by_bytes", "_by_messages")

    def __init__(self) -> None:
        # With all limiters from the beginning: stats show the zeros as well.
        self._by_messages = dict.fromkeys(LimitOf, 0)
        self._by_bytes = dict.fromkeys(LimitOf, 0)

    def note(self, limit_of: LimitOf, messages: float, size_bytes: float) -> None:
        """Count a stall at a limiter that has this much left."""
        self._by_messages[limit_of] += messages <= 0
        self._by_bytes[limit_of] += size_bytes <= 0

    def by_messages(self, limit_of: LimitOf) -> int:
        """How often no message was left."""
        return self._by_messages[limit_of]

    def by_bytes(self, limit_of: LimitOf) -> int:
        """How often no byte was left."""
        return self._by_bytes[limit_of]


class DispatchThrottle:
    """The throttle of one dispatcher, which ``wake`` lets dispatch again."""

    __slots__ = ("_is_called", "_limiters", "_stalls", "_wake", "counting")

    def __init__(
        self,
        limiters: Sequence[RateLimiter],
        counting: Counting,
        wake: Callable[[], None],
        stalls: Stalls | None = None,
    ) -> None:
        self.counting = counting
        self._stalls = stalls or Stalls()
        self._limiters = tuple(limiters)
        self._wake = wake
        # A limiter calls this dispatcher just now: its turn has come, so that it may pass the
        # queues. It waits at one limiter at a time.
        self._is_called = False

    def allow(self, run: list[Entry], is_needed: Callable[[Entry], bool]) -> list[Entry]:
        """The first entries of ``run`` that may pass; if none may, the dispatcher is called later.

        Entries that are not needed, since they are acknowledged, pass in any case.
        """
        # The tokens of the scarcest limiter count.
        messages = size_bytes = ANY_NUMBER
        for limiter in self._limiters:
            left_messages, left_bytes = limiter.available()
            if min(left_messages, left_bytes) <= 0 or (limiter.is_crowded and not self._is_called):
                self._stalls.note(limiter.limit_of, left_messages, left_bytes)
                limiter.wait(self._called)
                return []
            messages, size_bytes = min(messages, left_messages), min(size_bytes, left_bytes)
        # The entry that uses up the rest still passes, though it may be larger than the rest.
        batches_as_one = self.counting.batches_as_one
        for index, entry in enumerate(run):
            if min(messages, size_bytes) <= 0:
                return run[:index]
            if is_needed(entry):
                messages -= 1 if batches_as_one else entry[2] or message_count(entry[1])
                size_bytes -= len(entry[1])
        return run

    def passed(self, entries: int, messages: int, size_bytes: int) -> None:
        """Count what was sent at every limiter."""
        # Acknowledged entries that were skipped took no tokens.
        if entries:
            counted = entries if self.counting.batches_as_one else messages
            for limiter in self._limiters:
                limiter.take(counted, size_bytes)

    def _called(self) -> None:
        self._is_called = True
        # Unset in any case, or after an error this dispatcher would overtake the queues for good.
        try:
            self._wake()
        finally:
            self._is_called = False

    def end(self) -> None:
        """Leave all queues: another throttle, or none, holds the dispatcher back from now on."""
        for limiter in self._limiters:
            limiter.leave(self._called)
