"""Entries that readers got and have not given out yet: the ends of windows (``read_plan``), and
what else came beyond what was wanted. Pure.

All readers of a process share one bound. Confirmed entries never change, so what is kept is right
however long it is kept, and whatever happens to the ledger meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# What an entry costs beside its payload: the bytes object's head, its key, its place in the table.
ENTRY_OVERHEAD_BYTES = 200


@dataclass(eq=False, slots=True)
class ReadAheadCache:
    """Keeps entries of any ledgers, until they are taken or newer ones need their room."""

    bytes_max: int
    # By ledger and entry, those kept longest in front.
    _entries: dict[tuple[int, int], bytes] = field(
        default_factory=dict[tuple[int, int], bytes], init=False
    )
    # What all of them cost, overhead included.
    size_bytes: int = field(default=0, init=False)

    def __contains__(self, at: tuple[int, int]) -> bool:
        return at in self._entries

    def keep(self, ledger_id: int, payloads: Mapping[int, bytes]) -> None:
        """Keep entries of a ledger; the ones kept longest leave where there are too many bytes."""
        for entry_id, payload in payloads.items():
            # Kept already, perhaps: then it moves to the end, and is not counted twice.
            self.take(ledger_id, entry_id)
            self._entries[ledger_id, entry_id] = payload
            self.size_bytes += len(payload) + ENTRY_OVERHEAD_BYTES
        while self.size_bytes > self.bytes_max:
            # An entry above the bound goes at once; an empty cache has 0 bytes, which ends this.
            self.take(*next(iter(self._entries)))

    def take(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The entry, which is kept no more; None where it is not here."""
        payload = self._entries.pop((ledger_id, entry_id), None)
        if payload is not None:
            self.size_bytes -= len(payload) + ENTRY_OVERHEAD_BYTES
        return payload
