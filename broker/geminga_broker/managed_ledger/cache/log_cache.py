"""One log's part of the broker's entry cache: a ``LedgerCache`` for each newer ledger. Pure.

Entries come here when they are confirmed, from the first of a ledger that this broker opened; what
is read from bookies is not put in. So what is cached of a ledger has no gaps, and an entry is found
by its index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from geminga_broker.managed_ledger.cache.entry_cache import (
    ENTRY_OVERHEAD_BYTES,
    EntryCache,
    LedgerCache,
)
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position


@dataclass(slots=True, eq=False)
class LogCache:
    """One log's part of ``cache``, which keeps longest what is still to be sent."""

    cache: EntryCache
    # Called with a ledger: the first entry of it that some subscription has still to be sent.
    wanted_from: Callable[[int], int]
    # By ledger; None until something is published to it: a broker may have very many logs that take
    # no entries, and an empty ``LedgerCache`` costs a few hundred bytes.
    _ledgers: dict[int, LedgerCache | None] = field(
        default_factory=dict[int, LedgerCache | None], init=False
    )

    def begin(self, ledger_id: int) -> None:
        """Expect the entries of this new ledger, from its first on."""
        # Ledgers of which all was evicted are forgotten, or a log would keep one for each.
        self._ledgers = {
            each: kept for each, kept in self._ledgers.items() if kept is not None and kept.entries
        }
        self._ledgers[ledger_id] = None

    def insert(self, ledger_id: int, entries: list[Entry], size_bytes: int, now_s: float) -> None:
        """Keep a confirmed run of ``size_bytes`` payload bytes."""
        # Always there: ``begin`` comes before the first append, and while a ledger can still
        # confirm entries, the log neither begins another nor trims this one.
        ledger = self._ledgers[ledger_id]
        if ledger is None:
            ledger = LedgerCache(0, partial(self.wanted_from, ledger_id))
            self._ledgers[ledger_id] = ledger
        self.cache.insert(ledger, entries, size_bytes, now_s)

    def run(self, position: Position, count_max: int) -> list[Entry]:
        """Entries from ``position`` on, of its ledger; empty when that one is not in memory."""
        ledger = self._ledgers.get(position[0])
        return self._counted(
            ledger, ledger.run(position[1], count_max) if ledger is not None else []
        )

    def entries(self, ids: Sequence[EntryId]) -> list[Entry]:
        """The entries of ``ids``, of one ledger and in order, up to the first not in memory.

        Each is found by its index: a run that reaches from the first to the last would touch all
        that lie between.
        """
        ledger = self._ledgers.get(ids[0][0])
        return self._counted(ledger, ledger.pick(ids) if ledger is not None else [])

    def _counted(self, ledger: LedgerCache | None, found: list[Entry]) -> list[Entry]:
        if found:
            assert ledger is not None
            self.cache.hits += len(found)
            # Estimated: to sum up the payloads' sizes would cost time for each read. By the mean of
            # the ledger's entries in memory, with their overhead, which is taken off again.
            cost = len(found) * ledger.cost_bytes // len(ledger.entries)
            self.cache.hit_bytes += cost - len(found) * ENTRY_OVERHEAD_BYTES
        else:
            self.cache.misses += 1
        return found

    def missing(self, ledger_id: int, entry_ids: Sequence[int]) -> Sequence[int]:
        """Which of ``entry_ids``, which grow, must be read because the first is not cached."""
        ledger = self._ledgers.get(ledger_id)
        # A ledger's cache has no gaps and reaches to its end: only what lies before its first entry
        # is missing.
        if ledger is not None and ledger.entries and entry_ids[0] < ledger.first_entry_id:
            return entry_ids[: bisect_left(entry_ids, ledger.first_entry_id)]
        return entry_ids

    def forget(self, ledger_id: int) -> None:
        """Drop the entries of a ledger that was deleted."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            self.cache.discard(ledger)
            # Its turns stay in the queue for a while: they must not keep the whole log alive.
            ledger.wanted_from = None

    def clear(self) -> None:
        """Drop all entries: the log is closed."""
        # A copy: ``forget`` takes the ledger out.
        for ledger_id in list(self._ledgers):
            self.forget(ledger_id)
