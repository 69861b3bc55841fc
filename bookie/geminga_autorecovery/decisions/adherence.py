"""Whether a ledger's bookies are in the racks that the rules of placement require.

Pure; BookKeeper's rule (``RackawareEnsemblePlacementPolicyImpl``): the bookies of each entry are in
two racks at least. In a cluster with one rack BookKeeper says that no ledger adheres; here one rack
is enough then.
"""

from __future__ import annotations

from collections.abc import Collection

from geminga_ledger.replication.placement import DEFAULT_RACK, Racks
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata

# minNumRacksPerWriteQuorum.
RACKS_WANTED = 2


def is_adhering(
    metadata: LedgerMetadata, quorum: Quorum, racks: Racks, bookies: Collection[str]
) -> bool:
    """Whether every fragment adheres; ``bookies`` are all that are registered."""
    # Bookies without a rack of their own are all in the default one.
    racks_in_use = len({racks.get(bookie, DEFAULT_RACK) for bookie in bookies})
    wanted = min(RACKS_WANTED, quorum.write_quorum, racks_in_use)
    # By write set, not by ensemble: an entry is on Qw of the E bookies only.
    return all(
        len({racks.get(fragment.ensemble[slot], DEFAULT_RACK) for slot in write_set}) >= wanted
        for fragment in metadata.fragments
        for write_set in quorum.write_sets
    )
