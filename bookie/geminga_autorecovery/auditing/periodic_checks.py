"""The auditor's periodic checks of every ledger, at long intervals: three kinds.

When a check runs, and over which ledgers, is the auditor's business. Facts: Apache BookKeeper's
``AuditorCheckAllLedgersTask``, ``AuditorReplicasCheckTask``, ``AuditorPlacementPolicyCheckTask``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from geminga_autorecovery.counters import AuditorCounters
from geminga_autorecovery.decisions.adherence import is_adhering
from geminga_autorecovery.decisions.fragments import bookies_of, fragments_of, quorum_of
from geminga_autorecovery.decisions.replicas import Replicas
from geminga_autorecovery.replication.entry_lists import count_replicas
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.controls import LastCheck
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState


@dataclass(eq=False)
class PeriodicCheck(ABC):
    """One kind of check: every ``interval_s`` seconds (0: never), ``at_once_max`` ledgers at once.

    A run is ``begin``, a ``visit`` of each ledger, and ``finish`` unless it was broken off.
    """

    # Where ZooKeeper has the time of the last run, whichever daemon it was.
    last_check: ClassVar[LastCheck]

    repair: LedgerRepair
    counters: AuditorCounters
    interval_s: float = field(kw_only=True)
    at_once_max: int = field(kw_only=True)
    # The bookies that were registered when the run began, for the checks that need them. A run may
    # take hours: a bookie that is lost meanwhile is found by an audit.
    registered: frozenset[str] = field(default=frozenset(), init=False)

    async def begin(self) -> None:
        """All ledgers are about to be visited. Raises ``CoordinationError``."""
        self.registered = (await self.repair.live_bookies()).all

    @abstractmethod
    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """The bookies that lack something of the ledger. Raises ``LedgerError``."""

    @abstractmethod
    def finish(self, took_s: float) -> None:
        """All ledgers were visited, in so many seconds: publish what was counted."""


class ReadingCheck(PeriodicCheck):
    """Reads some entries of every ledger from every bookie."""

    last_check = controls.READING

    async def begin(self) -> None:
        """Nothing: each visit finds out by itself which bookies are registered."""

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """The bookies that did not give an entry, and those that are gone."""
        faults = await self.repair.check_stored(stored)
        self.counters.ledgers_checked += 1
        # The mark only names the bookies, whatever the finding: the worker finds out what they
        # lack.
        return frozenset().union(*(fault.bookies for fault in faults))

    def finish(self, took_s: float) -> None:
        """Count the run."""
        self.counters.checks += 1
        self.counters.check_s += took_s


class ReplicasCheck(PeriodicCheck):
    """Asks the bookies of every closed ledger which of its entries they have."""

    last_check = controls.REPLICAS

    # Ledgers of this run: with an entry that has no copy, fewer than Qa copies, fewer than Qw.
    # Published together at the end: metrics of half a run would look like an improvement.
    _without = _below_ack = _below_write = 0

    async def begin(self) -> None:
        """Count anew."""
        await super().begin()
        self._without = self._below_ack = self._below_write = 0

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """The bookies whose own lists lack an entry."""
        metadata = stored.metadata
        # The end of an open ledger is not known, and its writer may not have sent the last entries
        # to all bookies yet.
        if metadata.state is not LedgerState.CLOSED or metadata.last_entry < 0:
            return frozenset()
        quorum = quorum_of(stored.ledger_id, metadata)
        # Bookies that are gone are not asked: audits see to them.
        lists = await self.repair.entry_lists.ask(
            stored.ledger_id, bookies_of(metadata) & self.registered
        )
        # The neutral value: no ledger lacks anything.
        found = Replicas(frozenset(), quorum.write_quorum)
        for fragment in fragments_of(metadata):
            found = found.joined(await count_replicas(fragment, quorum, lists))
        # Each ledger counts once, for its entry with the fewest copies. Below the ack quorum there
        # are fewer copies than the writer's add was confirmed with.
        self._without += found.fewest <= 0
        self._below_ack += 0 < found.fewest < metadata.ack_quorum
        self._below_write += metadata.ack_quorum <= found.fewest < metadata.write_quorum
        # Only bookies that gave a list are in it: one that does not answer is not marked for that.
        return found.lacking

    def finish(self, took_s: float) -> None:
        """Publish what was counted."""
        counters = self.counters
        counters.ledgers_without_replica = self._without
        counters.ledgers_below_ack_quorum = self._below_ack
        counters.ledgers_below_write_quorum = self._below_write
        counters.replicas_checks += 1
        counters.replicas_check_s += took_s


class PlacementCheck(PeriodicCheck):
    """Compares the ensembles of every closed ledger with the rules of placement; moves nothing."""

    last_check = controls.PLACEMENT

    # Ledgers of this run.
    _badly_placed = 0

    async def begin(self) -> None:
        """Count anew."""
        await super().begin()
        self._badly_placed = 0

    async def visit(self, stored: StoredMetadata) -> frozenset[str]:
        """None: a badly placed ledger lacks no copies."""
        metadata = stored.metadata
        if metadata.state is LedgerState.CLOSED:
            quorum = quorum_of(stored.ledger_id, metadata)
            # By the racks that are known now: an operator may have moved a bookie since.
            is_well = is_adhering(metadata, quorum, self.repair.registry.racks, self.registered)
            # As upstream, the ledger is only counted: badly placed copies are still copies.
            self._badly_placed += not is_well
        return frozenset()

    def finish(self, took_s: float) -> None:
        """Publish what was counted."""
        self.counters.ledgers_badly_placed = self._badly_placed
        self.counters.placement_checks += 1
        self.counters.placement_check_s += took_s
