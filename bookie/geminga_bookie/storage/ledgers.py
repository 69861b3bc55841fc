"""What the bookie knows of a ledger besides its entries: its master key, and whether it is fenced.

The index keeps it; this table keeps the part that is in use in memory. Entries are elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from geminga_bookie.formats.entry_log_v1 import LedgerRecord

# How many ledgers at the old end of the table are looked at for one that can be forgotten: the
# others are in use until the next checkpoint, and the table may grow a little till then.
EVICTION_TRIES = 8


class Ledger:
    """The state of one ledger on this bookie.

    ``is_fence_durable``: the fence is in the journal or the index, not only in memory.
    ``last_flushed`` is the highest entry id in the entry logs, -1 for none. ``explicit_lac`` is
    what the writer said last, without an entry, about what is confirmed (V3), empty for nothing.
    ``is_changed``: the next checkpoint has something to write about the ledger; ``is_new``: the
    index does not know it yet.
    """

    __slots__ = (
        "explicit_lac",
        "is_changed",
        "is_fence_durable",
        "is_fenced",
        "is_new",
        "last_flushed",
        "ledger_id",
        "master_key",
    )

    def __init__(self, ledger_id: int, master_key: bytes) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.is_fenced = False
        self.is_fence_durable = False
        self.last_flushed = -1
        self.explicit_lac = b""
        self.is_changed = False
        self.is_new = False

    def record(self) -> LedgerRecord:
        """What the index is to remember."""
        return LedgerRecord(
            self.ledger_id,
            self.master_key,
            self.is_fenced,
            self.last_flushed,
            self.explicit_lac,
        )


class LedgerTable:
    """Ledgers by id: those in use from memory, the others by ``load`` (from the index).

    Holds about ``ledgers_max``: the ones not asked for longest are forgotten, unless changed.
    """

    def __init__(self, load: Callable[[int], LedgerRecord | None], ledgers_max: int) -> None:
        self._load = load
        self._ledgers_max = ledgers_max
        self._ledgers: OrderedDict[int, Ledger] = OrderedDict()
        self._changed: dict[int, Ledger] = {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def find(self, ledger_id: int) -> Ledger | None:
        """The ledger, or None where this bookie has nothing of it."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None:
            self._ledgers.move_to_end(ledger_id)
            return ledger
        record = self._load(ledger_id)
        if record is None:
            return None
        ledger = Ledger(ledger_id, record.master_key)
        ledger.is_fenced = ledger.is_fence_durable = record.is_fenced
        ledger.last_flushed = record.last_entry
        ledger.explicit_lac = record.explicit_lac
        self._keep(ledger)
        return ledger

    def create(self, ledger_id: int, master_key: bytes) -> Ledger:
        """Begin to know a ledger that ``find`` did not find."""
        ledger = Ledger(ledger_id, master_key)
        ledger.is_new = True
        self._keep(ledger)
        return ledger

    @property
    def new_count(self) -> int:
        """Ledgers that the index does not know yet, counted one by one: for metrics."""
        return sum(ledger.is_new for ledger in self._ledgers.values())

    def new_ids(self) -> list[int]:
        """The ledgers that the index does not know yet."""
        return [ledger.ledger_id for ledger in self._ledgers.values() if ledger.is_new]

    def forget(self, ledger_id: int) -> None:
        """Know the ledger no more: it is gone."""
        self._ledgers.pop(ledger_id, None)
        self._changed.pop(ledger_id, None)

    def mark_changed(self, ledger: Ledger) -> None:
        """Have the next checkpoint write the ledger's record."""
        ledger.is_changed = True
        self._changed[ledger.ledger_id] = ledger

    @property
    def has_changes(self) -> bool:
        """Whether a checkpoint would have something to write."""
        return bool(self._changed)

    def take_changed(self) -> dict[int, Ledger]:
        """The ledgers that a checkpoint must write; they count as changed until it is done."""
        changed = self._changed
        self._changed = {}
        return changed

    def mark_written(self, ledger: Ledger) -> None:
        """A checkpoint wrote the ledger; it may be forgotten unless it changed meanwhile."""
        ledger.is_new = False
        ledger.is_changed = ledger.ledger_id in self._changed

    def _keep(self, ledger: Ledger) -> None:
        self._ledgers[ledger.ledger_id] = ledger
        for _ in range(EVICTION_TRIES):
            if len(self._ledgers) <= self._ledgers_max:
                return
            ledger_id, oldest = next(iter(self._ledgers.items()))
            if oldest.is_changed or oldest is ledger:
                self._ledgers.move_to_end(ledger_id)
            else:
                del self._ledgers[ledger_id]
