"""What the auditor looks at in every ledger, at long intervals: three kinds of check.

When to look, and at which ledgers, is the auditor's business. Facts: Apache BookKeeper's
``AuditorCheckAllLedgersTask``, ``AuditorReplicasCheckTask``, ``AuditorPlacementPolicyCheckTask``.
"""

from __future__ import annotations

from typing import Protocol

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.counters import AuditorCounters
from geminga_autorecovery.decisions.adherence import is_adhering
from geminga_autorecovery.decisions.fragments import bookies_of, fragments_of, quorum_of
from geminga_autorecovery.decisions.replicas import Replicas
from geminga_autorecovery.replication.entry_lists import count_replicas
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.controls import LastCheck
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.records.ledger_metadata import LedgerState


class PeriodicCheck(Protocol):
    """One kind of check. ``interval_s`` is 0 for never, ``at_once_max`` is in ledgers."""

    last: LastCheck
    interval_s: float
    at_once_max: int

    async def begin(self) -> None:
        """All ledgers are about to be visited. Raises ``CoordinationError``."""
        ...

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """The bookies that lack something of the ledger. Raises ``LedgerError``."""
        ...

    def finish(self, took_s: float) -> None:
        """All ledgers were visited, in so many seconds."""
        ...


class ReadingCheck:
    """Reads some entries of every ledger from every bookie."""

    last = controls.READING

    def __init__(
        self, repair: LedgerRepair, config: AutoRecoveryConfig, counters: AuditorCounters
    ) -> None:
        self.interval_s = config.auditor_periodic_check_interval_s
        self.at_once_max = config.ledger_checks_max
        self._repair = repair
        self._counters = counters

    async def begin(self) -> None:
        """Nothing is counted anew."""

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """The bookies that did not give an entry, and those that are gone."""
        faults = await self._repair.check_stored(stored)
        self._counters.ledgers_checked += 1
        return frozenset().union(*(fault.bookies for fault in faults))

    def finish(self, took_s: float) -> None:
        """Count it."""
        self._counters.checks += 1
        self._counters.check_s += took_s


class ReplicasCheck:
    """Asks the bookies of every closed ledger which of its entries they have."""

    last = controls.REPLICAS

    def __init__(
        self, repair: LedgerRepair, config: AutoRecoveryConfig, counters: AuditorCounters
    ) -> None:
        self.interval_s = config.auditor_periodic_replicas_check_interval_s
        self.at_once_max = config.ledger_checks_max
        self._repair = repair
        self._counters = counters
        self._registered: frozenset[str] = frozenset()
        self._without = self._below_ack = self._below_write = 0

    async def begin(self) -> None:
        """Count anew."""
        self._registered = (await self._repair.live_bookies()).all
        self._without = self._below_ack = self._below_write = 0

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """The bookies that say themselves that they lack an entry."""
        metadata = stored.metadata
        if metadata.state is not LedgerState.CLOSED or metadata.last_entry < 0:
            return frozenset()
        found = await self._count(stored)
        self._without += found.fewest <= 0
        self._below_ack += 0 < found.fewest < metadata.ack_quorum
        self._below_write += metadata.ack_quorum <= found.fewest < metadata.write_quorum
        return found.lacking

    async def _count(self, stored: StoredMetadata) -> Replicas:
        metadata = stored.metadata
        quorum = quorum_of(stored.ledger_id, metadata)
        lists = await self._repair.entry_lists.ask(
            stored.ledger_id, bookies_of(metadata) & self._registered
        )
        found = Replicas(frozenset(), quorum.write_quorum)
        for fragment in fragments_of(metadata):
            found = found.joined(await count_replicas(fragment, quorum, lists))
        return found

    def finish(self, took_s: float) -> None:
        """Tell what was counted."""
        counters = self._counters
        counters.ledgers_without_replica = self._without
        counters.ledgers_below_ack_quorum = self._below_ack
        counters.ledgers_below_write_quorum = self._below_write
        counters.replicas_checks += 1
        counters.replicas_check_s += took_s


class PlacementCheck:
    """Compares the ensembles of every closed ledger with the rules of placement; moves nothing."""

    last = controls.PLACEMENT

    def __init__(
        self, repair: LedgerRepair, config: AutoRecoveryConfig, counters: AuditorCounters
    ) -> None:
        self.interval_s = config.auditor_periodic_placement_policy_check_interval_s
        self.at_once_max = config.metadata_reads_max
        self._repair = repair
        self._counters = counters
        self._registered: frozenset[str] = frozenset()
        self._badly_placed = 0

    async def begin(self) -> None:
        """Count anew."""
        self._registered = (await self._repair.live_bookies()).all
        self._badly_placed = 0

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """None: a ledger that stands badly lacks nothing."""
        metadata = stored.metadata
        if metadata.state is LedgerState.CLOSED:
            quorum = quorum_of(stored.ledger_id, metadata)
            is_well = is_adhering(metadata, quorum, self._repair.racks, self._registered)
            self._badly_placed += not is_well
        return frozenset()

    def finish(self, took_s: float) -> None:
        """Tell what was counted."""
        self._counters.ledgers_badly_placed = self._badly_placed
        self._counters.placement_checks += 1
        self._counters.placement_check_s += took_s
