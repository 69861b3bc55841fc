"""Which bookie takes the place of which in a faulty fragment.

Pure; the choice among bookies is given. Upstream always replaces. Here a bookie that answers, takes
entries and only lacks some is given these back first: it costs less, and in a cluster of as many
bookies as a ledger wants there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from geminga_autorecovery.decisions.findings import FaultyFragment, Finding
from geminga_autorecovery.decisions.fragments import fragments_of
from geminga_autorecovery.errors import FragmentChanged
from geminga_protocol.records.ledger_metadata import LedgerMetadata

Choose = Callable[[tuple[str, ...], frozenset[int]], Mapping[int, str]]
"""Other bookies for some places of an ensemble, as far as there are any: place → bookie id."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """``new`` gets what ``old`` should have as number ``index`` of the ensemble; in place: same."""

    index: int
    old: str
    new: str

    @property
    def is_in_place(self) -> bool:
        """Whether the bookie gets back what it lacks."""
        return self.old == self.new


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What can be done for a fragment now; ``unplaced`` are bookies without a successor."""

    replacements: tuple[Replacement, ...]
    unplaced: tuple[str, ...]


def plan_repair(
    fault: FaultyFragment,
    *,
    writable: Collection[str],
    choose: Choose,
    is_replacing_preferred: bool = False,
) -> RepairPlan:
    """The replacements for one fragment; no bookie comes to stand twice in its ensemble.

    ``writable`` are the bookies that take entries. With ``is_replacing_preferred`` one that could
    be repaired in place is so only where there is no other.
    """
    ensemble = fault.fragment.ensemble
    mendable = {
        index
        for index, finding in fault.findings.items()
        if finding is Finding.LACKING and ensemble[index] in writable
    }
    to_replace = set(fault.findings)
    if not is_replacing_preferred:
        to_replace -= mendable
    successors = choose(ensemble, frozenset(to_replace)) if to_replace else {}
    news = {index: ensemble[index] for index in mendable} | dict(successors)
    return RepairPlan(
        tuple(Replacement(index, ensemble[index], news[index]) for index in sorted(news)),
        tuple(ensemble[index] for index in sorted(fault.findings) if index not in news),
    )


def with_replacements(
    ledger_id: int,
    metadata: LedgerMetadata,
    first_entry: int,
    replacements: Sequence[Replacement],
) -> LedgerMetadata | None:
    """The ledger with other bookies in the fragment that begins at ``first_entry``.

    None where they stand there already, put by an attempt whose answer was lost. Raises
    ``FragmentChanged`` where the fragment is gone, is open, or is not what it was.
    """
    found = [
        (number, fragment.ensemble)
        for number, fragment in enumerate(fragments_of(metadata))
        if fragment.first_entry == first_entry and not fragment.is_open
    ]
    if len(found) != 1:
        raise FragmentChanged(ledger_id, first_entry)
    ((number, ensemble),) = found
    wanted = list(ensemble)
    for each in replacements:
        if wanted[each.index] not in (each.old, each.new):
            raise FragmentChanged(ledger_id, first_entry)
        wanted[each.index] = each.new
    if tuple(wanted) == ensemble:
        return None
    if len(set(wanted)) < len(wanted):
        raise FragmentChanged(ledger_id, first_entry)
    fragments = list(metadata.fragments)
    fragments[number] = replace(fragments[number], ensemble=tuple(wanted))
    return replace(metadata, fragments=tuple(fragments))
