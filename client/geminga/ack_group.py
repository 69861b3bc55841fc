"""Acknowledgements that are collected for one turn of the loop, and go out together.

Decides what must be said, also of messages in batches; the consumer says it.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga.errors import NotAcknowledgeable
from geminga.message_ids import MessageId

# What one ACK carries at most, as upstream's clients; some 12 bytes for each.
ACK_IDS_MAX = 1000

# What is kept while no broker is there. Acknowledgements beyond it are forgotten, the oldest
# first: those messages are delivered once more.
ACKS_HELD_MAX = 100_000

Position = tuple[int, int]  # (ledger_id, entry_id)


@dataclass(frozen=True, slots=True)
class Acks:
    """What to acknowledge: everything up to ``cumulative``, and the ``individual`` entries."""

    cumulative: Position | None
    individual: list[Position]

    def in_commands(self) -> list[list[Position]]:
        """The individual entries, cut for one command each."""
        ids = self.individual
        return [ids[start : start + ACK_IDS_MAX] for start in range(0, len(ids), ACK_IDS_MAX)]


class AckGroup:
    """Collects acknowledgements until they are taken."""

    def __init__(self, held_max: int = ACKS_HELD_MAX) -> None:
        self._held_max = held_max
        self._cumulative: Position | None = None
        # A dict for its order: a set's order would differ from run to run.
        self._individual: dict[Position, None] = {}

    def __bool__(self) -> bool:
        return self._cumulative is not None or bool(self._individual)

    def acknowledge(self, message_id: MessageId) -> bool:
        """Acknowledge one message; says whether its whole entry is acknowledged now.

        Raises ``NotAcknowledgeable`` for a message in a batch whose id did not come with it.
        """
        if message_id.batch_index >= 0:
            if message_id.batch_acks is None:
                raise NotAcknowledgeable(
                    f"{message_id} is in a batch: only the id that came with it can acknowledge it"
                )
            if not message_id.batch_acks.acknowledge(message_id.batch_index):
                return False
        self._add((message_id.ledger_id, message_id.entry_id))
        return True

    def acknowledge_up_to(self, message_id: MessageId) -> None:
        """Acknowledge a message and all before it.

        In the midst of a batch that is: the entries before the batch, if they are known. Those of
        the ledger before wait for the next acknowledgement.
        """
        ledger_id, entry_id = message_id.ledger_id, message_id.entry_id
        if message_id.batch_index >= 0:
            acks = message_id.batch_acks
            if acks is None or not acks.acknowledge_up_to(message_id.batch_index):
                entry_id -= 1
        if entry_id >= 0:
            self._add_cumulative((ledger_id, entry_id))

    def take(self) -> Acks:
        """What was collected; the group is empty afterwards."""
        acks = Acks(self._cumulative, list(self._individual))
        self._cumulative = None
        self._individual = {}
        return acks

    def put_back(self, acks: Acks) -> None:
        """What was taken could not be said after all."""
        if acks.cumulative is not None:
            self._add_cumulative(acks.cumulative)
        for position in acks.individual:
            self._add(position)

    def _add(self, position: Position) -> None:
        if self._cumulative is None or position > self._cumulative:
            self._individual[position] = None
            if len(self._individual) > self._held_max:
                del self._individual[next(iter(self._individual))]

    def _add_cumulative(self, position: Position) -> None:
        if self._cumulative is None or position > self._cumulative:
            self._cumulative = position
            if self._individual:
                kept = [other for other in self._individual if other > position]
                self._individual = dict.fromkeys(kept)
