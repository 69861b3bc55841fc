"""The positions by which a topic knows a replicated message that it has already. Pure.

A replicator sends the entries of its topic in their order, each with its position there: what is
not beyond the last one taken is a repeat. The positions are kept beside the producers' sequence
ids, under the names that upstream gives them (``MessageDeduplication``), and are found again in
the stored entries themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from geminga_broker.topics.decisions.sequence_ids import Verdict
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.replication import (
    SourcePosition,
    is_replicator,
    replicator_producer,
    source_position,
)

LEDGER_SUFFIX = "_LID"
ENTRY_SUFFIX = "_EID"

# Before all positions.
NO_POSITION: SourcePosition = (-1, -1)


class SourcePositions:
    """The highest position that each replicator has sent, and the highest one that is stored.

    They are never forgotten: a cluster may be away for long, and there are few clusters.
    """

    def __init__(self) -> None:
        self._taken: dict[str, SourcePosition] = {}
        self._stored: dict[str, SourcePosition] = {}

    def judge(self, name: str, position: SourcePosition) -> Verdict:
        """What an entry of this replicator, from this position, is."""
        taken = self._taken.get(name)
        if taken is None or position > taken:
            return Verdict.NEW
        stored = self._stored.get(name)
        return Verdict.STORED if stored is not None and position <= stored else Verdict.UNKNOWN

    def all_new(self, name: str, positions: Sequence[SourcePosition]) -> bool:
        """Whether all of a run are new, and in their order: else they are looked at one by one."""
        last = self._taken.get(name, NO_POSITION)
        for position in positions:
            if position <= last:
                return False
            last = position
        return True

    def taken(self, name: str, position: SourcePosition) -> None:
        """Entries up to ``position`` are on their way."""
        self._taken[name] = position

    def stored(self, name: str, position: SourcePosition) -> None:
        """Entries up to ``position`` are durable. What was on its way when deduplication was turned
        on was never said to be taken: from here on it is, or a repeat of it would pass for new."""
        self._stored[name] = position
        self._taken[name] = max(position, self._taken.get(name, position))

    def is_under_way(self, name: str) -> bool:
        """Whether anything of this replicator was taken and is not stored yet."""
        return self._taken.get(name) != self._stored.get(name)

    # Keeping

    def restore(self, numbers: Mapping[str, int]) -> dict[str, int]:
        """Take the positions out of a snapshot's ``numbers``; what is left are sequence ids."""
        left = dict(numbers)
        for key, ledger_id in numbers.items():
            name = key.removesuffix(LEDGER_SUFFIX)
            if name != key and is_replicator(name) and name + ENTRY_SUFFIX in left:
                del left[key]
                self._found(name, (ledger_id, left.pop(name + ENTRY_SUFFIX)))
        return left

    def found_stored(self, metadata: MessageMetadata, cluster: str) -> bool:
        """Take the position that a stored entry of ``cluster`` tells of. False where it tells of
        none: it was published here."""
        if not metadata.replicated_from:
            return False
        position = source_position(metadata)
        if position is not None:
            self._found(replicator_producer(metadata.replicated_from, cluster), position)
        return True

    def _found(self, name: str, position: SourcePosition) -> None:
        if position > self._stored.get(name, NO_POSITION):
            self._taken[name] = self._stored[name] = position

    def snapshot(self) -> dict[str, int]:
        """The positions of what is stored, as the numbers of a snapshot."""
        numbers: dict[str, int] = {}
        for name, (ledger_id, entry_id) in self._stored.items():
            numbers[name + LEDGER_SUFFIX] = ledger_id
            numbers[name + ENTRY_SUFFIX] = entry_id
        return numbers
