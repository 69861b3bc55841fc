"""The positions by which a topic recognizes replicated messages that it has stored already. Pure.

A replicator sends the entries of its topic in their order, each with its position there; an entry
that is not beyond the last position taken is a repeat. The positions are stored beside the
producers' sequence ids, under upstream's names (``MessageDeduplication``), and are in the stored
entries themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from geminga_broker.topics.decisions.sequence_ids import Verdict
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.replication import (
    SourcePosition,
    is_replicator,
    replicator_producer,
    source_position,
)

LEDGER_SUFFIX = "_LID"
ENTRY_SUFFIX = "_EID"

# Before all positions. Ledger and entry ids begin at 0.
NO_POSITION: SourcePosition = (-1, -1)


@dataclass(slots=True, eq=False)
class SourcePositions:
    """The highest positions of each replicator: sent, and stored.

    They are never forgotten: a cluster may be unreachable for long, and there are few clusters.
    """

    # By producer name. ``_taken`` is ahead of ``_stored`` while entries are pending.
    _taken: dict[str, SourcePosition] = field(default_factory=dict[str, SourcePosition], init=False)
    _stored: dict[str, SourcePosition] = field(
        default_factory=dict[str, SourcePosition], init=False
    )

    def judge(self, name: str, position: SourcePosition) -> Verdict:
        """Whether an entry of this replicator, with this position, is a repeat."""
        # Pairs are compared as a whole: a later ledger is behind each entry of an earlier one.
        taken = self._taken.get(name)
        if taken is None or position > taken:
            return Verdict.NEW
        stored = self._stored.get(name)
        return Verdict.STORED if stored is not None and position <= stored else Verdict.UNKNOWN

    def all_new(self, name: str, positions: Sequence[SourcePosition]) -> bool:
        """Whether all entries of a run are new and in order; if not, they are judged one by one."""
        last = self._taken.get(name, NO_POSITION)
        # Compared with the one before, too: a source that repeats itself within a run is caught.
        for position in positions:
            if position <= last:
                return False
            last = position
        return True

    def taken(self, name: str, position: SourcePosition) -> None:
        """Entries up to ``position`` were handed to the log."""
        # The highest: a source goes back when it reconnects, and the positions of entries that were
        # pending when deduplication was turned on need not grow.
        self._taken[name] = max(position, self._taken.get(name, position))

    def stored(self, name: str, position: SourcePosition) -> None:
        """Entries up to ``position`` are durable."""
        # The highest, as in ``taken``: if the two ended with different positions, ``has_pending``
        # would never end. Therefore they count as taken, too: entries that came while deduplication
        # was about to be turned off were not reported.
        highest = max(position, self._stored.get(name, position))
        self._stored[name] = highest
        self._taken[name] = max(highest, self._taken.get(name, highest))

    def has_pending(self, name: str) -> bool:
        """Whether entries of this replicator are pending."""
        return self._taken.get(name) != self._stored.get(name)

    # Snapshots

    def restore(self, numbers: Mapping[str, int]) -> dict[str, int]:
        """Take the positions out of a snapshot's ``numbers``; return the rest, the sequence ids."""
        # Ledger and entry id are two numbers with different suffixes. Clients' producers may have
        # such names, too: only those of replicators are taken. Only where both are there: one alone
        # is a client's producer with such a name, or damaged.
        left = dict(numbers)
        for key, ledger_id in numbers.items():
            name = key.removesuffix(LEDGER_SUFFIX)
            if name != key and is_replicator(name) and name + ENTRY_SUFFIX in left:
                del left[key]
                self._found(name, (ledger_id, left.pop(name + ENTRY_SUFFIX)))
        return left

    def found_stored(self, metadata: MessageMetadata, cluster: str) -> bool:
        """Take over the position in a stored entry of ``cluster``. False if the entry was published
        here, and not replicated."""
        # The name of the source cluster; the broker that received the entry stores it with the
        # entry.
        if not metadata.replicated_from:
            return False
        position = source_position(metadata)
        if position is not None:
            self._found(replicator_producer(metadata.replicated_from, cluster), position)
        return True

    def _found(self, name: str, position: SourcePosition) -> None:
        """An entry with ``position`` is stored; the snapshot may know of later ones."""
        if position > self._stored.get(name, NO_POSITION):
            # Both: the entries are read from the log, where nothing is pending.
            self._taken[name] = self._stored[name] = position

    def snapshot(self) -> dict[str, int]:
        """The positions of stored entries, as the numbers of a snapshot."""
        numbers: dict[str, int] = {}
        for name, (ledger_id, entry_id) in self._stored.items():
            numbers[name + LEDGER_SUFFIX] = ledger_id
            numbers[name + ENTRY_SUFFIX] = entry_id
        return numbers
