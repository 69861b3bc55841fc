"""Acknowledgements that a channel collects for a while, and sends together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_protocol.pulsar.messages.integers import signed

# What one ACK carries at most, as upstream's clients; some 12 bytes for each.
ACK_IDS_MAX = 1000

# So many entries are kept while there is no broker. Acknowledgements beyond it are forgotten, the
# oldest first: those messages are delivered once more.
ACKS_HELD_MAX = 100_000

# (ledger_id, entry_id): one for each message, where an object would cost as much as the rest.
Position = tuple[int, int]

# Of an entry that is acknowledged in part: gives the messages that are still open, a bit for each,
# that of index 0 the lowest. It is called only when the command is built, so that the command
# covers everything that was acknowledged until then.
OpenIndexes = Callable[[], int]

WORD_BITS = 64
WORD_MASK = (1 << WORD_BITS) - 1


@dataclass(frozen=True, slots=True)
class Acks:
    """What to acknowledge, in one command or several.

    An entry with ``OpenIndexes`` is acknowledged in part: the messages that are no longer open.
    """

    # Everything up to this entry, which may itself be acknowledged in part.
    cumulative: Position | None
    cumulative_open: OpenIndexes | None
    # Single entries, and what is open of those that are acknowledged in part.
    individual: dict[Position, OpenIndexes | None]


# Nothing in ``individual`` is covered by ``cumulative``: its entries lie behind that one, or are
# that one itself if it is acknowledged in part.
@dataclass(slots=True, eq=False)
class AckGroup:
    """Collects acknowledgements until they are taken, in the form of ``Acks``."""

    held_max: int = ACKS_HELD_MAX
    cumulative: Position | None = None
    cumulative_open: OpenIndexes | None = None
    # A dict for its order: a set's order would differ from run to run.
    individual: dict[Position, OpenIndexes | None] = field(
        default_factory=dict[Position, OpenIndexes | None]
    )

    def __len__(self) -> int:
        """How many ids a command would carry: a cumulative one counts once."""
        return len(self.individual) + (self.cumulative is not None)

    def acknowledge(self, position: Position, open_indexes: OpenIndexes | None = None) -> None:
        """Acknowledge one entry, or those of its messages that are not open."""
        if self._is_covered(position):
            return
        if open_indexes is not None and position in self.individual:
            open_indexes = _open_in_both(self.individual[position], open_indexes)
        self.individual[position] = open_indexes
        if len(self.individual) > self.held_max:
            # The one that was acknowledged first.
            del self.individual[next(iter(self.individual))]

    def acknowledge_up_to(
        self, position: Position, open_indexes: OpenIndexes | None = None
    ) -> None:
        """Acknowledge an entry, or those of its messages that are not open, and all before it."""
        if self._is_covered(position):
            return
        self.cumulative, self.cumulative_open = position, open_indexes
        # Entries before the position no longer need ids of their own.
        if self.individual:
            kept = {other: left for other, left in self.individual.items() if other > position}
            self.individual = kept

    def take(self) -> Acks:
        """Take out what was collected; the group is empty afterwards."""
        acks = Acks(self.cumulative, self.cumulative_open, self.individual)
        self.cumulative = self.cumulative_open = None
        # A new dict: the old one belongs to ``acks`` now.
        self.individual = {}
        return acks

    def put_back(self, acks: Acks) -> None:
        """Collect again what was taken out: it was not sent, or the broker did not confirm it."""
        if acks.cumulative is not None:
            self.acknowledge_up_to(acks.cumulative, acks.cumulative_open)
        for position, open_indexes in acks.individual.items():
            self.acknowledge(position, open_indexes)

    def _is_covered(self, position: Position) -> bool:
        """Does the cumulative acknowledgement cover this entry as a whole?"""
        if self.cumulative is None or position > self.cumulative:
            return False
        return position < self.cumulative or self.cumulative_open is None


def _open_in_both(held: OpenIndexes | None, more: OpenIndexes) -> OpenIndexes | None:
    """What is open of an entry that is acknowledged in part, once more or as a whole before."""
    # Equal ones are of the same received batch, and cover what is acknowledged later, too.
    if held is None or held == more:
        return held
    # An id that was stored knows of no other message of its batch. Computed now, or many of them
    # would become a chain; what is acknowledged later comes here again.
    both = held() & more()
    return lambda: both


def ack_set(open_indexes: OpenIndexes | None) -> list[int]:
    """``MessageIdData.ack_set``: signed 64-bit words, the lowest first, a bit for each message that
    is still open."""
    words: list[int] = []
    rest = 0 if open_indexes is None else open_indexes()
    while rest:
        words.append(signed(rest & WORD_MASK))
        rest >>= WORD_BITS
    return words
