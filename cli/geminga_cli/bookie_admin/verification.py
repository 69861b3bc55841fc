"""``verify-ledger``: reads every copy of every entry of a ledger."""

from __future__ import annotations

import argparse
import json

from geminga_autorecovery.decisions.fragments import quorum_of
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.extent import extent_of
from geminga_cli.bookie_admin.read_ledger import ENTRIES_AT_ONCE_MAX, portions
from geminga_cli.bookie_admin.verdicts.ledger_verdict import LedgerVerdict, wanted_copies


async def verify_ledger(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the verdict on all copies; returns 1 if one is wrong, or could not be checked."""
    stored = await cluster.store.read(options.ledger)
    metadata = stored.metadata
    quorum = quorum_of(stored.ledger_id, metadata)
    extent = await extent_of(cluster, stored)
    verdict = LedgerVerdict(stored.ledger_id, metadata, extent)
    # All copies of an entry are judged together, so a step has whole entries.
    step = max(ENTRIES_AT_ONCE_MAX // quorum.write_quorum, 1)
    for entry_ids in portions(extent.entry_ids(), step):
        # In portions: all copies of a large ledger do not fit into memory.
        wanted = list(wanted_copies(metadata, quorum, entry_ids))
        verdict.add(wanted, await cluster.copies().read(stored.ledger_id, metadata, wanted))
    if options.json:
        print(json.dumps(verdict.record(), indent=2))
    else:
        for line in verdict.lines():
            print(line)
    return int(not verdict.is_sound)
