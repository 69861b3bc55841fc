"""What every dispatcher does, whatever its subscription type, and how it reads what is not cached.

Dispatching is synchronous as long as entries are in the cache. One that is not costs one read task
at a time for each dispatcher; when it is done the entries are handed out like cached ones.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from geminga_broker.errors import BrokerError, EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.acknowledged import Acknowledged
from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.fetched_entries import FetchedEntries
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.payloads import counted
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.policies.dispatching import Counting
from geminga_broker.policies.unacknowledged import UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.damage import Damage
from geminga_broker.subscriptions.dispatch_throttle import BACKLOG_ENTRIES, DispatchThrottle, Stalls
from geminga_broker.subscriptions.key_shared.policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.rate_limiter import RateLimiter

log = logging.getLogger(__name__)

# Entries handed out before others get a turn; a cached run is a slice, so this bounds its copy.
RUN_ENTRIES_MAX = 500
READ_RETRY_S = 0.5


class Dispatcher(ABC):
    """Hands the entries of ``managed_ledger`` beyond ``cursor`` to the consumers added to it."""

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor) -> None:
        self.consumers: list[Consumer] = []
        self.managed_ledger = managed_ledger
        self.cursor = cursor
        self.read_position = self._after_mark_delete()
        self.entries_sent = 0
        self.entries_fetched = 0
        # Nobody gets more before consumers have acknowledged some of what they hold.
        self.is_blocked_on_unacknowledged = False
        # None where entries are sent as fast as they are taken.
        self._throttle: DispatchThrottle | None = None
        self._is_reading = False
        self._damage: Damage | None = None
        self._fetched = FetchedEntries(managed_ledger.reader.fetched_budget)
        # Whether the entries to read next came from there, rather than from the cache.
        self._is_fetched = False
        # Grows where what is being fetched meanwhile is of no use any more.
        self._beginnings = 0

    @property
    def active(self) -> Consumer | None:
        """The consumer that gets everything, for types that have one."""
        return None

    @property
    def is_reading(self) -> bool:
        """Whether entries are being fetched from bookies."""
        return self._is_reading

    @property
    def is_forgettable(self) -> bool:
        """Whether a new one would do as well, when consumers come back."""
        return False

    def skip_acknowledged(self) -> None:
        """The cursor was moved on by somebody else: what it has passed is not sent any more."""
        self.read_position = max(self.read_position, self._after_mark_delete())

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
        self.read_position = self._after_mark_delete()
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing that was fetched."""
        self._beginnings += 1
        self._fetched.clear()

    def tell_end(self) -> None:
        """Tell consumers, once each, where all that will ever come is acknowledged."""
        if not self.cursor.backlog_entries:
            for consumer in self.consumers:
                consumer.tell_end()

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to somebody."""
        return self.read_position

    @property
    def redelivery_backlog(self) -> int:
        """Entries waiting to be sent again."""
        return 0

    def _pass_over(self, ledger_id: int, entry_id: int) -> None:
        """An entry has nothing for consumers: it is done with (as upstream)."""
        if self.cursor.acknowledged.acknowledge(ledger_id, entry_id):
            self.cursor.changed()

    def _after_mark_delete(self) -> Position:
        return self.managed_ledger.chain.next_after(self.cursor.mark_delete)

    def _next_run(self) -> tuple[int, list[Entry]] | None:
        """The entries to read next, of one ledger; None at the end of the log or while reading."""
        chain = self.managed_ledger.chain
        position = self.read_position
        if position <= self.cursor.mark_delete:  # somebody acknowledged what was still to be sent
            position = chain.next_after(self.cursor.mark_delete)
        position = self._first_open(chain.readable_from(position))
        self.read_position = position
        span = chain.span(position[0])
        if span is None or position[1] >= span.entries:
            if not self.redelivery_backlog:
                self._fetched.clear()  # all is delivered
            if self.managed_ledger.termination.at is not None:
                self.tell_end()  # what came last may have been for nobody
            return None
        run = self._entries_at(position)
        return (position[0], run) if run else None

    def _first_open(self, position: Position) -> Position:
        """The first position from ``position`` on that is not acknowledged."""
        acknowledged = self.cursor.acknowledged
        while acknowledged.has_holes:
            end = acknowledged.run_end(*position)
            if end == position[1]:
                break
            position = self.managed_ledger.chain.readable_from(Position(position[0], end))
        return position

    def _send_slowly(
        self,
        throttle: DispatchThrottle,
        acknowledged: Acknowledged,
        ledger_id: int,
        run: list[Entry],
        send: Callable[[list[Entry]], int],
    ) -> int:
        """Let ``send`` have of ``run`` what may be sent now; how many entries it used. 0: all must
        wait, and ``dispatch`` is called when it is their turn."""
        if not throttle.counting.of_those_keeping_up and self._keeps_up:
            return send(run)

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

    @property
    def _keeps_up(self) -> bool:
        """Whether little lies between what was published last and what is read next."""
        chain = self.managed_ledger.chain
        return chain.entries_between(self.read_position, chain.last_confirmed) < BACKLOG_ENTRIES

    @staticmethod
    def _after(ledger_id: int, run: list[Entry], used: int) -> Position:
        """Where to read on when the first ``used`` entries of ``run`` are done with."""
        return Position(ledger_id, run[used][0] if used < len(run) else run[-1][0] + 1)

    def _entries_at(self, position: Position, count_max: int = RUN_ENTRIES_MAX) -> list[Entry]:
        """The next entries from ``position`` on, cached or fetched; empty when they must be awaited
        first. Only acknowledged ones are left out between them."""
        run = self.managed_ledger.reader.cached_run(position, count_max)
        self._is_fetched = not run
        if not run:
            run = self._fetched.run(position, count_max)
        if not run and self._may_read_on and self._can_fetch(position):
            ledger_id, first = position
            span = self.managed_ledger.chain.span(ledger_id)
            assert span is not None, f"there is nothing to read at {position}"
            open_ids = self.cursor.acknowledged.open_ids
            self._fetch_soon(position, open_ids(ledger_id, first, span.entries, self._fetch_max))
        return run

    @property
    def _may_read_on(self) -> bool:
        """Whether there is room for more that is new."""
        return True

    def _can_fetch(self, position: Position) -> bool:
        """Whether what begins at ``position`` may be read now: one read at a time."""
        damage = self._damage
        is_set_aside = damage is not None and damage.is_waiting and damage.position == position
        return not self._is_reading and not is_set_aside

    @property
    def _fetch_max(self) -> int:
        """How many entries to read at once: where what was more than consumers took had to go,
        no more than they can take."""
        entries_max = self.managed_ledger.reader.entries_max
        if not self._fetched.was_evicted:
            return entries_max
        permits = sum(each.permits for each in self.consumers if each.permits > 0)
        return min(max(permits, 1), entries_max)

    def _fetch_soon(
        self, position: Position, entry_ids: Sequence[int], *, is_picked: bool = False
    ) -> None:
        """Read entries of the ledger of ``position``: all that are open from there on, or some that
        were picked, of which it is the first."""
        self._is_reading = True
        beginnings = self._beginnings

        def keep(entries: list[Entry]) -> None:
            self.entries_fetched += len(entries)
            if beginnings != self._beginnings:
                return  # others may be open since
            self._fetched.pass_by(self.read_position)
            if is_picked:
                self._fetched.keep_single(position[0], entries)
            else:
                self._fetched.keep_run(position, entries)

        self.managed_ledger.spawn(
            self._fetch(position, entry_ids, keep),
            name=f"read {self.managed_ledger.name} {self.cursor.name}",
        )

    async def _fetch(
        self,
        position: Position,
        entry_ids: Sequence[int],
        keep: Callable[[list[Entry]], None],
    ) -> None:
        damage: Damage | None = None
        try:
            keep(counted(await self.managed_ledger.reader.fetch(position[0], entry_ids)))
            if self._damage is not None and self._damage.position == position:
                self._damage = None  # somebody repaired it
        except EntryDamaged as error:
            damage = self._found_damaged(position, error)
        except StorageUnavailable as error:
            log.warning("read failed", extra={"position": str(position), "error": str(error)})
            await asyncio.sleep(READ_RETRY_S)
        finally:
            self._is_reading = False
        if damage is not None:  # others may be read meanwhile: a seek goes on at once
            await asyncio.sleep(damage.pause_s)
            damage.is_waiting = False
        try:
            self.dispatch()
        except BrokerError:
            log.exception("dispatch failed", extra={"cursor": self.cursor.name})

    def _found_damaged(self, position: Position, error: EntryDamaged) -> Damage:
        """Set the entry aside for a while; told seldom, for it may stay as it is for long."""
        if self._damage is None or self._damage.position != position:
            self._damage = Damage(position)
        damage = self._damage
        damage.failed_again()
        if damage.is_to_be_told:
            log.error(
                "subscription stands before a damaged entry",
                extra={
                    "log": self.managed_ledger.name,
                    "cursor": self.cursor.name,
                    "position": str(position),
                    "error": str(error),
                    "way_out": damage.way_out,
                },
            )
        return damage
