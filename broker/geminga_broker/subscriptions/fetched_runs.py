"""Entries that a dispatcher read from bookies, for as long as it may need them. Pure."""

from __future__ import annotations

from geminga_broker.log.positions import Entry, Position


class FetchedRuns:
    """The last ``runs_max`` runs, the newest last: each of one ledger and without a gap."""

    __slots__ = ("_runs", "_runs_max", "is_in_use")

    def __init__(self, runs_max: int) -> None:
        # Was anything kept or found since this was last set to False?
        self.is_in_use = False
        self._runs_max = runs_max
        self._runs: list[tuple[int, list[Entry]]] = []

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(len(entries) for _, entries in self._runs)

    def keep(self, ledger_id: int, entries: list[Entry]) -> None:
        """Keep a run, instead of the oldest where there are too many."""
        self._runs.append((ledger_id, entries))
        del self._runs[: -self._runs_max]
        self.is_in_use = True

    def run(self, position: Position, count_max: int) -> list[Entry]:
        """Entries from ``position`` on, of its ledger; empty when that one is not here."""
        ledger_id, entry_id = position
        for of_ledger, entries in reversed(self._runs):
            if of_ledger == ledger_id and entries[0][0] <= entry_id <= entries[-1][0]:
                self.is_in_use = True
                start = entry_id - entries[0][0]
                return entries[start : start + count_max]
        return []

    def clear(self) -> None:
        """Keep none of them."""
        self._runs.clear()
