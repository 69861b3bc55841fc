"""What holds one dispatcher back: the gates of its broker, its topic and its subscription.

Made only where something is limited. A dispatcher asks which of the entries that it could send may
pass now, and says what it has sent; where nothing may, it is called when that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.reading.payloads import message_count
from geminga_broker.policies.dispatching import Counting
from geminga_broker.subscriptions.rate_limiter import LimitOf, RateLimiter
from geminga_server.token_bucket import ANY_NUMBER

# Who has fewer entries before it than this keeps up (managedLedgerCursorBackloggedThreshold).
BACKLOG_ENTRIES = 1000


class Stalls:
    """How often one subscription was held back, since its topic was loaded: by whose limit, on
    messages or on bytes."""

    __slots__ = ("_by_bytes", "_by_messages")

    def __init__(self) -> None:
        self._by_messages = dict.fromkeys(LimitOf, 0)
        self._by_bytes = dict.fromkeys(LimitOf, 0)

    def note(self, limit_of: LimitOf, messages: float, size_bytes: float) -> None:
        """Nothing may pass where only so much of one of them is left."""
        self._by_messages[limit_of] += messages <= 0
        self._by_bytes[limit_of] += size_bytes <= 0

    def by_messages(self, limit_of: LimitOf) -> int:
        """How often no message might pass."""
        return self._by_messages[limit_of]

    def by_bytes(self, limit_of: LimitOf) -> int:
        """How often no byte might pass."""
        return self._by_bytes[limit_of]


class DispatchThrottle:
    """Of one dispatcher, which ``wake`` lets dispatch again; ``stalls`` are counted."""

    __slots__ = ("_gates", "_is_called", "_stalls", "_wake", "counting")

    def __init__(
        self,
        gates: Sequence[RateLimiter],
        counting: Counting,
        wake: Callable[[], None],
        stalls: Stalls | None = None,
    ) -> None:
        self.counting = counting
        self._stalls = stalls or Stalls()
        self._gates = tuple(gates)
        self._wake = wake
        # Called by a gate: its turn has come, and it waits at no other.
        self._is_called = False

    def allow(self, run: list[Entry], is_needed: Callable[[Entry], bool]) -> list[Entry]:
        """The entries that ``run`` begins with that may pass; none: wait to be called.

        Those that are not needed, since they are acknowledged, pass in any case.
        """
        messages = size_bytes = ANY_NUMBER
        for gate in self._gates:
            gate_messages, gate_bytes = gate.available()
            if min(gate_messages, gate_bytes) <= 0 or (gate.is_crowded and not self._is_called):
                self._stalls.note(gate.limit_of, gate_messages, gate_bytes)
                gate.wait(self._called)
                return []
            messages, size_bytes = min(messages, gate_messages), min(size_bytes, gate_bytes)
        return self._first_of(run, messages, size_bytes, is_needed)

    def _first_of(
        self,
        run: list[Entry],
        messages: float,
        size_bytes: float,
        is_needed: Callable[[Entry], bool],
    ) -> list[Entry]:
        for index, entry in enumerate(run):
            if min(messages, size_bytes) <= 0:
                return run[:index]
            if is_needed(entry):
                messages -= self._count(entry)
                size_bytes -= len(entry[1])
        return run

    def _count(self, entry: Entry) -> int:
        if self.counting.batches_as_one:
            return 1
        return entry[2] or message_count(entry[1])

    def passed(self, entries: int, messages: int, size_bytes: int) -> None:
        """So much was sent."""
        if entries:
            counted = entries if self.counting.batches_as_one else messages
            for gate in self._gates:
                gate.take(counted, size_bytes)

    def _called(self) -> None:
        self._is_called = True
        try:
            self._wake()
        finally:
            self._is_called = False

    def end(self) -> None:
        """The dispatcher is held back by others from now on, or by none."""
        for gate in self._gates:
            gate.leave(self._called)
