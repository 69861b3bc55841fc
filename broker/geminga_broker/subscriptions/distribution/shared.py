"""Who gets what of a Shared subscription: consumers take turns, by priority. Pure.

What is given back is sent again before new entries are, lowest position first; the chunks of a
message all go to one consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.chunk_receivers import (
    WAITING_MAX,
    ChunkReceivers,
    chunk_of,
)
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

# Messages one consumer is given before the next one's turn (dispatcherMaxRoundRobinBatchSize).
TURN_MESSAGES_MAX = 20


class SharedDistribution:
    """Distributes to ``consumers``, which it keeps in the order of their priorities.

    ``replay`` waits for whoever's turn it is; of ``chunks`` each waits for its own consumer.
    """

    __slots__ = ("_turn", "chunks", "consumers", "replay")

    def __init__(self, consumers: list[Consumer]) -> None:
        self.consumers = consumers
        self.replay = ReplayQueue()
        self.chunks = ChunkReceivers()
        # The first place among the consumers that is to be looked at next.
        self._turn = 0

    def add(self, consumer: Consumer) -> None:
        """One more takes part."""
        self.consumers.append(consumer)
        # Stable: within a priority, consumers keep the order in which they came.
        self.consumers.sort(key=lambda each: each.priority)

    def left(self, consumer: Consumer, held: Sequence[EntryId]) -> None:
        """``consumer``, which held these, is gone."""
        self.consumers.remove(consumer)
        self.given_back(consumer, held)

    def given_back(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """``consumer`` gives these back: anyone may get them."""
        # What waits for it must not come before what it gave back of the same messages.
        self.replay.add_all([*ids, *self.chunks.left(consumer)])

    def let_wait(self, ids: Iterable[EntryId]) -> None:
        """These are to be sent before new entries are."""
        self.replay.add_all(ids)

    def acknowledged(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Entries need not be sent any more, of which those ``unheld`` may have waited; False:
        nothing waited for that."""
        del ids
        if unheld and self.waiting_count:
            for each in unheld:
                self.replay.discard(each)
                self.chunks.discard(each)
        return False

    def clear(self) -> None:
        """Begin anew: nothing waits, and nobody has part of a message."""
        self.replay.clear()
        self.chunks.clear()

    @property
    def waiting_count(self) -> int:
        """Entries that wait to be sent (again)."""
        return len(self.replay) + self.chunks.waiting_count

    @property
    def first_waiting(self) -> EntryId | None:
        """The lowest of them."""
        queues = (self.replay, *self.chunks.waiting.values())
        return min((each.first for each in queues if each), default=None)

    @property
    def may_read_on(self) -> bool:
        """Whether not too many chunks wait for new entries to be looked at."""
        return not self.chunks.waiting or self.chunks.waiting_count < WAITING_MAX

    def next_consumer(self) -> Consumer | None:
        """Whose turn it is: of the best priority level that has someone with permits, the one that
        comes after the last one served, round and round. None where nobody can take anything."""
        consumers = self.consumers
        ready = [index for index, each in enumerate(consumers) if each.can_take]
        if not ready:
            return None
        best = consumers[ready[0]].priority
        level = [index for index in ready if consumers[index].priority == best]
        index = next((index for index in level if index >= self._turn), level[0])
        self._turn = index + 1
        return consumers[index]

    def keep_turn(self, consumer: Consumer) -> None:
        """``consumer``, whose turn it was, got nothing: it is still its turn."""
        self._turn = self.consumers.index(consumer)

    def taker(self, consumer: Consumer, position: EntryId, payload: bytes) -> Consumer | None:
        """Who gets an entry in the turn of ``consumer``: of a chunk, the one that has the others of
        its message. None where that one has no room: the chunk waits for it."""
        chunk = chunk_of(payload)
        if chunk is None:
            return consumer
        receiver = self.chunks.receiver(chunk, consumer)
        if self.chunks.must_wait(receiver):
            self.chunks.wait(chunk, position, receiver)
            return None
        return receiver
