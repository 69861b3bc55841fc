"""The key hashes of all entries that were read and are not done with. Pure.

To find the key in an entry is what Key_Shared costs most beyond Shared. So it is done once per
entry: the hash is kept, in two bytes, however often the entry waits and changes consumers. Hashes
are not removed one by one; those that the mark-delete position has passed are cut off in front.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_protocol.pulsar.messages.sticky_key import sticky_key

# The typecode of unsigned 16-bit integers, which hold any hash. No key has the hash 0.
HASH = "H"
UNKNOWN = 0


@dataclass(slots=True, eq=False)
class LedgerHashes:
    """The hashes of one ledger's entries from ``first`` on."""

    # The id of the entry that the first hash belongs to.
    first: int
    _hash_of_key: Callable[[bytes], int]
    # By entry id minus ``first``.
    _hashes: array[int] = field(default_factory=lambda: array(HASH), init=False)

    def of_run(self, run: Sequence[Entry]) -> Sequence[int]:
        """The hashes of entries in their order, computed if they are not known."""
        hashes, hash_of_key, first = self._hashes, self._hash_of_key, self.first
        start, stop = run[0][0] - first, run[-1][0] + 1 - first
        is_whole = stop - start == len(run)
        if is_whole and start == len(hashes):
            # HOT: the usual run has no holes and follows the entries read before.
            hashes.extend([hash_of_key(sticky_key(payload)) for _, payload, _ in run])
            return hashes[start:]
        # Grow by zeros (UNKNOWN) up to the last entry, then fill in what is not known.
        hashes.frombytes(bytes(max(stop - len(hashes), 0) * hashes.itemsize))
        if UNKNOWN in hashes[start:stop]:
            for entry_id, payload, _ in run:
                if hashes[entry_id - first] == UNKNOWN:
                    hashes[entry_id - first] = hash_of_key(sticky_key(payload))
        return hashes[start:stop] if is_whole else [hashes[each[0] - first] for each in run]

    def of(self, ids: Iterable[EntryId]) -> list[int]:
        """The hashes of entries; ``UNKNOWN`` for those that were never read or are cut off."""
        hashes, first, size = self._hashes, self.first, len(self._hashes)
        return [
            hashes[entry_id - first] if 0 <= entry_id - first < size else UNKNOWN
            for _, entry_id in ids
        ]

    def cut(self, first: int) -> None:
        """Begin at ``first``, if that cuts off at least half of the hashes: the rest is moved."""
        passed = first - self.first
        # An array moves what is left: so each hash is moved a constant number of times.
        if passed > 0 and 2 * passed >= len(self._hashes):
            del self._hashes[:passed]
            self.first = first


# What is known of any other ledger. It is never asked for a run, and so computes no hash.
_NOTHING_KNOWN = LedgerHashes(0, len)


@dataclass(slots=True, eq=False)
class KeyHashes:
    """The hashes of the entries of all ledgers."""

    # The hash function of the selector.
    hash_of_key: Callable[[bytes], int]
    _ledgers: dict[int, LedgerHashes] = field(default_factory=dict, init=False)

    def of_run(self, ledger_id: int, run: Sequence[Entry], mark_delete: Position) -> Sequence[int]:
        """The hashes of entries of one ledger beyond ``mark_delete``, in their order."""
        passed_ledger, passed_entry = mark_delete
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            first = passed_entry + 1 if ledger_id == passed_ledger else 0
            ledger = self._ledgers[ledger_id] = LedgerHashes(first, self.hash_of_key)
        # Forget the entries up to the mark-delete position.
        if len(self._ledgers) > 1:
            for passed in [each for each in self._ledgers if each < passed_ledger]:
                del self._ledgers[passed]
        marked = self._ledgers.get(passed_ledger)
        if marked is not None:
            marked.cut(passed_entry + 1)
        return ledger.of_run(run)

    def of(self, ids: Sequence[EntryId]) -> list[int]:
        """The hashes of entries that were read; ``UNKNOWN`` for those that are done with."""
        # Usually all ids are of one ledger, or of few in runs.
        found: list[int] = []
        for ledger_id, of_ledger in groupby(ids, key=itemgetter(0)):
            found += self._ledgers.get(ledger_id, _NOTHING_KNOWN).of(of_ledger)
        return found
