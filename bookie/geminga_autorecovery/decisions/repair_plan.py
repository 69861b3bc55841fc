"""Which bookies get the copies that a faulty fragment lacks.

Pure; the choice among other bookies is passed in. Upstream always replaces. Here a bookie that
answers, takes entries and only lacks some is given these back ("in place"): that costs less, and in
a cluster with no more bookies than a ledger needs there is no other way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from geminga_autorecovery.decisions.findings import FaultyFragment, Finding
from geminga_autorecovery.decisions.fragments import fragments_of
from geminga_autorecovery.errors import FragmentChanged
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata

Choose = Callable[[tuple[str, ...], frozenset[int]], Mapping[int, str]]
"""Other bookies for some places of an ensemble, as far as there are any: place → bookie id."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """``new`` gets what ``old`` should have at ``index`` of the ensemble; in place: the same
    bookie.
    """

    index: int
    old: str
    new: str

    @property
    def is_in_place(self) -> bool:
        """Whether the bookie stays, and gets back what it lacks."""
        return self.old == self.new


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What can be done for a fragment now; for the ``unplaced`` bookies there is no replacement."""

    replacements: tuple[Replacement, ...]
    unplaced: tuple[str, ...]


def plan_repair(
    fault: FaultyFragment,
    *,
    writable: Collection[str],
    choose: Choose,
    is_replacing_preferred: bool = False,
) -> RepairPlan:
    """The replacements for one fragment; no bookie is twice in its ensemble afterwards.

    ``writable`` are the bookies that take entries. With ``is_replacing_preferred`` a bookie is
    repaired in place only where there is no other one.
    """
    ensemble = fault.fragment.ensemble
    # Repaired in place, if at all, is a bookie that answers and takes entries. A silent one may
    # hang for good, and a read-only one cannot store what it lacks.
    mendable = {
        index
        for index, finding in fault.findings.items()
        if finding is Finding.LACKING and ensemble[index] in writable
    }
    # Gone and silent bookies are always replaced, others only where they cannot or should not be
    # mended.
    to_replace = set(fault.findings)
    if not is_replacing_preferred:
        to_replace -= mendable
    # All places are chosen at once: one by one, two of them might get the same bookie, or one rack.
    successors = choose(ensemble, frozenset(to_replace)) if to_replace else {}
    # A replacement that was found for a mendable bookie goes before repairing that in place.
    news = {index: ensemble[index] for index in mendable} | dict(successors)
    return RepairPlan(
        tuple(Replacement(index, ensemble[index], news[index]) for index in sorted(news)),
        # These are neither replaced nor mended: the ledger is tried again later.
        tuple(ensemble[index] for index in sorted(fault.findings) if index not in news),
    )


def with_replacements(
    ledger_id: int,
    metadata: LedgerMetadata,
    first_entry: int,
    replacements: Sequence[Replacement],
) -> LedgerMetadata | None:
    """The ledger with other bookies in the fragment that begins at ``first_entry``.

    None where they are there already, written by an attempt whose answer was lost. Raises
    ``FragmentChanged`` where the fragment is gone, is open, or has changed.
    """
    found = [
        (number, fragment.ensemble)
        for number, fragment in enumerate(fragments_of(metadata))
        if fragment.first_entry == first_entry and not fragment.is_open
    ]
    # By its first entry, which no repair changes: the fragment may have got another number.
    if len(found) != 1:
        raise FragmentChanged(ledger_id, first_entry)
    ((number, ensemble),) = found
    wanted = list(ensemble)
    for each in replacements:
        # Either may stand there: ours may be written already.
        if wanted[each.index] not in (each.old, each.new):
            raise FragmentChanged(ledger_id, first_entry)
        # Only the places that were repaired change: what others changed elsewhere in the ensemble
        # stays.
        wanted[each.index] = each.new
    # The write of an earlier attempt has arrived, or all bookies stay.
    if tuple(wanted) == ensemble:
        return None
    # Another change has put a replacement into another place of the ensemble meanwhile.
    if len(set(wanted)) < len(wanted):
        raise FragmentChanged(ledger_id, first_entry)
    # The first entry, the other fragments and the state stay: readers of all entries go on.
    fragments = list(metadata.fragments)
    fragments[number] = replace(fragments[number], ensemble=tuple(wanted))
    return replace(metadata, fragments=tuple(fragments))
