"""Shared subscriptions: every entry goes to one of many consumers, round robin by priority.

Each entry sent is tracked until it is acknowledged. What a consumer gives back, or held when it
left, is replayed before new entries are read, lowest position first.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from sortedcontainers import SortedSet

from magnetar_broker.log.acknowledged import bits_set
from magnetar_broker.log.cursor import Cursor
from magnetar_broker.log.managed_ledger import ManagedLedger
from magnetar_broker.log.payloads import message_count
from magnetar_broker.log.positions import Entry, Position
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.dispatcher import RUN_ENTRIES_MAX, Dispatcher

# Messages one consumer is given before the next one's turn (dispatcherMaxRoundRobinBatchSize).
TURN_MESSAGES_MAX = 20


class SharedDispatcher(Dispatcher):
    """Spreads entries over all consumers that have permits."""

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor) -> None:
        super().__init__(managed_ledger, cursor)
        self._replay: SortedSet[Position] = SortedSet()
        self._redeliveries: dict[Position, int] = {}
        self._turn = 0

    @property
    def redelivery_backlog(self) -> int:
        """Entries waiting to be sent again."""
        return len(self._replay)

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        self.consumers.append(consumer)
        # Stable: within a priority, consumers keep the order in which they came.
        self.consumers.sort(key=lambda each: each.priority)

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone; what it held is replayed to the others."""
        self.consumers.remove(consumer)
        self._replay.update(consumer.pending)
        consumer.pending.clear()
        if not self.consumers:
            # Nobody is left to replay to: begin after the mark-delete position with the next one.
            self._replay.clear()
            self._redeliveries.clear()
            super().rewind()
            return
        self.dispatch()

    def rewind(self) -> None:
        """Begin again after the mark-delete position; nobody holds anything."""
        super().rewind()
        self._replay.clear()
        self._redeliveries.clear()
        for consumer in self.consumers:
            consumer.pending.clear()
            consumer.unacknowledged = 0

    def acknowledged(self, position: Position) -> None:
        """Forget an entry: it will not be sent again."""
        if self._redeliveries:
            self._redeliveries.pop(position, None)
        if self._replay:
            self._replay.discard(position)

    def acknowledged_all(self, ids: Iterable[tuple[int, int]]) -> None:
        """Forget many."""
        if self._redeliveries or self._replay:
            for each in ids:
                self.acknowledged(Position(*each))

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> None:
        """Replay what ``consumer`` gives back."""
        wanted = list(consumer.pending) if positions is None else list(positions)
        for position in wanted:
            if consumer.forget(position):
                self._redeliveries[position] = self._redeliveries.get(position, 0) + 1
                self._replay.add(position)
        consumer.unblock()
        self.dispatch()

    def dispatch(self) -> None:
        """Send what can be sent: replays first, then new entries."""
        while True:
            consumer = self._next_consumer()
            if consumer is None:
                return
            if self._replay:
                if not self._dispatch_replay(consumer):
                    return
            elif not self._dispatch_new(consumer):
                return

    def _next_consumer(self) -> Consumer | None:
        """Whose turn it is among the best priority level that has someone with permits."""
        ready = [each for each in self.consumers if each.can_take]
        if not ready:
            return None
        best = ready[0].priority
        level = [each for each in ready if each.priority == best]
        self._turn += 1
        return level[self._turn % len(level)]

    def _dispatch_new(self, consumer: Consumer) -> bool:
        found = self._next_run()
        if found is None:
            return False
        ledger_id, run = found
        turn_ends_at = consumer.permits - TURN_MESSAGES_MAX
        used = 0
        for entry in run:
            if consumer.permits <= 0 or consumer.permits <= turn_ends_at or not consumer.can_take:
                break
            used += 1
            self._send(consumer, ledger_id, entry)
        consumer.note_time()
        self.entries_sent += used
        self.read_position = Position(ledger_id, run[0][0] + used)
        return True

    def _dispatch_replay(self, consumer: Consumer) -> bool:
        """Send a turn of the lowest entries to be replayed; False while they must be fetched."""
        first = self._replay[0]
        is_acknowledged = self.cursor.acknowledged.is_acknowledged(first[0], first[1])
        if is_acknowledged or self.managed_ledger.chain.span(first[0]) is None:
            del self._replay[0]
            return True
        wanted = self._near(first)
        run = self._entries_at(first, wanted[-1][1] - first[1] + 1)
        if not run:
            return False
        turn_ends_at = max(0, consumer.permits - TURN_MESSAGES_MAX)
        used = 0
        for position in wanted:
            index = position[1] - first[1]
            if index >= len(run) or consumer.permits <= turn_ends_at or not consumer.can_take:
                break
            used += 1
            self._send(consumer, position[0], run[index])
        del self._replay[:used]
        consumer.note_time()
        self.entries_sent += used
        return True

    def _near(self, first: Position) -> list[Position]:
        """The positions of a turn to be replayed, from ``first`` on, that one run may hold."""
        return [
            position
            for position in islice(self._replay, TURN_MESSAGES_MAX)
            if position[0] == first[0] and position[1] - first[1] < RUN_ENTRIES_MAX
        ]

    def _send(self, consumer: Consumer, ledger_id: int, entry: Entry) -> None:
        entry_id, payload, count = entry
        acknowledged = self.cursor.acknowledged
        if acknowledged.has_holes and acknowledged.is_acknowledged(ledger_id, entry_id):
            return
        ack_set = acknowledged.remaining_indexes(ledger_id, entry_id)
        messages = count or message_count(payload)
        if ack_set is not None:
            messages = bits_set(ack_set)
        position = Position(ledger_id, entry_id)
        redeliveries = self._redeliveries.get(position, 0) if self._redeliveries else 0
        consumer.deliver(position, payload, messages, redeliveries, ack_set)
