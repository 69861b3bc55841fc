"""Which consumer of a Shared subscription gets which entry: they take turns, by priority. Pure.

Entries that were given back are sent before new ones, lowest position first. The chunks of a
message all go to one consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.chunk_receivers import ChunkReceivers, chunk_of
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

# Messages that one consumer is sent before the next one's turn (dispatcherMaxRoundRobinBatchSize).
TURN_MESSAGES_MAX = 20


@dataclass(slots=True, eq=False)
class SharedDistribution:
    """Distributes to ``consumers``, which it keeps in the order of their priorities."""

    # The dispatcher's own list, which it reads as well.
    consumers: list[Consumer]
    # Entries that are sent before new ones, to the consumers whose turn it is: given back, or
    # delayed and due.
    replay: ReplayQueue = field(default_factory=ReplayQueue, init=False)
    # Waiting chunks, each for its own consumer.
    chunks: ChunkReceivers = field(default_factory=ChunkReceivers, init=False)
    # The index in ``consumers`` at which the next turn begins.
    _turn: int = field(default=0, init=False)

    # Consumers

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        self.consumers.append(consumer)
        # Stable: within a priority level, consumers keep the order in which they came.
        self.consumers.sort(key=lambda each: each.priority)

    def left(self, consumer: Consumer, held: Sequence[EntryId]) -> None:
        """``consumer`` has left; ``held`` are the entries that it held."""
        self.consumers.remove(consumer)
        self.given_back(consumer, held)

    # Waiting entries

    @property
    def waiting_count(self) -> int:
        """How many entries wait to be sent, for the first time or again."""
        return len(self.replay) + self.chunks.waiting_count

    @property
    def first_waiting(self) -> EntryId | None:
        """The lowest of them."""
        queues = (self.replay, *self.chunks.waiting.values())
        return min((each.first for each in queues if each), default=None)

    def given_back(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """``consumer`` gives entries back, which any consumer may get."""
        # Its waiting chunks go with them: they must not come before chunks that it gave back.
        self.replay.add_all([*ids, *self.chunks.left(consumer)])

    def acknowledged(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Entries need not be sent any more; only those in ``unheld`` may have waited for that.
        False: it lets no other entries be sent."""
        del ids
        # An entry waits in one queue, but which one is not known: discarding is cheap.
        if unheld and self.waiting_count:
            for each in unheld:
                self.replay.discard(each)
                for queue in self.chunks.waiting.values():
                    queue.discard(each)
        return False

    def clear(self) -> None:
        """Begin again: no entry waits, and no consumer has part of a message."""
        self.replay, self.chunks = ReplayQueue(), ChunkReceivers()

    # Turns

    def next_consumer(self) -> Consumer | None:
        """The consumer whose turn it is; None if none can take messages.

        Of the best priority level with a ready consumer, it is the one after the last one served,
        in a circle.
        """
        consumers = self.consumers
        # ``consumers`` is sorted by priority, so that the first ready one has the best level.
        ready = [index for index, each in enumerate(consumers) if each.can_take]
        if not ready:
            return None
        best = consumers[ready[0]].priority
        level = [index for index in ready if consumers[index].priority == best]
        # Where consumers left, ``_turn`` may be beyond the list: then the circle begins anew.
        index = next((index for index in level if index >= self._turn), level[0])
        self._turn = index + 1
        return consumers[index]

    def keep_turn(self, consumer: Consumer) -> None:
        """Repeat the turn of ``consumer``, which was sent nothing."""
        self._turn = self.consumers.index(consumer)

    def taker(self, consumer: Consumer, position: EntryId, payload: bytes) -> Consumer | None:
        """The consumer that gets an entry in the turn of ``consumer``: for a chunk, the one with
        the others of its message. None if that one has no room: the chunk waits for it."""
        chunk = chunk_of(payload)
        if chunk is None:
            return consumer
        chunks = self.chunks
        receiver = chunks.receiver(chunk, consumer)
        # Chunks that wait for this receiver come before this one, unless they are being sent now.
        if receiver is not chunks.served and (not receiver.can_take or receiver in chunks.waiting):
            chunks.wait(chunk, position, receiver)
            return None
        return receiver
