"""``recover`` and ``decommission``: ledgers are taken off a bookie that will not come back."""

from __future__ import annotations

import argparse
import json
import sys

from geminga_autorecovery.bookie_recovery import recover
from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.decommission import Progress, decommission
from geminga_autorecovery.known_bookies import require_known
from geminga_autorecovery.repair import LedgerRepair
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import StillRegistered
from geminga_cli.display.text import count_words
from geminga_ledger import LedgerConfig


async def recover_bookie(cluster: Cluster, options: argparse.Namespace) -> int:
    """Move all its ledgers from here, now; 1 where some could not be. The cookie stays."""
    live = await cluster.live_bookies()
    if options.bookie in live.all and not options.force:
        way_out = "stop it first, or say --force to move its ledgers away from under it"
        raise StillRegistered(options.bookie, way_out)
    await require_known(options.bookie, cluster.coordination, cluster.store)
    repair = LedgerRepair(
        cluster.coordination,
        cluster.network,
        cluster.clock,
        cluster.random,
        AutoRecoveryConfig(),
        LedgerConfig(),
    )
    teller = _Teller(options)
    async with repair:
        progress = await recover(
            options.bookie,
            coordination=cluster.coordination,
            repair=repair,
            clock=cluster.clock,
            random=cluster.random,
            on_progress=teller.progress,
            on_trouble=teller.trouble,
        )
    return _end(progress, options, "recovered")


async def decommission_bookie(cluster: Cluster, options: argparse.Namespace) -> int:
    """Have the replication workers do it, wait for them, and forget the bookie."""
    await require_known(options.bookie, cluster.coordination, cluster.store)
    progress = await decommission(
        options.bookie,
        coordination=cluster.coordination,
        store=cluster.store,
        clock=cluster.clock,
        on_progress=_Teller(options).progress,
    )
    return _end(progress, options, "decommissioned")


class _Teller:
    """Says how far it is, when that has changed, and at once what went wrong with a ledger."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._is_silent = options.json
        self._told: Progress | None = None

    def progress(self, progress: Progress) -> None:
        """How far it is."""
        if progress == self._told or self._is_silent:
            return
        self._told = progress
        failed = f", {progress.failed} failed" if progress.failed else ""
        busy = ""
        if progress.busy:
            busy = f", waiting for {progress.busy} that a replication worker is on"
        print(f"{progress.done} of {count_words(progress.ledgers, 'ledger')}{failed}{busy}")
        sys.stdout.flush()

    def trouble(self, ledger_id: int, why: str) -> None:
        """Why a ledger is not as it should be; with ``--json`` beside the answer."""
        print(f"ledger {ledger_id}: {why}", file=sys.stderr if self._is_silent else sys.stdout)


def _end(progress: Progress, options: argparse.Namespace, word: str) -> int:
    if options.json:
        facts = {"ledgers": progress.ledgers, "done": progress.done, "failed": progress.failed}
        print(json.dumps({"bookie": options.bookie, **facts}))
    elif progress.failed:
        failed = count_words(progress.failed, "ledger")
        print(f"{failed} could not be moved off {options.bookie}; the lines above say why")
    else:
        print(f"bookie {options.bookie} is {word}: no ledger is on it any more")
    return int(bool(progress.failed))
