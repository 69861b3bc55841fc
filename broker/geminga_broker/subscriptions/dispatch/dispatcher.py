"""What dispatchers of all subscription types share.

A dispatcher asks its reader for the next entries, decides which consumers get them, and sends them.
Nothing here waits: when entries had to be fetched, the reader calls ``dispatch`` again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.policies.dispatch import Counting
from geminga_broker.subscriptions.consumer import Consumer, ConsumerEvent
from geminga_broker.subscriptions.dispatch.cursor_reader import CursorReader
from geminga_broker.subscriptions.dispatch.dispatch_throttle import (
    BACKLOG_ENTRIES,
    DispatchThrottle,
    Stalls,
)
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter


@dataclass(eq=False)
class Dispatcher(ABC):
    """Sends the entries of a managed ledger beyond a cursor to consumers.

    ``SingleDispatcher`` and ``TrackingDispatcher`` add and remove consumers, and take back what
    these give back. The methods here do what is right for a type with one active consumer.
    """

    managed_ledger: ManagedLedger
    cursor: Cursor
    # Connected consumers: the membership's list, which outlives this dispatcher. Distributions
    # share it as well.
    consumers: list[Consumer]
    reader: CursorReader = field(init=False)
    # The consumer that gets everything, for types that have one; it may not be sent anything yet
    # during a handover.
    active: Consumer | None = field(default=None, init=False)
    # Entries sent, or skipped because they were acknowledged.
    entries_sent: int = field(default=0, init=False)
    # No consumer gets more before the consumers have acknowledged some of what they hold.
    is_blocked_on_unacknowledged: bool = field(default=False, init=False)
    # None without dispatch rates: then entries are sent as fast as consumers take them.
    _throttle: DispatchThrottle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # The reader begins after the mark-delete position: a dispatcher is made for the first
        # consumer.
        self.reader = CursorReader(self.managed_ledger, self.cursor, self)

    # Facts

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to a consumer."""
        return self.reader.position

    @property
    def redelivery_backlog(self) -> int:
        """How many entries wait to be sent again."""
        return 0

    @property
    def may_read_on(self) -> bool:
        """Whether there is room for more new entries that must be fetched."""
        return True

    # Sending

    def pass_through(
        self, limiters: Sequence[RateLimiter], counting: Counting, stalls: Stalls | None = None
    ) -> None:
        """Send through ``limiters`` from now on; freely if there are none."""
        # First out of the old queues: a former limiter must not call a dispatcher that no longer
        # passes through it.
        if self._throttle is not None:
            self._throttle.end()
        self._throttle = None
        if limiters:
            stalls = stalls or Stalls()
            self._throttle = DispatchThrottle(limiters, counting, self.dispatch, stalls)
        if self.consumers:
            # The former limiters do not call any more.
            self.dispatch()

    @abstractmethod
    def dispatch(self) -> None:
        """Send what can be sent now: entries were appended or read, a consumer has new permits, or
        a socket has drained."""

    def skip_acknowledged(self) -> None:
        """The cursor was moved on without the consumers: send no entry that it has passed."""
        self.reader.skip_acknowledged()

    def rewind(self) -> None:
        """Begin again after the mark-delete position: the cursor was reset."""
        self.reader.rewind()

    def reached_end(self) -> None:
        """There is nothing more to read now."""
        # Entries that wait to be sent again may still be kept in what was read ahead.
        if not self.redelivery_backlog:
            self.reader.read_ahead.clear()  # all of it was sent
        if self.managed_ledger.termination.at is not None:
            # The last entries may have had nothing for consumers, so that none acknowledges them.
            self.tell_end()

    def tell_end(self) -> None:
        """Tell consumers of a terminated topic, once each, that they have everything, if the
        backlog is empty."""
        # Asked at the end of the log and after each acknowledgement, whichever comes last.
        if not self.cursor.backlog_entries:
            for consumer in self.consumers:
                if not consumer.is_end_told:
                    consumer.is_end_told = True
                    consumer.tell(consumer, ConsumerEvent.REACHED_END)

    def _send_slowly(
        self, ledger_id: int, run: list[Entry], send: Callable[[list[Entry]], int]
    ) -> int:
        """Call ``send`` with the first entries of ``run`` that the throttle lets pass; return how
        many it used. 0 if all must wait: then ``dispatch`` is called when their turn has come."""
        throttle = self._throttle
        assert throttle is not None
        # Policies may exempt subscriptions that keep up with their topic.
        chain = self.managed_ledger.chain
        # What is still to be read, not the backlog: consumers may hold entries unacknowledged for
        # long.
        ahead = chain.entries_between(self.reader.position, chain.last_confirmed)
        keeps_up = ahead < BACKLOG_ENTRIES
        if keeps_up and not throttle.counting.of_those_keeping_up:
            return send(run)
        acknowledged = self.reader.acknowledged_in(ledger_id)

        def is_needed(entry: Entry) -> bool:
            return not acknowledged.is_acknowledged(ledger_id, entry[0])

        allowed = throttle.allow(run, is_needed)
        if not allowed:
            return 0
        # What is counted is what the consumers' counters grow by: how many messages an entry has is
        # known only after it was sent.
        messages, size_bytes, held = self._sent_and_held()
        used = send(allowed)
        messages_after, size_bytes_after, held_after = self._sent_and_held()
        # Entries that tracking consumers hold more than before; other types hold none, and are
        # counted by what is not acknowledged.
        entries = held_after - held or sum(map(is_needed, allowed[:used]))
        throttle.passed(entries, messages_after - messages, size_bytes_after - size_bytes)
        return used

    def _sent_and_held(self) -> tuple[int, int, int]:
        """Messages and bytes sent to the connected consumers, and the entries that they hold."""
        return (
            sum(each.messages_out for each in self.consumers),
            sum(each.bytes_out for each in self.consumers),
            sum(len(each.pending) for each in self.consumers),
        )
