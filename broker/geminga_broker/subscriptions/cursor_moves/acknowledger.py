"""What consumers acknowledge: the cursor moves, consumers forget, the blocked go on.

Ids come from clients: unknown ones, and those acknowledged already, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminga_broker.errors import InvalidRequest, NotAllowed
from geminga_broker.managed_ledger.acknowledged import bits_set
from geminga_broker.managed_ledger.cursor import Cursor, OnDurable
from geminga_broker.managed_ledger.positions import AckedEntry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher
from geminga_broker.subscriptions.membership import Membership
from geminga_runtime.clock import Clock

# Fewer acknowledged entries than this are as quick one by one.
MANY_IDS_MIN = 8


class Acknowledger:
    """Acknowledgements of the consumers in ``membership``, kept by ``cursor``."""

    __slots__ = ("_clock", "_cursor", "_membership", "last_ms")

    def __init__(self, cursor: Cursor, membership: Membership, clock: Clock) -> None:
        self.last_ms = 0
        self._cursor = cursor
        self._membership = membership
        self._clock = clock

    def single(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Acknowledge single entries, or messages of their batches."""
        acknowledge_in_part = self._cursor.acknowledged.acknowledge_batch_indexes
        whole: list[EntryId] = []
        completed: list[EntryId] = []
        for ledger_id, entry_id, ack_set in entries:
            if not any(ack_set):
                whole.append((ledger_id, entry_id))
            elif acknowledge_in_part(ledger_id, entry_id, tuple(ack_set)):
                completed.append((ledger_id, entry_id))
            elif self._tracker is not None:
                self._hold_rest(Position(ledger_id, entry_id))
        count = self._acknowledge(whole) + len(completed)
        self._settle(consumer, [*whole, *completed], count)
        self._cursor.changed(on_durable)

    def entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """``single`` for whole entries without a receipt: what clients send by the thousand."""
        self._settle(consumer, ids, self._acknowledge(ids))
        self._cursor.changed()

    def _acknowledge(self, ids: list[EntryId]) -> int:
        """Acknowledge entries, which are sorted then; how many were not acknowledged before."""
        ids.sort()  # they come in any order of a moment; in order, each one moves the cursor on
        acknowledged = self._cursor.acknowledged
        if len(ids) >= MANY_IDS_MIN:
            return acknowledged.acknowledge_all(ids)
        return sum(acknowledged.acknowledge(*each) for each in ids)

    def _settle(self, consumer: Consumer, ids: list[EntryId], count: int) -> None:
        """Nobody holds these any more; ``count`` of them were acknowledged just now."""
        lets_another_go_on = False
        tracker = self._tracker
        if tracker is not None:
            unheld = consumer.forget_all(ids)
            for each in unheld:
                lets_another_go_on |= self._forget_elsewhere(Position(*each))
            lets_another_go_on |= tracker.acknowledged_all(ids, unheld)
        self._acknowledged_by(consumer, count, lets_another_go_on=lets_another_go_on)

    @property
    def _tracker(self) -> Dispatcher | None:
        """The dispatcher, where it tracks single entries."""
        kind = self._membership.type
        return self._membership.dispatcher if kind and kind.tracks_entries else None

    def _hold_rest(self, position: Position) -> None:
        """Some messages of a batch are acknowledged: who holds it holds the others only."""
        remaining = self._cursor.acknowledged.remaining_indexes(*position)
        if remaining is not None:
            for consumer in self._membership.consumers:
                if consumer.hold_only(position, bits_set(remaining)):
                    return

    def _forget_elsewhere(self, position: Position) -> bool:
        """Whether the consumer that holds it, and was blocked, may have messages again."""
        for other in self._membership.consumers:
            if other.forget(position):
                return other.is_blocked_on_unacknowledged and other.unblock()
        return False

    def upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """Acknowledge everything before ``position``, and of its own entry what ``ack_set`` leaves
        out (all of it where that is empty). Raises ``NotAllowed`` where several consumers share
        the messages, ``InvalidRequest`` for what lies beyond the last message: nobody was sent
        it, so that nobody can mean what lies before it."""
        kind = self._membership.type
        if kind and kind.tracks_entries:
            raise NotAllowed(
                "cumulative acknowledgement needs an Exclusive or Failover subscription"
            )
        chain = self._cursor.chain
        if position > chain.last_confirmed > self._cursor.mark_delete:
            raise InvalidRequest("there is no such message yet")
        span = chain.span(position[0])
        if span is None or not 0 <= position[1] < span.entries:  # the mark is to be at an entry
            position, ack_set = chain.previous_of(position), ()
        acknowledged = self._cursor.acknowledged
        if ack_set and any(ack_set):
            acknowledged.acknowledge_upto(chain.previous_of(position))
            acknowledged.acknowledge_batch_indexes(position[0], position[1], tuple(ack_set))
        else:
            acknowledged.acknowledge_upto(position)
        self._acknowledged_by(consumer, 1)
        self._cursor.changed(on_durable)

    def _acknowledged_by(
        self, consumer: Consumer, count: int, *, lets_another_go_on: bool = False
    ) -> None:
        was_blocked = consumer.is_blocked_on_unacknowledged
        consumer.messages_acknowledged += count
        consumer.last_acknowledged_ms = self.last_ms = self._clock.wall_ms()
        if (was_blocked and consumer.unblock()) or lets_another_go_on:
            dispatcher = self._membership.dispatcher
            if dispatcher is not None:
                dispatcher.dispatch()
