"""Acknowledgements by consumers: the cursor moves, and the consumers have room for more.

Ids come from clients: unknown ones, and entries that are acknowledged already, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from geminga_broker.errors import InvalidRequest, NotAllowed
from geminga_broker.managed_ledger.acknowledgement.acknowledged import bits_set
from geminga_broker.managed_ledger.cursors.cursor import Cursor, OnDurable
from geminga_broker.managed_ledger.positions import AckedEntry, EntryId, Position
from geminga_broker.managed_ledger.termination import Termination
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.membership import Membership
from geminga_runtime.clock import Clock

# Fewer acknowledged entries than this are as quick one by one.
MANY_IDS_MIN = 8


@dataclass(slots=True, eq=False)
class Acknowledger:
    """Applies the acknowledgements of the consumers in a membership to their cursor."""

    _cursor: Cursor
    _membership: Membership
    _clock: Clock
    # With a terminated log, the last acknowledgement lets consumers be told that it was the last.
    _termination: Termination
    # When a consumer last acknowledged, Unix time; 0: never since the topic was loaded.
    last_ms: int = 0

    def single(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Acknowledge single entries, or messages of their batches."""
        acknowledged = self._cursor.acknowledged
        whole: list[EntryId] = []
        completed: list[EntryId] = []
        for ledger_id, entry_id, ack_set in entries:
            # The set bits are the messages that stay unacknowledged: without any, the whole entry
            # is acknowledged.
            if not any(ack_set):
                whole.append((ledger_id, entry_id))
            elif acknowledged.acknowledge_batch_indexes(ledger_id, entry_id, tuple(ack_set)):
                # Its other messages were acknowledged before: the entry is done with.
                completed.append((ledger_id, entry_id))
            elif self._membership.tracker is not None:
                # The holder of the batch now holds the remaining messages only.
                remaining = acknowledged.remaining_indexes(ledger_id, entry_id)
                if remaining is not None:
                    held = bits_set(remaining)
                    for each in self._membership.consumers:
                        if each.hold_only((ledger_id, entry_id), held):
                            break
        # Counted are entries that were open before: clients may acknowledge the same one twice.
        # Acknowledged first, released then: a release may dispatch, which must find them
        # acknowledged.
        count = self._acknowledge(whole) + len(completed)
        self._release(consumer, [*whole, *completed], count)
        # Not before, because it may write at once, and report the acknowledgement durable.
        self._cursor.changed(on_durable)
        if self._termination.at is not None:
            self._membership.tell_end()

    def entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """``single`` for whole entries without a receipt, of which clients send thousands."""
        self._release(consumer, ids, self._acknowledge(ids))
        self._cursor.changed()
        if self._termination.at is not None:
            self._membership.tell_end()

    def _acknowledge(self, ids: list[EntryId]) -> int:
        """Acknowledge entries, and sort ``ids``; return how many were not acknowledged before."""
        # Clients acknowledge in any order. In the order of the log each entry moves the mark-delete
        # position on, instead of leaving a hole that the next one fills.
        ids.sort()
        acknowledged = self._cursor.acknowledged
        # ``acknowledge_all`` groups by ledger and counts whole runs, which pays only for some.
        if len(ids) >= MANY_IDS_MIN:
            return acknowledged.acknowledge_all(ids)
        return sum(acknowledged.acknowledge(*each) for each in ids)

    def _release(self, consumer: Consumer, ids: list[EntryId], count: int) -> None:
        """Let no consumer hold these entries, of which ``count`` were newly acknowledged."""
        lets_another_go_on = False
        tracker = self._membership.tracker
        if tracker is not None:
            # Mostly empty: a client acknowledges what it was sent.
            unheld = consumer.forget_all(ids)
            # A consumer may acknowledge what another holds: it had been sent to both in turn.
            for each in unheld:
                for other in self._membership.consumers:
                    if other.forget(each):
                        if other.is_blocked_on_unacknowledged and other.unblock():
                            lets_another_go_on = True
                        break
            lets_another_go_on |= tracker.acknowledged_all(ids, unheld)
        self._note(consumer, count, lets_another_go_on=lets_another_go_on)

    def upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """Acknowledge everything before ``position``, and of the entry there the messages whose
        bits ``ack_set`` lacks (all of them if it is empty).

        Raises ``NotAllowed`` if several consumers share the messages, and ``InvalidRequest`` for a
        position beyond the last message: no consumer was sent it, so the client is mistaken.
        """
        kind = self._membership.type
        if kind and kind.tracks_entries:
            raise NotAllowed(
                "cumulative acknowledgement needs an Exclusive or Failover subscription"
            )
        chain = self._cursor.chain
        # With everything acknowledged, a position beyond the end changes nothing, and is accepted.
        if position > chain.last_confirmed > self._cursor.mark_delete:
            raise InvalidRequest("there is no such message yet")
        span = chain.span(position[0])
        if span is None or not 0 <= position[1] < span.entries:
            # The mark-delete position must be at an entry: take the one before.
            position, ack_set = chain.previous_of(position), ()
        acknowledged = self._cursor.acknowledged
        # Part of a batch: the mark-delete position stays before it.
        if ack_set and any(ack_set):
            acknowledged.acknowledge_upto(chain.previous_of(position))
            acknowledged.acknowledge_batch_indexes(position[0], position[1], tuple(ack_set))
        else:
            acknowledged.acknowledge_upto(position)
        self._note(consumer, 1)
        self._cursor.changed(on_durable)
        if self._termination.at is not None:
            self._membership.tell_end()

    def _note(self, consumer: Consumer, count: int, *, lets_another_go_on: bool = False) -> None:
        """Count ``count`` acknowledgements, and dispatch if a blocked consumer may go on."""
        # Dispatching costs more than the acknowledgement: only a consumer that was blocked can have
        # entries waiting for this.
        was_blocked = consumer.is_blocked_on_unacknowledged
        consumer.messages_acknowledged += count
        consumer.last_acknowledged_ms = self.last_ms = self._clock.wall_ms()
        if (was_blocked and consumer.unblock()) or lets_another_go_on:
            dispatcher = self._membership.dispatcher
            if dispatcher is not None:
                dispatcher.dispatch()
