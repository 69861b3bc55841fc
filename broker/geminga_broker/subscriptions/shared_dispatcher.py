"""Shared subscriptions: every entry goes to one of many consumers, round robin by priority.

What is given back is replayed before new entries are read, lowest position first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.chunk_receivers import WAITING_MAX, ChunkReceivers, chunk_of
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.cursor_reader import RUN_ENTRIES_MAX
from geminga_broker.subscriptions.replay_queue import ReplayQueue
from geminga_broker.subscriptions.tracking_dispatcher import TrackingDispatcher

# Messages one consumer is given before the next one's turn (dispatcherMaxRoundRobinBatchSize).
TURN_MESSAGES_MAX = 20


class SharedDispatcher(TrackingDispatcher):
    """Spreads entries over all consumers that have permits."""

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor) -> None:
        super().__init__(managed_ledger, cursor)
        self._replay = ReplayQueue()
        self._chunks = ChunkReceivers()
        self._turn = 0

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to somebody, what is replayed among them."""
        firsts = [each.first for each in (self._replay, *self._chunks.waiting.values()) if each]
        return Position(*min([*firsts, self.reader.position]))

    @property
    def redelivery_backlog(self) -> int:
        """Entries waiting to be sent again."""
        return len(self._replay) + self._chunks.waiting_count

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        super().add(consumer)
        # Stable: within a priority, consumers keep the order in which they came.
        self.consumers.sort(key=lambda each: each.priority)

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone; what it held is replayed to the others."""
        self.consumers.remove(consumer)
        self._replay.add_all([*consumer.pending, *self._chunks.left(consumer)])
        consumer.pending.clear()
        if not self.consumers:
            self._begin_again()
            return
        self.dispatch()

    def _begin_again(self) -> None:
        super()._begin_again()
        self._replay.clear()
        self._chunks.clear()

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Forget entries: they will not be sent again."""
        if self.redeliveries:
            for each in ids:
                self.redeliveries.forget(each)
        for each in unheld if self.redelivery_backlog else ():
            self._replay.discard(each)
            self._chunks.discard(each)
        self.reader.fetched.drop(unheld)
        return self.is_blocked_on_unacknowledged and self._may_send()

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Replay what ``consumer`` gives back."""
        wanted = list(consumer.pending) if positions is None else positions
        given_back = [position for position in wanted if consumer.forget(position)]
        for position in given_back:
            self.redeliveries.increment(position)
        # What waits for it must not come before what it gave back of the same messages.
        self._replay.add_all([*given_back, *self._chunks.left(consumer)])
        consumer.unblock()
        self.dispatch()

    def dispatch(self) -> None:
        """Send what can be sent: replays first, then new entries."""
        if self._chunks.waiting:
            self._send_waiting_chunks()
        while self._may_send():
            consumer = self._next_consumer()
            if consumer is None:
                return
            if self.reader.has_due:
                self._replay.add_all(self._take_due())
            if self._replay:
                if not self._replay_turn(consumer, self._replay, TURN_MESSAGES_MAX):
                    return
            elif not self._dispatch_new(consumer):
                return

    def _send_waiting_chunks(self) -> None:
        chunks = self._chunks
        for consumer, queue in list(chunks.waiting.items()):
            chunks.served = consumer
            while queue and consumer.can_take and self._may_send():
                if not self._replay_turn(consumer, queue, RUN_ENTRIES_MAX):
                    break
            if not queue:
                del chunks.waiting[consumer]
        chunks.served = None

    def _next_consumer(self) -> Consumer | None:
        """Whose turn it is: of the best priority level that has someone with permits, the one that
        comes after the last one served, round and round."""
        ready = [index for index, each in enumerate(self.consumers) if each.can_take]
        if not ready:
            return None
        best = self.consumers[ready[0]].priority
        level = [index for index in ready if self.consumers[index].priority == best]
        index = next((index for index in level if index >= self._turn), level[0])
        self._turn = index + 1
        return self.consumers[index]

    def _dispatch_new(self, consumer: Consumer) -> bool:
        if self._chunks.waiting and self._chunks.waiting_count >= WAITING_MAX:
            return False
        found = self.reader.next_run()
        if found is None:
            return False
        ledger_id, run = found
        run = run[:TURN_MESSAGES_MAX]
        if self._throttle is None:
            used = self._send_turn(consumer, ledger_id, run)
        else:
            used = self._send_slowly(
                self._throttle,
                ledger_id,
                run,
                lambda allowed: self._send_turn(consumer, ledger_id, allowed),
            )
            if not used:
                return False
        consumer.note_time()
        self.entries_sent += used
        self.reader.advance(ledger_id, run, used)
        return True

    def _send_turn(self, consumer: Consumer, ledger_id: int, run: list[Entry]) -> int:
        """Send ``consumer`` entries of ``run`` while its turn lasts; how many it used."""
        to_send = self.cursor.acknowledged.still_open(ledger_id, run)
        sent = self._send_run(consumer, ledger_id, to_send, TURN_MESSAGES_MAX)
        return len(run) if sent == len(to_send) else run.index(to_send[sent])

    def _taker(self, consumer: Consumer, position: EntryId, payload: bytes) -> Consumer | None:
        """A chunk is for the consumer that has the others of its message."""
        chunk = chunk_of(payload)
        if chunk is None:
            return consumer
        consumer = self._chunks.receiver(chunk, consumer)
        if self._chunks.must_wait(consumer):
            self._chunks.wait(chunk, position, consumer)
            return None
        consumer.note_time()
        return consumer
