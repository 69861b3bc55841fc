"""What every dispatcher does, whatever its subscription type: it asks its reader for what comes
next, decides who gets it, and sends it. Nothing here waits: when what had to be fetched is there,
the reader calls ``dispatch`` again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.policies.dispatching import Counting
from geminga_broker.policies.unacknowledged import UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.dispatch.cursor_reader import CursorReader
from geminga_broker.subscriptions.dispatch.dispatch_throttle import (
    BACKLOG_ENTRIES,
    DispatchThrottle,
    Stalls,
)
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter


class Dispatcher(ABC):
    """Hands the entries of ``managed_ledger`` beyond ``cursor`` to the consumers added to it."""

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor) -> None:
        self.consumers: list[Consumer] = []
        self.managed_ledger = managed_ledger
        self.cursor = cursor
        self.reader = CursorReader(managed_ledger, cursor, self)
        self.entries_sent = 0
        # Nobody gets more before consumers have acknowledged some of what they hold.
        self.is_blocked_on_unacknowledged = False
        # None where entries are sent as fast as they are taken.
        self._throttle: DispatchThrottle | None = None

    @property
    def active(self) -> Consumer | None:
        """The consumer that gets everything, for types that have one."""
        return None

    @property
    def read_position(self) -> Position:
        """Where what is new is read next."""
        return self.reader.position

    @property
    def permits(self) -> int:
        """How many messages its consumers can take."""
        return sum(each.permits for each in self.consumers if each.permits > 0)

    @property
    def may_read_on(self) -> bool:
        """Whether there is room for more that is new and must be fetched."""
        return True

    @property
    def is_forgettable(self) -> bool:
        """Whether a new one would do as well, when consumers come back."""
        return False

    def skip_acknowledged(self) -> None:
        """The cursor was moved on by somebody else: what it has passed is not sent any more."""
        self.reader.skip_acknowledged()

    def skip(self, ids: list[EntryId]) -> None:
        """These were acknowledged by somebody else: they are not sent any more."""
        del ids
        self.skip_acknowledged()

    def in_the_way(self, key_shared: KeySharedPolicy) -> Consumer | None:
        """A consumer that has what a further one asks for, where only one can."""
        del key_shared
        return None

    def check_room(self, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Raise ``ConsumerBusy`` where no further consumer may take part, ``ConsumerNotAssigned``
        where ``key_shared`` asks for what it cannot have."""
        del key_shared

    def limit(self, limits: UnacknowledgedLimits) -> None:
        """From now on these hold, where single entries are tracked."""
        del limits

    def pass_through(
        self, gates: Sequence[RateLimiter], counting: Counting, stalls: Stalls | None = None
    ) -> None:
        """From now on what is sent passes these, where there are any."""
        if self._throttle is not None:
            self._throttle.end()
        self._throttle = DispatchThrottle(gates, counting, self.dispatch, stalls) if gates else None
        if self.consumers:
            self.dispatch()

    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone; what it held unacknowledged goes to others."""

    @abstractmethod
    def dispatch(self) -> None:
        """Send what can be sent now: entries came, permits came, a socket drained."""

    @abstractmethod
    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Send again what ``consumer`` holds: ``positions``, or everything for None."""

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Entries were acknowledged: whoever tracks single entries forgets them; True where
        something can be sent now that could not before. Those that may be ``unheld``, and only
        those, may have waited to be sent."""
        del ids, unheld
        return False

    def rewind(self) -> None:
        """Begin again after the mark-delete position (a seek)."""
        self.reader.rewind()

    def reached_end(self) -> None:
        """There is nothing more to read now."""
        if not self.redelivery_backlog:
            self.reader.fetched.clear()  # all is delivered
        if self.managed_ledger.termination.at is not None:
            self.tell_end()  # what came last may have been for nobody

    def tell_end(self) -> None:
        """Tell consumers, once each, where all that will ever come is acknowledged."""
        if not self.cursor.backlog_entries:
            for consumer in self.consumers:
                consumer.tell_end()

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to somebody."""
        return self.reader.position

    @property
    def redelivery_backlog(self) -> int:
        """Entries waiting to be sent again."""
        return 0

    def _send_slowly(
        self, ledger_id: int, run: list[Entry], send: Callable[[list[Entry]], int]
    ) -> int:
        """Where there is a throttle: let ``send`` have of ``run`` what may be sent now; how many
        entries it used. 0: all must wait, and ``dispatch`` is called when it is their turn."""
        throttle = self._throttle
        assert throttle is not None
        keeps_up = self.reader.entries_ahead < BACKLOG_ENTRIES
        if keeps_up and not throttle.counting.of_those_keeping_up:
            return send(run)
        acknowledged = self.reader.acknowledged_in(ledger_id)

        def is_needed(entry: Entry) -> bool:
            return not acknowledged.is_acknowledged(ledger_id, entry[0])

        allowed = throttle.allow(run, is_needed)
        if not allowed:
            return 0
        messages, size_bytes, held = self._sent_and_held()
        used = send(allowed)
        messages_after, size_bytes_after, held_after = self._sent_and_held()
        entries = held_after - held or sum(map(is_needed, allowed[:used]))
        throttle.passed(entries, messages_after - messages, size_bytes_after - size_bytes)
        return used

    def _sent_and_held(self) -> tuple[int, int, int]:
        """Messages and bytes sent to those who are connected, and entries that they hold."""
        return (
            sum(each.messages_out for each in self.consumers),
            sum(each.bytes_out for each in self.consumers),
            sum(len(each.pending) for each in self.consumers),
        )
