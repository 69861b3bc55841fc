"""Entries that are in the journal but in no entry log yet: where adds go and tailing reads look.

Two generations: the active one takes adds, the sealed one is being carried to the entry log by a
checkpoint. The cache decides nothing: who may add is ``storage``'s decision, remembered here in
``writable`` so that it is made once for each ledger and generation, not once for each entry.
"""

from __future__ import annotations

# What an entry costs in memory besides its bytes: object header, dict slot, key.
ENTRY_OVERHEAD_BYTES = 130

Entries = dict[int, bytes]


class WriteCache:
    """Entries by ledger id and entry id, in two generations.

    ``writable`` maps the first 32 bytes of a V2 add (header word, master key, ledger id) to the
    active entries of its ledger. A request that is found there was admitted before with the same
    bytes: version, flags, key and ledger need no further look.
    """

    __slots__ = ("_active", "_sealed", "active_bytes", "sealed_bytes", "writable")

    def __init__(self) -> None:
        self.writable: dict[bytes, Entries] = {}
        self.active_bytes = 0
        self.sealed_bytes = 0
        self._active: dict[int, Entries] = {}
        self._sealed: dict[int, Entries] = {}

    def entries_of(self, ledger_id: int) -> Entries:
        """The active entries of a ledger, to add to; the caller counts ``active_bytes``."""
        return self._active.setdefault(ledger_id, {})

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry, the newer one where it was added twice."""
        entries = self._active.get(ledger_id)
        if entries is not None:
            entry = entries.get(entry_id)
            if entry is not None:
                return entry
        entries = self._sealed.get(ledger_id)
        return None if entries is None else entries.get(entry_id)

    def newest(self, ledger_id: int) -> bytes | None:
        """The entry of a ledger that was put here last (not again); None where there is none."""
        for generation in (self._active, self._sealed):
            entries = generation.get(ledger_id)
            if entries:
                return entries[next(reversed(entries))]
        return None

    def entry_ids(self, ledger_id: int) -> set[int]:
        """The ids of a ledger's entries."""
        return {*self._active.get(ledger_id, ()), *self._sealed.get(ledger_id, ())}

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry id of a ledger; -1 where there is none here."""
        return max(
            max(self._active.get(ledger_id, ()), default=-1),
            max(self._sealed.get(ledger_id, ()), default=-1),
        )

    def holds(self, ledger_id: int) -> bool:
        """Whether entries of the ledger are here."""
        return ledger_id in self._active or ledger_id in self._sealed

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger's entries: nobody will ask for them any more."""
        entries = self._active.pop(ledger_id, None)
        if entries is not None:
            self.active_bytes -= _size_of(entries)
        entries = self._sealed.pop(ledger_id, None)
        if entries is not None:
            self.sealed_bytes -= _size_of(entries)

    def seal(self) -> dict[int, Entries]:
        """Make the active generation the sealed one; it stays readable until ``release``."""
        assert not self._sealed
        self._sealed = self._active
        self.sealed_bytes = self.active_bytes
        self._active = {}
        self.active_bytes = 0
        self.writable = {}
        return self._sealed

    def release(self) -> None:
        """Forget the sealed generation: an entry log has it."""
        self._sealed = {}
        self.sealed_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of both generations."""
        return self.active_bytes + self.sealed_bytes

    @property
    def entry_count(self) -> int:
        """Entries held, counted one by one: for metrics, not for the hot path."""
        return sum(map(len, self._active.values())) + sum(map(len, self._sealed.values()))


def _size_of(entries: Entries) -> int:
    return sum(map(len, entries.values())) + ENTRY_OVERHEAD_BYTES * len(entries)
