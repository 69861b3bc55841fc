"""Auto-recovery as a service: a candidate for auditor and a replication worker.

Runs in a bookie's process, or alone. As many as there are share the work by locks in ZooKeeper; one
of them is the auditor.
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
        """``ledgers``: how bookies are asked, and how long they are waited for."""
        super().__init__()
        config = config or AutoRecoveryConfig()
        self._repair = LedgerRepair(
            coordination, network, clock, random, config, ledgers or LedgerConfig()
        )
        self._auditor = Auditor(coordination, clock, self._repair, config)
        self._election = Election(
            coordination, bookie_id, self._auditor.run, retry_s=config.retry_s
        )
        self._worker = ReplicationWorker(
            coordination, random, self._repair, config, holder=bookie_id
        )

    @property
    def is_auditor(self) -> bool:
        """Whether this daemon is the auditor of the cluster."""
        return self._election.is_auditor

    @property
    def election_attempts(self) -> int:
        """How often this daemon tried to become the auditor."""
        return self._election.attempts

    @property
    def background_faults(self) -> int:
        """How often its work met an error that nobody foresaw, and went on."""
        return self._election.faults + self._worker.faults

    @property
    def auditor_counters(self) -> AuditorCounters:
        """What this daemon did as the auditor."""
        return self._auditor.counters

    @property
    def worker_counters(self) -> WorkerCounters:
        """What this daemon's worker did."""
        return self._repair.counters

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._repair)
        await stack.enter_async_context(self._worker)
        await stack.enter_async_context(self._election)
