"""Holds one dispatcher back at the rate limiters of its broker, its topic and its subscription.

There is a throttle only if something is limited. The dispatcher asks it which of the entries
that it could send may pass now, and reports what it has sent; if none may pass, the throttle lets
the dispatcher dispatch again when that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.reading.payloads import message_count
from geminga_broker.policies.dispatch import Counting
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf, RateLimiter
from geminga_server.rates.token_bucket import ANY_NUMBER

# A subscription with fewer entries to read than this keeps up with its topic
# (managedLedgerCursorBackloggedThreshold).
BACKLOG_ENTRIES = 1000


@dataclass(slots=True, eq=False)
class Stalls:
    """How often rate limiters held one subscription back since its topic was loaded, by whose limit
    it was."""

    # How often no message was left, and no byte. With all limiters from the beginning: stats show
    # the zeros as well.
    by_messages: dict[LimitOf, int] = field(default_factory=lambda: dict.fromkeys(LimitOf, 0))
    by_bytes: dict[LimitOf, int] = field(default_factory=lambda: dict.fromkeys(LimitOf, 0))


@dataclass(slots=True, eq=False)
class DispatchThrottle:
    """The throttle of one dispatcher."""

    limiters: Sequence[RateLimiter]
    counting: Counting
    # Lets the dispatcher dispatch again.
    wake: Callable[[], None]
    stalls: Stalls = field(default_factory=Stalls)
    # A limiter calls this dispatcher just now: its turn has come, so that it may pass the queues.
    # It waits at one limiter at a time.
    _is_called: bool = field(default=False, init=False)

    def allow(self, run: list[Entry], is_needed: Callable[[Entry], bool]) -> list[Entry]:
        """The first entries of ``run`` that may pass; if none may, the dispatcher is called later.

        Entries that are not needed, since they are acknowledged, pass in any case.
        """
        # The tokens of the scarcest limiter count.
        messages = size_bytes = ANY_NUMBER
        for limiter in self.limiters:
            left_messages, left_bytes = limiter.available()
            # A newcomer does not overtake those that wait there.
            if min(left_messages, left_bytes) <= 0 or (limiter.waiting and not self._is_called):
                self.stalls.by_messages[limiter.limit_of] += left_messages <= 0
                self.stalls.by_bytes[limiter.limit_of] += left_bytes <= 0
                # At the first limiter without tokens only: called from there, it asks all of them
                # again.
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
            for limiter in self.limiters:
                limiter.take(counted, size_bytes)

    def _called(self) -> None:
        self._is_called = True
        # Unset in any case, or after an error this dispatcher would overtake the queues for good.
        try:
            self.wake()
        finally:
            self._is_called = False

    def end(self) -> None:
        """Leave all queues: another throttle, or none, holds the dispatcher back from now on."""
        for limiter in self.limiters:
            limiter.waiting.pop(self._called, None)
