"""Entries that were read from entry logs lately: a reader that goes on finds its next entries here.

Filled block by block, emptied block by block, the oldest first. It is a read-ahead, not a cache of
hot entries (brokers have those), so an entry that is read again does not stay longer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class ReadCache:
    """Entries by ledger id and entry id; holds about ``bytes_max`` bytes of them.

    One block always stays, however large it is: its reader is about to ask for the rest of it.
    """

    bytes_max: int
    used_bytes: int = 0
    # Counted since the start.
    hits: int = 0
    misses: int = 0
    # By ledger, then by entry: a block comes and goes without a key made for each entry, which
    # takes 19 us instead of 49 for one of 64 entries.
    _entries: dict[int, dict[int, bytes]] = field(init=False, default_factory=dict)
    # Blocks in the order in which they came: ledger id, entries, bytes of the entries.
    _blocks: deque[tuple[int, dict[int, bytes], int]] = field(init=False, default_factory=deque)

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry, if its block is here."""
        entries = self._entries.get(ledger_id)
        entry = None if entries is None else entries.get(entry_id)
        if entry is None:
            # The caller reads the disk then; asking does not change what is kept.
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def put(self, ledger_id: int, block: dict[int, bytes]) -> None:
        """Keep a block's entries; drop the oldest blocks where it is too much."""
        size = sum(map(len, block.values()))
        self._blocks.append((ledger_id, block, size))
        # A block that is read twice stands in the queue twice, and its newer entries replace the
        # older.
        self._entries.setdefault(ledger_id, {}).update(block)
        self.used_bytes += size
        while self.used_bytes > self.bytes_max and len(self._blocks) > 1:
            ledger_id, block, size = self._blocks.popleft()
            self.used_bytes -= size
            entries = self._entries[ledger_id]
            for entry_id, entry in block.items():
                # A block that was read again since holds the entry too: leave it to that one.
                if entries.get(entry_id) is entry:
                    del entries[entry_id]
            if not entries:
                del self._entries[ledger_id]

    @property
    def entry_count(self) -> int:
        """Entries held, counted ledger by ledger: for metrics."""
        return sum(map(len, self._entries.values()))
