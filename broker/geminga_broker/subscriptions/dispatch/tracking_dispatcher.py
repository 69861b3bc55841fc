"""What dispatchers have in common that spread entries over several consumers.

Each entry sent is tracked until it is acknowledged. What a consumer gives back, or held when it
left, is replayed, lowest position first. Consumers together hold at most so many messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.policies.unacknowledged import NO_LIMITS, UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

# Delayed entries that become due before others get a turn.
DUE_AT_ONCE_MAX = 1000


class Distribution(Protocol):
    """Who of several consumers gets what, as far as it is the same for all types. Pure."""

    @property
    def waiting_count(self) -> int:
        """Entries that wait to be sent (again)."""
        ...

    @property
    def first_waiting(self) -> EntryId | None:
        """The lowest of them."""
        ...

    def add(self, consumer: Consumer) -> None:
        """One more takes part."""
        ...

    def left(self, consumer: Consumer, held: Sequence[EntryId]) -> None:
        """``consumer``, which held these, is gone."""
        ...

    def given_back(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """``consumer`` gives these back: they are to be sent again."""
        ...

    def acknowledged(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Entries need not be sent any more, of which those ``unheld`` may have waited; True where
        others waited for that."""
        ...

    def clear(self) -> None:
        """Begin anew: nothing waits, and nobody holds anything."""
        ...


class TrackingDispatcher(Dispatcher):
    """Sends to several consumers, as ``_distribution`` says, and remembers what to whom."""

    _distribution: Distribution

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor) -> None:
        super().__init__(managed_ledger, cursor)
        # The subscription's, whose dispatchers come and go.
        self.redeliveries = RedeliveryCounts()
        self._limits = NO_LIMITS

    def limit(self, limits: UnacknowledgedLimits) -> None:
        """From now on these hold."""
        self._limits = limits
        for consumer in self.consumers:
            consumer.limit_unacknowledged(limits.per_consumer)
        if self.consumers:
            self.dispatch()

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        consumer.limit_unacknowledged(self._limits.per_consumer)
        self._distribution.add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone; what it held goes to the others."""
        held = list(consumer.pending)
        consumer.pending.clear()
        self._distribution.left(consumer, held)
        if self.consumers:
            self.dispatch()
        else:
            self._begin_again()

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Send again what ``consumer`` gives back."""
        wanted = list(consumer.pending) if positions is None else positions
        given_back = [position for position in wanted if consumer.forget(position)]
        for position in given_back:
            self.redeliveries.increment(position)
        self._distribution.given_back(consumer, given_back)
        consumer.unblock()
        self.dispatch()

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Forget entries: they will not be sent again; True where others waited for that."""
        goes_on = self._distribution.acknowledged(ids, unheld)
        if unheld:
            self.reader.fetched.drop(unheld)
        if self.redeliveries:
            for each in ids:
                self.redeliveries.forget(each)
        return goes_on or (self.is_blocked_on_unacknowledged and self._may_send())

    @property
    def unacknowledged(self) -> int:
        """Messages that consumers hold."""
        return sum(each.unacknowledged for each in self.consumers)

    def _may_send(self) -> bool:
        """Whether consumers together hold less than they may; once they do not, not before they
        have acknowledged half of it."""
        limit = self._limits.per_subscription
        if not limit:
            self.is_blocked_on_unacknowledged = False
        elif self.is_blocked_on_unacknowledged:
            self.is_blocked_on_unacknowledged = 2 * self.unacknowledged >= limit
        else:
            self.is_blocked_on_unacknowledged = self.unacknowledged >= limit
        return not self.is_blocked_on_unacknowledged

    def rewind(self) -> None:
        """Begin again after the mark-delete position; nobody holds or was given anything."""
        self._begin_again()
        self.redeliveries.clear()

    def _begin_again(self) -> None:
        """Begin after the mark-delete position, as for the next consumer after the last one."""
        super().rewind()
        self.is_blocked_on_unacknowledged = False
        if not self.cursor.config.cursor_redelivery_counts:
            self.redeliveries.clear()
        for consumer in self.consumers:
            consumer.forget_everything()
        self._distribution.clear()

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: what it has passed is not sent any more, nor held by anybody."""
        super().skip_acknowledged()
        mark = self.cursor.mark_delete
        for consumer in self.consumers:
            # In no order: what another gave back was sent after what came later.
            passed = [position for position in consumer.pending if position <= mark]
            if passed:
                consumer.forget_all(passed)
                consumer.unblock()
                self.acknowledged_all(passed, ())

    def skip(self, ids: list[EntryId]) -> None:
        """These were acknowledged by somebody else: nobody is sent or holds them any more."""
        super().skip_acknowledged()
        for consumer in self.consumers:
            if consumer.pending:
                consumer.forget_all(ids)
                consumer.unblock()
        self.acknowledged_all(ids, ids)

    # What waits to be sent (again)

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to somebody, what waits among them."""
        first, position = self._distribution.first_waiting, self.reader.position
        return position if first is None else min(Position(*first), position)

    @property
    def redelivery_backlog(self) -> int:
        """Entries that wait to be sent (again)."""
        return self._distribution.waiting_count

    def _take_due(self) -> list[Position]:
        """Delayed entries that are due by now and were passed over, while few wait to be sent."""
        room = self._due_max - self.redelivery_backlog
        return self.reader.take_due(min(room, DUE_AT_ONCE_MAX))

    @property
    def _due_max(self) -> int:
        """How many entries may wait to be sent when what is due joins them."""
        return DUE_AT_ONCE_MAX

    def _replay_turn(self, consumer: Consumer, queue: ReplayQueue, messages_max: int) -> bool:
        """Send ``consumer`` the first of ``queue``; False when they must wait, to be fetched or for
        the dispatch rate."""
        first = Position(*queue.first)
        if self.reader.is_done(first):
            queue.take(1)
            self.reader.fetched.drop((first,))
            self.redeliveries.forget(first)
            return True
        at_hand = self.reader.first_of(queue, messages_max)
        if not at_hand:
            return False
        ledger_id = first[0]
        if self._throttle is None:
            used = self._replay_run(consumer, ledger_id, messages_max, at_hand)
        else:
            send = partial(self._replay_run, consumer, ledger_id, messages_max)
            used = self._send_slowly(ledger_id, at_hand, send)
        if not used:
            return False
        queue.take(used)
        self.reader.fetched.drop((ledger_id, each[0]) for each in islice(at_hand, used))
        consumer.note_time()
        self.entries_sent += used
        return True

    def _replay_run(
        self, consumer: Consumer, ledger_id: int, messages_max: int, run: list[Entry]
    ) -> int:
        """Send ``consumer`` what is not acknowledged of ``run``, which leaves the replay, while its
        turn lasts; how many it used."""
        to_send = self.cursor.acknowledged.still_open(ledger_id, run)
        sent = self._send_run(consumer, ledger_id, to_send, messages_max)
        if to_send is run:
            return sent
        used = len(run) if sent == len(to_send) else run.index(to_send[sent])
        for entry_id in {each[0] for each in run[:used]}.difference(each[0] for each in to_send):
            self.redeliveries.forget((ledger_id, entry_id))
        return used

    # Sending

    def _send_run(
        self, consumer: Consumer, ledger_id: int, run: list[Entry], messages_max: int
    ) -> int:
        """Send ``consumer`` entries, none of which is acknowledged, until it has had
        ``messages_max`` messages or can take no more; how many of them it used."""
        acknowledged = self.cursor.acknowledged
        turn_ends_at = max(0, consumer.permits - messages_max)
        used = 0
        while used < len(run) and consumer.permits > turn_ends_at and consumer.can_take:
            rest = run[used:] if used else run
            room = consumer.permits - turn_ends_at
            sent = consumer.deliver(ledger_id, rest, room, acknowledged, self.redeliveries)
            if not sent:
                self._look_and_send(consumer, ledger_id, rest[0])
            used += sent or 1
        return used

    def _look_and_send(self, consumer: Consumer, ledger_id: int, entry: Entry) -> None:
        """Send an entry of which it is not known what it is, if it is for consumers at all."""
        entry_id, payload, _ = entry
        taker = self._taker(consumer, (ledger_id, entry_id), payload)
        if taker is None:
            self.reader.set_aside(ledger_id, [entry])
            return
        messages, payload = taker.look(payload)
        if messages:
            known, acknowledged = [(entry_id, payload, messages)], self.cursor.acknowledged
            taker.deliver(ledger_id, known, messages, acknowledged, self.redeliveries)
        else:
            self._pass_over(ledger_id, entry_id)

    def _taker(self, consumer: Consumer, position: EntryId, payload: bytes) -> Consumer | None:
        """Who gets an entry that has to be looked at; None where it waits for another."""
        del position, payload
        return consumer

    def _pass_over(self, ledger_id: int, entry_id: int) -> None:
        """An entry has nothing for consumers."""
        self.reader.pass_over(ledger_id, entry_id)
        self.redeliveries.forget((ledger_id, entry_id))
