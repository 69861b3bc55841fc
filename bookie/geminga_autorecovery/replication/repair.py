"""Repairs one ledger: checks it, copies what is missing, writes down which bookies have it now.

Used by the replication worker and by the tools. The order keeps every reader right at any moment:
copies are stored first, then the ensemble is changed by compare-and-set, so that the bookies which
the metadata names have the entries. The open last fragment of a ledger is never touched;
``take_over`` closes the ledger by recovery first. Facts: ``ReplicationWorker``, ``BookKeeperAdmin``
and ``LedgerFragmentReplicator`` of Apache BookKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from random import Random

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.counters import WorkerCounters
from geminga_autorecovery.decisions.findings import FaultyFragment
from geminga_autorecovery.decisions.fragments import quorum_of
from geminga_autorecovery.decisions.repair_plan import RepairPlan, plan_repair, with_replacements
from geminga_autorecovery.errors import (
    AutoRecoveryError,
    ClaimLost,
    EntriesUnreadable,
    NowhereToCopy,
)
from geminga_autorecovery.replication.checker import LedgerChecker
from geminga_autorecovery.replication.copier import FragmentCopier
from geminga_autorecovery.replication.copies import Copies
from geminga_autorecovery.replication.entry_lists import EntryLists
from geminga_autorecovery.replication.take_over import TakeOvers
from geminga_autorecovery.zookeeper.live_bookies import LiveBookies, read_live_bookies
from geminga_ledger import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.errors import LedgerError, NoSuchLedger, UnsupportedLedger
from geminga_ledger.membership.bookies import Bookies
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.metadata.store import LedgerStore, StoredMetadata
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """How a ledger is checked and repaired."""

    # These bookies count as not registered, whatever ZooKeeper says.
    lost: frozenset[str] = frozenset()
    # The ledger's mark names these bookies: they are asked which of all entries they have.
    suspects: frozenset[str] = frozenset()
    # A bookie that lacks entries is replaced where there is another, rather than given them back.
    is_replacing_preferred: bool = False


USUAL_OPTIONS = RepairOptions()


class RepairResult(Enum):
    """How a ledger is after an attempt."""

    WHOLE = "whole"  # every bookie of every fragment has what it should, or the ledger is gone
    UNCLOSED = "unclosed"  # all but its open last fragment, which misses bookies
    FAULTY = "faulty"  # something could not be repaired; try again later


OnTrouble = Callable[[str], None]
IsClaimed = Callable[[], Awaitable[bool]]


class LedgerRepair(Service):
    """Checks and repairs ledgers, one call at a time for each ledger.

    All methods raise ``CoordinationError``, and ``UnsupportedLedger`` for metadata that contradicts
    itself.
    """

    def __init__(
        self,
        coordination: Coordination,
        network: Network,
        clock: Clock,
        random: Random,
        config: AutoRecoveryConfig,
        ledger_options: LedgerConfig,
    ) -> None:
        super().__init__()
        # The certificates are read anew for each connection: they may be renewed meanwhile.
        tls = config.bookkeeper_tls.maker
        self.counters = WorkerCounters()
        self.store = LedgerStore(coordination, clock=clock, random=random, config=ledger_options)
        self._coordination = coordination
        self.registry = BookieRegistry(coordination, random=random, config=ledger_options)
        # Connections of its own, apart from those of a bookie or broker in the same process: one
        # that is slow with copies delays no writer.
        self._links = BookieLinks(
            self.registry.resolve,
            network=network,
            clock=clock,
            random=random,
            config=ledger_options,
            tls=tls,
        )
        self._bookies = Bookies(self.registry, self._links, random)
        self._take_overs = TakeOvers(coordination, network, clock, random, ledger_options, tls)
        answer_timeout_s = ledger_options.answer_timeout_s
        self.entry_lists = EntryLists(self._links, answer_timeout_s=answer_timeout_s)
        copies = Copies(self._links, answer_timeout_s=answer_timeout_s)
        self._checker = LedgerChecker(
            copies,
            self.entry_lists,
            random,
            percentage=config.auditor_ledger_verification_percentage,
        )
        self._copier = FragmentCopier(copies, clock=clock, config=config, counters=self.counters)

    async def _open(self, stack: AsyncExitStack) -> None:
        # The registry before the links, which ask it for addresses.
        await stack.enter_async_context(self.registry)
        await stack.enter_async_context(self._links)
        await stack.enter_async_context(self._take_overs)

    async def live_bookies(self, options: RepairOptions = USUAL_OPTIONS) -> LiveBookies:
        """The bookies that are registered now, without those that count as lost."""
        # From ZooKeeper, not from the registry, which may be a moment behind.
        live = await read_live_bookies(self._coordination.children)
        return LiveBookies(live.writable - options.lost, live.read_only - options.lost)

    async def check(
        self, ledger_id: int, options: RepairOptions = USUAL_OPTIONS
    ) -> list[FaultyFragment]:
        """The faulty fragments of a ledger. Raises ``NoSuchLedger``."""
        return await self.check_stored(await self.store.read(ledger_id), options)

    async def check_stored(
        self, stored: StoredMetadata, options: RepairOptions = USUAL_OPTIONS
    ) -> list[FaultyFragment]:
        """The faulty fragments of a ledger with this metadata."""
        registered = (await self.live_bookies(options)).all
        return await self._checker.check(stored, registered, suspects=options.suspects)

    async def repair(
        self,
        ledger_id: int,
        options: RepairOptions = USUAL_OPTIONS,
        *,
        is_claimed: IsClaimed | None = None,
        on_trouble: OnTrouble | None = None,
    ) -> RepairResult:
        """Repair what can be repaired now, except an open last fragment.

        ``is_claimed`` is called before the metadata is changed, which is not done where the claim
        is lost. ``on_trouble`` gets, in words, what keeps the ledger from being whole; the log has
        it in any case.
        """
        try:
            # The repair checks, mends each closed fragment by itself, and checks again: the second
            # check decides.
            faults = await self.check(ledger_id, options)
            closed = [fault for fault in faults if not fault.fragment.is_open]
            for fault in closed:
                # An error concerns one fragment: the others are repaired all the same, and the
                # check that follows finds what is left.
                try:
                    # Fragments are mended one after the other: each changes the metadata that the
                    # next one reads.
                    await self._mend(ledger_id, fault, options, is_claimed)
                # These concern the ledger as a whole: going on with its other fragments is of no
                # use.
                except (NoSuchLedger, UnsupportedLedger):
                    raise
                except (AutoRecoveryError, LedgerError) as error:
                    if isinstance(error, EntriesUnreadable):
                        self.counters.entries_unreadable += len(error.entry_ids)
                    log.warning(
                        "fragment not repaired", extra={"ledger": ledger_id, "error": str(error)}
                    )
                    if on_trouble is not None:
                        on_trouble(str(error))
            # A second look instead of trust: what was copied is read from where it should be now.
            if closed:
                faults = await self.check(ledger_id, options)
        except NoSuchLedger:
            # The ledger was deleted meanwhile. Copies that were stored since are garbage, which
            # their bookies collect.
            return RepairResult.WHOLE
        if on_trouble is not None:
            for fault in faults:
                on_trouble(fault.words())
        if not faults:
            return RepairResult.WHOLE
        # What is left is the writer's business for a while, see ``take_over``.
        if all(fault.fragment.is_open for fault in faults):
            return RepairResult.UNCLOSED
        return RepairResult.FAULTY

    async def take_over(self, ledger_id: int, options: RepairOptions = USUAL_OPTIONS) -> None:
        """Close the ledger, fencing its writer, if its open last fragment still misses bookies.

        Only where other bookies could replace them: a living writer would have done that, so this
        one is gone. Where there are none, a living writer goes on without, and must not be stopped
        for nothing. Raises ``LedgerError`` where the ledger cannot be closed now.
        """
        try:
            stored = await self.store.read(ledger_id)
            for fault in await self.check_stored(stored, options):
                if not fault.fragment.is_open:
                    continue
                facts = {"ledger": ledger_id, "missing": sorted(fault.bookies)}
                # A dry run: ``unplaced`` are the bookies that no other could replace.
                if (await self._plan(stored, fault, options)).unplaced:
                    log.warning("unclosed ledger misses bookies, left to its writer", extra=facts)
                else:
                    log.warning("unclosed ledger misses bookies, taken over", extra=facts)
                    await self._take_overs.close_ledger(stored)
        except NoSuchLedger:
            return

    async def _mend(
        self,
        ledger_id: int,
        fault: FaultyFragment,
        options: RepairOptions,
        is_claimed: IsClaimed | None,
    ) -> None:
        """Copy what a fragment lacks, then name the bookies that have it in the metadata."""
        # Read again: copying the fragment before has changed the metadata.
        stored = await self.store.read(ledger_id)
        plan = await self._plan(stored, fault, options)
        first_entry = fault.fragment.first_entry

        def changed(metadata: LedgerMetadata) -> LedgerMetadata | None:
            return with_replacements(ledger_id, metadata, first_entry, plan.replacements)

        if plan.replacements:
            changed(stored.metadata)  # raises where the fragment was changed since the check
            # The copies are stored before the metadata names their bookie. A crash in between
            # leaves copies on a bookie that no reader is sent to, and the next repair makes them
            # again.
            await self._copier.copy(stored, fault, plan.replacements)
            # Copying takes long: another worker may have the ledger by now, or a garbage collector
            # may delete it.
            if is_claimed is not None and not await is_claimed():
                raise ClaimLost(ledger_id)
            # By compare-and-set: ``changed`` is asked again for newer metadata, and refuses where
            # the fragment is not the one that was copied.
            await self.store.update(stored, changed)
            log.info(
                "fragment repaired",
                extra={
                    "ledger": ledger_id,
                    "first_entry": first_entry,
                    "replacements": {each.old: each.new for each in plan.replacements},
                },
            )
        # Some bookies may have been replaced all the same.
        if plan.unplaced:
            raise NowhereToCopy(ledger_id, first_entry, plan.unplaced)

    async def _plan(
        self, stored: StoredMetadata, fault: FaultyFragment, options: RepairOptions
    ) -> RepairPlan:
        quorum = quorum_of(stored.ledger_id, stored.metadata)
        # At the latest moment: copying the fragment before may have taken minutes.
        live = await self.live_bookies(options)

        def choose(ensemble: tuple[str, ...], places: frozenset[int]) -> dict[int, str]:
            found = self._bookies.replacements(ensemble, places, quorum)
            # The registry may be a moment behind, and does not know ``options.lost``.
            return {place: each for place, each in found.items() if each in live.writable}

        return plan_repair(
            fault,
            writable=live.writable,
            choose=choose,
            is_replacing_preferred=options.is_replacing_preferred,
        )
