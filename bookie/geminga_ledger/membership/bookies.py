"""Chooses bookies for ledgers: puts the facts together, adds chance, and lets ``placement`` decide.

``registry`` knows which bookies are registered and in which rack, ``links`` which of them can be
reached and behave. Shared by everything that writes in this process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.replication.placement import Candidate, choose_ensemble, choose_replacements
from geminga_ledger.replication.quorum import Quorum


@dataclass(eq=False, slots=True)
class Bookies:
    """The bookies of the cluster, as this process may choose among them."""

    registry: BookieRegistry
    links: BookieLinks
    random: Random

    def new_ensemble(self, quorum: Quorum) -> tuple[str, ...]:
        """Bookies for a new ledger. Raises ``NotEnoughBookies``."""
        return choose_ensemble(self._candidates(), quorum, self.registry.racks)

    def replacements(
        self, ensemble: Sequence[str], failed: Collection[int], quorum: Quorum
    ) -> dict[int, str]:
        """Bookies to replace those in ``failed`` slots: slot → bookie id, as many as there are."""
        return choose_replacements(
            self._candidates(), ensemble, failed, quorum, self.registry.racks
        )

    def _candidates(self) -> list[Candidate]:
        candidates = [
            Candidate(
                bookie_id,
                is_down=self.links.is_down(bookie_id),
                is_quarantined=self.links.is_quarantined(bookie_id),
            )
            for bookie_id in self.registry.writable
        ]
        # Among bookies that are equally good, placement takes the first.
        self.random.shuffle(candidates)
        return candidates
