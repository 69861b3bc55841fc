"""Entries that no entry log has yet: where adds go, and where tailing reads look first.

There are two generations. The active one takes adds; the sealed one is being carried to the entry
logs by a checkpoint, and both are read. An add is here before its journal group is durable, so
another client may read an entry that a crash loses. That is no harm: it was not acknowledged, and
readers take no entry as confirmed before its writer says so.

The cache decides nothing. Who may add is decided by ``storage``, and remembered here in
``writable``, so that it is decided once for each ledger and generation, not once for each entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# What an entry costs in memory besides its bytes: object header, dict slot, key.
ENTRY_OVERHEAD_BYTES = 130

# The entries of one ledger by entry id.
Entries = dict[int, bytes]


@dataclass(slots=True, eq=False)
class WriteCache:
    """Entries by ledger id and entry id, in two generations."""

    # HOT. By the first 32 bytes of a V2 add (header word, master key, ledger id): the active
    # entries of its ledger. An add that begins with bytes that are found here was admitted before:
    # version, flags, key and ledger need no further look.
    writable: dict[bytes, Entries] = field(default_factory=dict)
    # The entries' bytes and what they cost besides. Not exact: the requests' headers count too, and
    # an entry that is sent again counts twice. It is never too low, and it starts anew with each
    # generation.
    active_bytes: int = 0
    sealed_bytes: int = 0
    # By ledger. Only the active one gets entries; only ``forget`` takes any from the sealed one,
    # under ``Checkpointer.lock``.
    _active: dict[int, Entries] = field(init=False, default_factory=dict)
    _sealed: dict[int, Entries] = field(init=False, default_factory=dict)

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
        """The entry that came last, of those that came for the first time; None for none."""
        for generation in (self._active, self._sealed):
            entries = generation.get(ledger_id)
            if entries:
                # A dict keeps the order of first insertion: an entry that is sent again stays.
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

    def forget(self, ledger_id: int) -> None:
        """Drop the entries of a ledger that was deleted."""
        entries = self._active.pop(ledger_id, None)
        if entries is not None:
            self.active_bytes -= _size_of(entries)
        entries = self._sealed.pop(ledger_id, None)
        if entries is not None:
            self.sealed_bytes -= _size_of(entries)

    def seal(self) -> dict[int, Entries]:
        """Make the active generation the sealed one; it stays readable until ``release``."""
        # A checkpoint that failed keeps its generation, and the next one carries that first.
        assert not self._sealed
        # The dicts change hands, and no entry is copied.
        self._sealed = self._active
        self.sealed_bytes = self.active_bytes
        self._active = {}
        self.active_bytes = 0
        # It maps to the entries that are sealed now: the next add of each ledger is decided anew.
        self.writable = {}
        return self._sealed

    def release(self) -> None:
        """Drop the sealed generation: the entry logs have it, and the index says where."""
        self._sealed = {}
        self.sealed_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of both generations."""
        return self.active_bytes + self.sealed_bytes

    @property
    def entry_count(self) -> int:
        """Entries held, counted ledger by ledger: for metrics, not for the hot path."""
        return sum(map(len, self._active.values())) + sum(map(len, self._sealed.values()))


def _size_of(entries: Entries) -> int:
    return sum(map(len, entries.values())) + ENTRY_OVERHEAD_BYTES * len(entries)
