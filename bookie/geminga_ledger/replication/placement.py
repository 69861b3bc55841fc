"""Chooses the bookies of a ledger: its ensemble, and replacements for bookies that fail.

The rules, in the order of their weight:

1. a bookie that can be reached and has not failed a moment ago,
2. one that is not in quarantine,
3. another rack than the bookies that hold the same entries,
4. another rack than any bookie of the ensemble,
5. chance.

Only the first can be a reason to choose none, and only for a replacement: a new ledger is rather
tried with a bookie that seems to be down than not made. Facts:
``RackawareEnsemblePlacementPolicyImpl`` of Apache BookKeeper, whose weights for free disk space and
whose enforced racks are left out.

Pure: chance comes in as the order of the candidates (shuffled by the caller), so that a choice can
be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from geminga_ledger.errors import NotEnoughBookies
from geminga_ledger.replication.quorum import Quorum

# The rack of bookies that no operator has assigned one (BookKeeper's name).
DEFAULT_RACK = "/default-rack"

Racks = Mapping[str, str]
"""Bookie id → rack, of the bookies that have one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bookie that takes new entries, and what is known of it."""

    bookie_id: str
    # It is registered, but could not be reached or failed a moment ago.
    is_down: bool = False
    # It failed often in the last minutes.
    is_quarantined: bool = False


def choose_ensemble(
    candidates: Sequence[Candidate],
    quorum: Quorum,
    racks: Racks | None = None,
    *,
    avoid: Collection[str] = (),
) -> tuple[str, ...]:
    """As many different bookies as the ensemble needs, none of ``avoid``.

    Raises ``NotEnoughBookies``.
    """
    usable = [each for each in candidates if each.bookie_id not in avoid]
    # Down ones included: they come last, but a ledger with one of them is better than none.
    if len(usable) < quorum.ensemble_size:
        raise NotEnoughBookies(quorum.ensemble_size, len(usable))
    chosen = _Ensemble(quorum, racks or {})
    # Greedy, slot by slot: a choice sees the racks of the slots before it, and is never taken back.
    # To compare all ensembles would take a number of steps that grows with the power of E.
    for slot in range(quorum.ensemble_size):
        best = min(usable, key=lambda each: chosen.cost(slot, each))
        usable.remove(best)
        chosen.bookies[slot] = best.bookie_id
    return tuple(chosen.bookies.values())


def choose_replacements(
    candidates: Sequence[Candidate],
    ensemble: Sequence[str],
    failed: Collection[int],
    quorum: Quorum,
    racks: Racks | None = None,
) -> dict[int, str]:
    """A bookie for each ``failed`` slot of ``ensemble``, as far as there are any: slot → bookie id.

    None that is in the ensemble already or seems to be down: a replacement must help now.
    """
    usable = [each for each in candidates if not each.is_down and each.bookie_id not in ensemble]
    chosen = _Ensemble(quorum, racks or {})
    chosen.bookies = {slot: each for slot, each in enumerate(ensemble) if slot not in failed}
    replacements: dict[int, str] = {}
    # As many as can be: each one replaced brings the ledger closer to its full number of copies.
    for slot in sorted(failed):
        if not usable:
            break
        best = min(usable, key=lambda each: chosen.cost(slot, each))
        usable.remove(best)
        chosen.bookies[slot] = replacements[slot] = best.bookie_id
    return replacements


@dataclass(slots=True)
class _Ensemble:
    """An ensemble that is being filled, slot by slot."""

    quorum: Quorum
    racks: Racks
    # The bookies so far, by slot.
    bookies: dict[int, str] = field(default_factory=dict[int, str])

    def cost(self, slot: int, candidate: Candidate) -> tuple[bool, bool, int, int]:
        """How bad a choice for ``slot`` this is; the first of the least bad ones is taken."""
        # Bookies without a rack are neighbours of each other. Where no racks are assigned at all,
        # all candidates therefore cost the same here, and their order, which is chance, decides.
        rack = self.racks.get(candidate.bookie_id, DEFAULT_RACK)
        same_rack = neighbours = 0
        for other, bookie_id in self.bookies.items():
            if self.racks.get(bookie_id, DEFAULT_RACK) == rack:
                same_rack += 1
                # Two slots share entries, being in one write set, when they are less than Qw apart
                # around the ring.
                apart = abs(slot - other)
                apart = min(apart, self.quorum.ensemble_size - apart)
                neighbours += apart < self.quorum.write_quorum
        # Compared from the left: a rule of more weight is never outvoted by those after it.
        return candidate.is_down, candidate.is_quarantined, neighbours, same_rack
