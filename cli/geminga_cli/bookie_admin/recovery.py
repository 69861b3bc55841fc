"""``recover`` and ``decommission``: move ledgers off a bookie that will not come back."""

from __future__ import annotations

import argparse
import json
import sys

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.removal.bookie_recovery import recover
from geminga_autorecovery.removal.decommission import Progress, decommission
from geminga_autorecovery.removal.known_bookies import require_known
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import StillRegistered
from geminga_cli.display.text import count_words
from geminga_ledger import LedgerConfig


async def recover_bookie(cluster: Cluster, options: argparse.Namespace) -> int:
    """Copy all ledgers of the bookie to others, from this process; returns 1 if some failed.

    The bookie's cookie stays.
    """
    # Two checks before anything is copied: the bookie must be down, and must have existed.
    live = await cluster.live_bookies()
    if options.bookie in live.all and not options.force:
        # A running bookie would keep receiving entries of new ledgers.
        way_out = "stop it first, or say --force to move its ledgers away from under it"
        raise StillRegistered(options.bookie, way_out)
    # A name that was mistyped would be "recovered" at once: no ledger is on it.
    await require_known(options.bookie, cluster.coordination, cluster.store)
    # With the timeouts of a server, not those of ``cluster.CONFIG``: copying takes its time.
    repair = LedgerRepair(
        cluster.coordination,
        cluster.network,
        cluster.clock,
        cluster.random,
        AutoRecoveryConfig(),
        LedgerConfig(),
    )
    # It says at once which ledger failed: such a move may run for hours.
    printer = _ProgressPrinter(options)
    async with repair:
        progress = await recover(
            options.bookie,
            coordination=cluster.coordination,
            repair=repair,
            clock=cluster.clock,
            random=cluster.random,
            on_progress=printer.progress,
            on_trouble=printer.trouble,
        )
    return _finish(progress, options, "recovered")


async def decommission_bookie(cluster: Cluster, options: argparse.Namespace) -> int:
    """Let the replication workers copy the ledgers, wait for them, and delete the cookie."""
    await require_known(options.bookie, cluster.coordination, cluster.store)
    progress = await decommission(
        options.bookie,
        coordination=cluster.coordination,
        store=cluster.store,
        clock=cluster.clock,
        on_progress=_ProgressPrinter(options).progress,
    )
    return _finish(progress, options, "decommissioned")


class _ProgressPrinter:
    """Prints the progress when it has changed, and what failed at once."""

    def __init__(self, options: argparse.Namespace) -> None:
        # Standard output is for the JSON of the result alone.
        self._is_json = options.json
        self._printed: Progress | None = None

    def progress(self, progress: Progress) -> None:
        """Print how many ledgers are done."""
        if progress == self._printed or self._is_json:
            return
        self._printed = progress
        failed = f", {progress.failed} failed" if progress.failed else ""
        # A ledger that a replication worker has locked is looked at again, and is no failure.
        busy = ""
        if progress.busy:
            busy = f", waiting for {progress.busy} that a replication worker is on"
        print(f"{progress.done} of {count_words(progress.ledgers, 'ledger')}{failed}{busy}")
        # People follow it through a pipe, too.
        sys.stdout.flush()

    def trouble(self, ledger_id: int, why: str) -> None:
        """Print why a ledger could not be moved."""
        print(f"ledger {ledger_id}: {why}", file=sys.stderr if self._is_json else sys.stdout)


def _finish(progress: Progress, options: argparse.Namespace, what: str) -> int:
    """Print the result; returns 1 if ledgers failed."""
    if options.json:
        facts = {"ledgers": progress.ledgers, "done": progress.done, "failed": progress.failed}
        print(json.dumps({"bookie": options.bookie, **facts}))
    elif progress.failed:
        failed = count_words(progress.failed, "ledger")
        print(f"{failed} could not be moved off {options.bookie}; the lines above say why")
    else:
        print(f"bookie {options.bookie} is {what}: no ledger is on it any more")
    return int(bool(progress.failed))
