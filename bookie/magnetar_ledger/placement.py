"""Where a ledger's entries go: chooses ensembles among the bookies there are.

Pure: chance comes in as the order of the candidates (shuffled by the caller), so that a choice can
be repeated. Racks, disks that fill up, and replacing one bookie of an ensemble are further facts on
``Candidate`` and further preferences here (issue 4), not another shape.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from magnetar_ledger.errors import NotEnoughBookies


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bookie that takes new entries, and what is known of it."""

    bookie_id: str
    # It could not be reached a moment ago, though it is registered.
    is_down: bool = False


def choose_ensemble(
    candidates: Sequence[Candidate], size: int, avoid: Collection[str] = ()
) -> tuple[str, ...]:
    """``size`` different bookies, none of ``avoid``: those that are up first, each kind in the
    order of ``candidates``.

    Raises ``NotEnoughBookies``.
    """
    usable = sorted(
        (each for each in candidates if each.bookie_id not in avoid), key=lambda each: each.is_down
    )
    chosen = tuple(dict.fromkeys(each.bookie_id for each in usable))[:size]
    if len(chosen) < size:
        raise NotEnoughBookies(size, len(chosen))
    return chosen
