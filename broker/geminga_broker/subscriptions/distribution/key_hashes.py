"""The hashes of the keys of all entries that were read and are not done with. Pure.

Finding a key in an entry's bytes is what Key_Shared costs most beyond Shared, so it is done once:
the hash stays, two bytes an entry, however often the entry waits and changes hands. Nothing is
taken away for a single entry, whatever the mark-delete position passes is cut off in front.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_protocol.pulsar.messages.sticky_key import sticky_key

# 16 bits hold any hash; no key has 0.
HASH = "H"
UNKNOWN = 0


class LedgerHashes:
    """Those of one ledger's entries from ``first`` on."""

    __slots__ = ("_hash_of_key", "_hashes", "first")

    def __init__(self, first: int, hash_of_key: Callable[[bytes], int]) -> None:
        self.first = first
        self._hash_of_key = hash_of_key
        self._hashes = array(HASH)

    def of_run(self, run: Sequence[Entry]) -> Sequence[int]:
        """The hashes of some entries in their order."""
        hashes, hash_of_key, first = self._hashes, self._hash_of_key, self.first
        start, stop = run[0][0] - first, run[-1][0] + 1 - first
        is_whole = stop - start == len(run)
        if is_whole and start == len(hashes):
            hashes.extend([hash_of_key(sticky_key(payload)) for _, payload, _ in run])
            return hashes[start:]
        hashes.frombytes(bytes(max(stop - len(hashes), 0) * hashes.itemsize))
        if UNKNOWN in hashes[start:stop]:
            for entry_id, payload, _ in run:
                if hashes[entry_id - first] == UNKNOWN:
                    hashes[entry_id - first] = hash_of_key(sticky_key(payload))
        return hashes[start:stop] if is_whole else [hashes[each[0] - first] for each in run]

    def of(self, ids: Iterable[EntryId]) -> list[int]:
        """The hashes of entries; 0 for what was never read, or is done with."""
        hashes, first, size = self._hashes, self.first, len(self._hashes)
        return [
            hashes[entry_id - first] if 0 <= entry_id - first < size else UNKNOWN
            for _, entry_id in ids
        ]

    def cut(self, first: int) -> None:
        """Begin at ``first``, where that gives up half of them: the rest is moved."""
        passed = first - self.first
        if passed > 0 and 2 * passed >= len(self._hashes):
            del self._hashes[:passed]
            self.first = first


class KeyHashes:
    """The hashes of entries of all ledgers."""

    def __init__(self, hash_of_key: Callable[[bytes], int]) -> None:
        self._hash_of_key = hash_of_key
        self._ledgers: dict[int, LedgerHashes] = {}
        self._none = LedgerHashes(0, hash_of_key)

    def of_run(self, ledger_id: int, run: Sequence[Entry], mark_delete: Position) -> Sequence[int]:
        """The hashes of some entries beyond ``mark_delete``, in their order."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            first = mark_delete[1] + 1 if ledger_id == mark_delete[0] else 0
            ledger = self._ledgers[ledger_id] = LedgerHashes(first, self._hash_of_key)
        self._forget_upto(mark_delete)
        return ledger.of_run(run)

    def _forget_upto(self, mark_delete: Position) -> None:
        ledger_id, entry_id = mark_delete
        if len(self._ledgers) > 1:
            for passed in [each for each in self._ledgers if each < ledger_id]:
                del self._ledgers[passed]
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None:
            ledger.cut(entry_id + 1)

    def of(self, ids: Sequence[EntryId]) -> list[int]:
        """The hashes of entries that were read; 0 for those that are done with."""
        found: list[int] = []
        for ledger_id, of_ledger in groupby(ids, key=itemgetter(0)):
            found += self._ledgers.get(ledger_id, self._none).of(of_ledger)
        return found

    def clear(self) -> None:
        """The subscription was moved."""
        self._ledgers.clear()
