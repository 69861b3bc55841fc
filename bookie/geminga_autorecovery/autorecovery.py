"""The daemon of auto-recovery: a candidate for auditor and a replication worker.

It runs in a bookie's process, or alone. All daemons of a cluster share the work by locks in
ZooKeeper; one of them is the auditor.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from random import Random

from geminga_autorecovery.auditing.auditor import Auditor
from geminga_autorecovery.auditing.election import Election
from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.counters import AuditorCounters, WorkerCounters
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_autorecovery.replication.worker import ReplicationWorker
from geminga_ledger import LedgerConfig
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service


class AutoRecovery(Service):
    """One recovery daemon; ``bookie_id`` is its name in elections and locks."""

    def __init__(
        self,
        bookie_id: str,
        *,
        coordination: Coordination,
        network: Network,
        clock: Clock,
        random: Random,
        config: AutoRecoveryConfig | None = None,
        ledgers: LedgerConfig | None = None,
    ) -> None:
        """``ledgers`` has the deadlines and sizes of requests to bookies."""
        super().__init__()
        config = config or AutoRecoveryConfig()
        # One for both: the auditor's checks and the worker's copies share the connections to
        # bookies.
        self._repair = LedgerRepair(
            coordination, network, clock, random, config, ledgers or LedgerConfig()
        )
        # Each daemon has an auditor; it works while the daemon is elected.
        auditor = Auditor(coordination, clock, self._repair, config)
        self.election = Election(coordination, bookie_id, auditor.run, retry_s=config.retry_s)
        # Each daemon has one: all of the cluster together take marked ledgers off the list.
        self._worker = ReplicationWorker(
            coordination, random, self._repair, config, holder=bookie_id
        )
        # What this daemon did as the auditor, and as a worker.
        self.auditor_counters: AuditorCounters = auditor.counters
        self.worker_counters: WorkerCounters = self._repair.counters

    @property
    def background_faults(self) -> int:
        """How often its work met an unforeseen error, and went on."""
        return self.election.faults + self._worker.faults

    async def _open(self, stack: AsyncExitStack) -> None:
        # Closed in the opposite order: the repair that both others use is last.
        await stack.enter_async_context(self._repair)
        await stack.enter_async_context(self._worker)
        await stack.enter_async_context(self.election)
