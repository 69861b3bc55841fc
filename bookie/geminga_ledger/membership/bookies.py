"""The bookies there are, as those who place ledgers see them: facts put together, chance added.

``registry`` knows who is registered and in which rack, ``links`` who can be reached and behaves;
``placement`` decides. Shared by everything that writes in this process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random

from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.replication.placement import Candidate, choose_ensemble, choose_replacements
from geminga_ledger.replication.quorum import Quorum


class Bookies:
    """Chooses among them. ``links`` are the ways to each."""

    def __init__(self, registry: BookieRegistry, links: BookieLinks, random: Random) -> None:
        self.links = links
        self._registry = registry
        self._random = random

    @property
    def registered_count(self) -> int:
        """How many there are, though some may take nothing new."""
        return self._registry.registered_count

    async def changed(self) -> None:
        """Return at the next change of who is there to be chosen."""
        await self._registry.changed()

    def new_ensemble(self, quorum: Quorum) -> tuple[str, ...]:
        """Bookies for a new ledger. Raises ``NotEnoughBookies``."""
        return choose_ensemble(self._candidates(), quorum, self._registry.racks)

    def replacements(
        self, ensemble: Sequence[str], failed: Collection[int], quorum: Quorum
    ) -> dict[int, str]:
        """Who can take the place of ``failed`` slots: slot → bookie id, of as many as can be."""
        return choose_replacements(
            self._candidates(), ensemble, failed, quorum, self._registry.racks
        )

    def _candidates(self) -> list[Candidate]:
        candidates = [
            replace(
                each,
                is_down=self.links.is_down(each.bookie_id),
                is_quarantined=self.links.is_quarantined(each.bookie_id),
            )
            for each in self._registry.candidates
        ]
        self._random.shuffle(candidates)
        return candidates
