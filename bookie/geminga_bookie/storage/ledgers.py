"""What the bookie knows of a ledger besides its entries: its master key, and whether it is fenced.

The index keeps it for all ledgers; the table here has those that are in use. A change is in the
journal first (with the add, or as a fence), and the next checkpoint writes it to the index.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_bookie.formats.entry_log_v1 import LedgerRecord

# How many ledgers at the old end of the table are tried for one that can be forgotten. The others
# are needed until the next checkpoint, and the table may grow a little until then.
EVICTION_TRIES = 8


@dataclass(slots=True, eq=False)
class Ledger:
    """The state of one ledger on this bookie."""

    ledger_id: int
    # The SHA-1 that a writer derives from the ledger's password. Set by the first request for the
    # ledger; every later add and fence must have the same.
    master_key: bytes
    # Normal adds are refused. The fence holds in memory at once, and is acknowledged only when it
    # is durable, in the journal or the index.
    is_fenced: bool = False
    is_fence_durable: bool = False
    # The highest entry id in the entry logs, -1 for none. Only a checkpoint raises it, once the
    # index says durably where these entries are.
    last_flushed: int = -1
    # What the writer said last about its last-add-confirmed without an entry (V3); empty for
    # nothing.
    explicit_lac: bytes = b""
    # The next checkpoint has something to write about the ledger. The ledger then may not be
    # forgotten: memory and the journal alone know the change.
    is_changed: bool = False
    # The index does not know the ledger yet.
    is_new: bool = False


@dataclass(slots=True, eq=False)
class LedgerTable:
    """Ledgers by id: those in use from memory, the others by ``load`` (from the index).

    Holds about ``ledgers_max``. The one used longest ago is forgotten first, but none that is
    changed: what only memory and the journal know must stay until a checkpoint has written it.
    """

    load: Callable[[int], LedgerRecord | None]
    ledgers_max: int
    # The one used longest ago first.
    _ledgers: OrderedDict[int, Ledger] = field(init=False, default_factory=OrderedDict)
    # What the next checkpoint has to write. A ledger that a running checkpoint is writing is not in
    # it any more, but still ``is_changed``.
    changed: dict[int, Ledger] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        return len(self._ledgers)

    def find(self, ledger_id: int) -> Ledger | None:
        """The ledger, or None where this bookie has nothing of it."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None:
            self._ledgers.move_to_end(ledger_id)
            return ledger
        # Not in memory, so that the index has the newest state: a ledger that was forgotten was
        # unchanged.
        record = self.load(ledger_id)
        if record is None:
            return None
        ledger = Ledger(ledger_id, record.master_key)
        ledger.is_fenced = ledger.is_fence_durable = record.is_fenced
        ledger.last_flushed = record.last_entry
        ledger.explicit_lac = record.explicit_lac
        self._keep(ledger)
        return ledger

    def create(self, ledger_id: int, master_key: bytes) -> Ledger:
        """Add a ledger that ``find`` did not find."""
        ledger = Ledger(ledger_id, master_key)
        ledger.is_new = True
        self._keep(ledger)
        return ledger

    def new_ids(self) -> list[int]:
        """The ledgers that the index does not know yet."""
        return [ledger.ledger_id for ledger in self._ledgers.values() if ledger.is_new]

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger that was deleted."""
        self._ledgers.pop(ledger_id, None)
        self.changed.pop(ledger_id, None)

    def mark_changed(self, ledger: Ledger) -> None:
        """Have the next checkpoint write the ledger's record."""
        ledger.is_changed = True
        self.changed[ledger.ledger_id] = ledger

    def take_changed(self) -> dict[int, Ledger]:
        """Hand the changed ledgers over to a checkpoint; each stays changed until it is written."""
        changed = self.changed
        self.changed = {}
        return changed

    def mark_written(self, ledger: Ledger) -> None:
        """Note that a checkpoint wrote the ledger, which may have changed again meanwhile."""
        ledger.is_new = False
        # It is in ``changed`` again where an add or a fence came while the checkpoint was writing.
        ledger.is_changed = ledger.ledger_id in self.changed

    def _keep(self, ledger: Ledger) -> None:
        self._ledgers[ledger.ledger_id] = ledger
        for _ in range(EVICTION_TRIES):
            if len(self._ledgers) <= self.ledgers_max:
                return
            ledger_id, oldest = next(iter(self._ledgers.items()))
            if oldest.is_changed or oldest is ledger:
                # It goes to the new end of the table, so that the next tries look at others.
                self._ledgers.move_to_end(ledger_id)
            else:
                del self._ledgers[ledger_id]
