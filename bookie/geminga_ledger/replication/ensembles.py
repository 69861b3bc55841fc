"""What an ensemble change makes of a ledger's metadata.

Entries before the change stay where they were confirmed; the new ensemble holds all from the first
unconfirmed one on. Facts: ``LedgerHandle.ensembleChangeLoop`` of Apache BookKeeper. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata


def with_fragment(
    metadata: LedgerMetadata, first_entry: int, ensemble: tuple[str, ...]
) -> LedgerMetadata:
    """The ledger with ``ensemble`` holding its entries from ``first_entry`` on.

    A last fragment that begins there itself holds nothing confirmed yet, and is replaced.
    """
    fragments = metadata.fragments
    last = fragments[-1]
    assert last.first_entry <= first_entry, "confirmed entries stay where they are"
    # A writer may change its ensemble twice before anything is confirmed in between.
    kept = fragments[:-1] if last.first_entry == first_entry else fragments
    return replace(metadata, fragments=(*kept, Fragment(first_entry, ensemble)))


def ended_at(metadata: LedgerMetadata, last_entry: int) -> LedgerMetadata:
    """The ledger without last fragments that would hold nothing if it ends at ``last_entry``."""
    # The first fragment stays, also where the ledger is empty. A bookie may be replaced, and then
    # nothing more of the ledger be confirmed. A fragment that begins beyond the last entry of a
    # closed ledger would name bookies that hold nothing of it.
    first, *later = metadata.fragments
    return replace(
        metadata,
        fragments=(first, *(each for each in later if each.first_entry <= last_entry)),
    )
