"""Entries to acknowledge that are collected for one turn of the loop, and go out together.

Decides what must be said; the channel says it.
"""

from __future__ import annotations

from dataclasses import dataclass

# What one ACK carries at most, as upstream's clients; some 12 bytes for each.
ACK_IDS_MAX = 1000

# What is kept while there is no broker. Acknowledgements beyond it are forgotten, the oldest
# first: those messages are delivered once more.
ACKS_HELD_MAX = 100_000

# (ledger_id, entry_id): one for each message, where an object would cost as much as the rest.
Position = tuple[int, int]


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

    def acknowledge(self, position: Position) -> None:
        """Acknowledge one entry."""
        if self._cumulative is None or position > self._cumulative:
            self._individual[position] = None
            if len(self._individual) > self._held_max:
                del self._individual[next(iter(self._individual))]

    def acknowledge_up_to(self, position: Position) -> None:
        """Acknowledge an entry and all before it."""
        if self._cumulative is None or position > self._cumulative:
            self._cumulative = position
            if self._individual:
                kept = [other for other in self._individual if other > position]
                self._individual = dict.fromkeys(kept)

    def take(self) -> Acks:
        """What was collected; the group is empty afterwards."""
        acks = Acks(self._cumulative, list(self._individual))
        self._cumulative = None
        self._individual = {}
        return acks

    def put_back(self, acks: Acks) -> None:
        """What was taken could not be said after all."""
        if acks.cumulative is not None:
            self.acknowledge_up_to(acks.cumulative)
        for position in acks.individual:
            self.acknowledge(position)
