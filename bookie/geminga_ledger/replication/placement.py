"""Where a ledger's entries go: chooses ensembles, and who replaces a bookie that fails.

The rules, in the order of their weight: a bookie that can be reached and has not failed a moment
ago; one that is not in quarantine; another rack than those who hold the same entries; another rack
than anybody in the ensemble; chance. None but the first is ever a reason to place nothing, and that
only for a replacement: a new ledger is rather tried with a bookie that seems to be down than not
made. Facts: ``RackawareEnsemblePlacementPolicyImpl`` of Apache BookKeeper, whose weights for free
disk space and whose enforced racks are left out.

Pure: chance comes in as the order of the candidates (shuffled by the caller), so that a choice can
be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from geminga_ledger.errors import NotEnoughBookies
from geminga_ledger.replication.quorum import Quorum

# Where a bookie stands of which nobody said where it stands.
DEFAULT_RACK = "/default-rack"

Racks = Mapping[str, str]
"""Bookie id → rack, of the bookies that have one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bookie that takes new entries, and what is known of it."""

    bookie_id: str
    # It could not be reached or failed a moment ago, though it is registered.
    is_down: bool = False
    # It failed often, not long ago.
    is_quarantined: bool = False


def choose_ensemble(
    candidates: Sequence[Candidate],
    quorum: Quorum,
    racks: Racks | None = None,
    *,
    avoid: Collection[str] = (),
) -> tuple[str, ...]:
    """As many different bookies as the ensemble has, none of ``avoid``.

    Raises ``NotEnoughBookies``.
    """
    usable = [each for each in candidates if each.bookie_id not in avoid]
    if len(usable) < quorum.ensemble_size:
        raise NotEnoughBookies(quorum.ensemble_size, len(usable))
    table = _Table(quorum, racks or {})
    for slot in range(quorum.ensemble_size):
        best = min(usable, key=lambda each: table.cost(slot, each))
        usable.remove(best)
        table.seats[slot] = best.bookie_id
    return tuple(table.seats.values())


def choose_replacements(
    candidates: Sequence[Candidate],
    ensemble: Sequence[str],
    failed: Collection[int],
    quorum: Quorum,
    racks: Racks | None = None,
) -> dict[int, str]:
    """Who takes the place of each of the ``failed`` slots of ``ensemble``, as far as there is
    somebody: slot → bookie id. Nobody who is in the ensemble already or seems to be down."""
    usable = [each for each in candidates if not each.is_down and each.bookie_id not in ensemble]
    table = _Table(quorum, racks or {})
    table.seats = {slot: each for slot, each in enumerate(ensemble) if slot not in failed}
    replacements: dict[int, str] = {}
    for slot in sorted(failed):
        if not usable:
            break
        best = min(usable, key=lambda each: table.cost(slot, each))
        usable.remove(best)
        table.seats[slot] = replacements[slot] = best.bookie_id
    return replacements


class _Table:
    """Who sits where so far: ``seats`` by slot."""

    def __init__(self, quorum: Quorum, racks: Racks) -> None:
        self.seats: dict[int, str] = {}
        self._quorum = quorum
        self._racks = racks

    def cost(self, slot: int, candidate: Candidate) -> tuple[bool, bool, int, int]:
        """How bad a choice for ``slot`` this is; the first of the least bad ones is taken."""
        rack = self._rack(candidate.bookie_id)
        same_rack = [each for each, seated in self.seats.items() if self._rack(seated) == rack]
        neighbours = sum(self._share_entries(slot, each) for each in same_rack)
        return candidate.is_down, candidate.is_quarantined, neighbours, len(same_rack)

    def _rack(self, bookie_id: str) -> str:
        return self._racks.get(bookie_id, DEFAULT_RACK)

    def _share_entries(self, one: int, other: int) -> bool:
        """Whether two slots are in one write set: they are less than Qw apart around the ring."""
        apart = abs(one - other)
        return min(apart, self._quorum.ensemble_size - apart) < self._quorum.write_quorum
