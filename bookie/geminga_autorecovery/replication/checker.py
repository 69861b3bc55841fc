"""Finds out which bookies of a ledger do not have what they should: reads, and notes what fails.

BookKeeper's check (``LedgerChecker``), with one difference: of the open last fragment it only
checks that its bookies are registered. A living writer sees to the copies of that fragment itself;
they are read once the ledger is closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from geminga_autorecovery.decisions.findings import FaultyFragment, Finding, Flaw, finding_of
from geminga_autorecovery.decisions.fragments import (
    LedgerFragment,
    bookies_of,
    entries_to_verify,
    fragments_of,
    quorum_of,
)
from geminga_autorecovery.replication.copies import Copies
from geminga_autorecovery.replication.entry_lists import EntryLists, count_replicas
from geminga_ledger.metadata.store import StoredMetadata
from geminga_ledger.replication.quorum import Quorum

# Entries that are read at once: of the largest, 5 MiB each, a hundred MiB at most.
_READS_AT_ONCE_MAX = 20


@dataclass(eq=False, slots=True)
class LedgerChecker:
    """Checks ledgers, reading ``percentage`` of each fragment and at least its ends."""

    copies: Copies
    entry_lists: EntryLists
    # Draws the entries that are read.
    random: Random
    percentage: int = field(kw_only=True)

    async def check(
        self,
        stored: StoredMetadata,
        registered: frozenset[str],
        *,
        suspects: frozenset[str] = frozenset(),
    ) -> list[FaultyFragment]:
        """The fragments of the ledger in which a bookie is missing or lacks something, in order.

        Only ``registered`` bookies are asked. ``suspects`` are also asked for the list of all
        entries that they have, though only some are read. Raises ``UnsupportedLedger``.
        """
        # There are three sources, each of which overrides the one before: the registrations, the
        # suspects' own lists, and what reading shows.
        quorum = quorum_of(stored.ledger_id, stored.metadata)
        asked = suspects & registered & bookies_of(stored.metadata)
        lists = await self.entry_lists.ask(stored.ledger_id, asked) if asked else {}
        faults: list[FaultyFragment] = []
        for fragment in fragments_of(stored.metadata):
            # Findings are by the index in the ensemble, as each fragment has its own. A bookie that
            # is not registered is GONE whatever it may have, and is neither asked nor read.
            findings = {
                index: Finding.GONE
                for index, bookie in enumerate(fragment.ensemble)
                if bookie not in registered
            }
            # An open end moves: what a bookie lacks now may be on its way to it.
            if not fragment.is_open:
                # Empty lists tell nothing: without suspects only reading decides.
                lacking = (await count_replicas(fragment, quorum, lists)).lacking if lists else ()
                findings |= {
                    index: Finding.LACKING
                    for index, bookie in enumerate(fragment.ensemble)
                    if bookie in lacking
                }
                # What reading shows counts more than a bookie's own list.
                findings |= await self._read(stored, quorum, fragment, registered)
            if findings:
                faults.append(FaultyFragment(fragment, findings))
        return faults

    async def _read(
        self,
        stored: StoredMetadata,
        quorum: Quorum,
        fragment: LedgerFragment,
        registered: frozenset[str],
    ) -> dict[int, Finding]:
        """Read some entries of a closed fragment; returns what is wrong, by index of the bookie."""
        # The reads of all bookies go into one list, so that the batches below are full.
        wanted = [
            (index, entry_id)
            for index, bookie in enumerate(fragment.ensemble)
            if bookie in registered
            for entry_id in entries_to_verify(
                fragment,
                quorum,
                index,
                percentage=self.percentage,
                draw=self.random.randrange,
            )
        ]
        flaws: dict[int, list[Flaw]] = {}
        # Answers are kept as flaws only: the bytes of one batch are gone before the next is read.
        for start in range(0, len(wanted), _READS_AT_ONCE_MAX):
            some = wanted[start : start + _READS_AT_ONCE_MAX]
            copies = await self.copies.read(
                stored.ledger_id,
                stored.metadata,
                [(fragment.ensemble[index], entry_id) for index, entry_id in some],
            )
            for (index, _), copy in zip(some, copies, strict=True):
                # A bookie without flaws does not appear, and has no finding.
                if copy.flaw is not None:
                    flaws.setdefault(index, []).append(copy.flaw)
        # All flaws of a bookie decide together, whatever batch they were found in.
        found = {index: finding_of(each) for index, each in flaws.items()}
        return {index: finding for index, finding in found.items() if finding is not None}
