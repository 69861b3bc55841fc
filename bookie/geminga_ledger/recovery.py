"""Closes a ledger whose writer is gone: fences it, finds its end, and writes the end down.

The steps of one attempt:

1. Mark the metadata as in recovery: from then on the writer cannot change the ensemble.
2. Fence the bookies of the last ensemble, and ask each for its newest entry. From then on the
   writer gets no entry confirmed.
3. Read the entries after the last one that is known to be confirmed, one batch after the other, and
   store each again, so that it is on a full quorum; up to the first entry that was never confirmed.
4. Close the metadata at the last entry found, by compare-and-set.

Steps and rules are BookKeeper's (``LedgerRecoveryOp``, ``ReadOnlyLedgerHandle.recover``); the
decisions are in ``recovery_rules`` and ``quorum``. Two processes that recover a ledger at once
either find the same entries, or the first to close wins: a reader is given nothing before the
metadata is closed.

A bookie that fails during step 3 is replaced. The new fragments are written together with the end
in step 4, so that two recoveries do not interfere with each other before.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLink, Purpose
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.errors import LedgerError, RecoveryUndecided, TooMuchPending
from geminga_ledger.membership.bookies import Bookies
from geminga_ledger.metadata.store import LedgerStore, StoredMetadata
from geminga_ledger.reading.last_entry_poll import LastEntryPoll
from geminga_ledger.reading.range_read import Found, RangeRead
from geminga_ledger.replication.ensembles import ended_at, with_fragment
from geminga_ledger.replication.quorum import Quorum, Verdict
from geminga_ledger.replication.recovery_rules import recovery_start
from geminga_ledger.retry import RetryPolicy
from geminga_ledger.writing.ensemble_change import EnsembleChange
from geminga_ledger.writing.listener import NO_LISTENER
from geminga_ledger.writing.pipeline import AddPipeline
from geminga_protocol.bookkeeper.codes import Flag
from geminga_protocol.bookkeeper.digest import master_key
from geminga_protocol.records.ledgers.ledger_metadata import NO_ENTRY, LedgerMetadata, LedgerState
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# Fencing with each read, too: a bookie that came back since step 2 is not fenced yet.
RECOVERY_READ = Flag.FENCING | Flag.HIGH_PRIORITY
# A fenced bookie stores only what has this flag.
RECOVERY_ADD = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY

End = tuple[int, int]
"""``(last entry, payload bytes up to it)``; (-1, 0) for an empty ledger."""


@dataclass(eq=False, slots=True, kw_only=True)
class LedgerRecovery:
    """Recovers one ledger, over connections that nothing else uses."""

    ledger_id: int
    store: LedgerStore
    bookies: Bookies
    counters: LedgerCounters
    clock: Clock
    retry: RetryPolicy
    config: LedgerConfig

    async def run(self) -> StoredMetadata:
        """The metadata of the ledger, closed: by us, or by another process that was faster.

        Raises ``RecoveryUndecided``, ``AppendTimedOut`` and the like when the deadline for
        recoveries has passed, ``NoSuchLedger``, ``WrongPassword``.
        """
        return await self.retry.run(
            self._attempt, on=LedgerError, deadline_s=self.config.recovery_deadline_s
        )

    # An attempt begins with the newest metadata and leaves nothing in this object. What a failed
    # one has done stays, and does no harm: the mark, the fences, and entries that are stored again.
    async def _attempt(self) -> StoredMetadata:
        def in_recovery(metadata: LedgerMetadata) -> LedgerMetadata | None:
            # Another recovery may have marked it already, or closed it.
            return metadata.in_recovery() if metadata.state is LedgerState.OPEN else None

        # Step 1.
        stored = await self.store.update(await self.store.read(self.ledger_id), in_recovery)
        if stored.metadata.state is LedgerState.CLOSED:
            return stored
        tail = _Tail(before=stored.metadata, after=stored.metadata)
        # Steps 2 and 3.
        last_entry, length = await self._recover_tail(tail)

        def closed(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if metadata.state is LedgerState.CLOSED:
                return None
            # Auto-recovery may have changed a fragment meanwhile: what was read and stored by the
            # old one does not count.
            if metadata.fragments != tail.before.fragments:
                raise RecoveryUndecided(self.ledger_id, "its ensembles were changed meanwhile")
            return ended_at(replace(metadata, fragments=tail.after.fragments), last_entry).closed(
                last_entry, length
            )

        # Step 4.
        stored = await self.store.update(stored, closed)
        log.info(
            "ledger recovered",
            extra={"ledger": self.ledger_id, "last_entry": stored.metadata.last_entry},
        )
        return stored

    async def _recover_tail(self, tail: _Tail) -> End:
        """Fence the last ensemble, and store again on it all that may have been confirmed."""
        metadata = tail.before
        key = master_key(self.config.password)
        quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        fragment = metadata.fragments[-1]
        links = [self._link(bookie_id) for bookie_id in fragment.ensemble]
        # Step 2: with the key, the poll fences.
        votes = await LastEntryPoll(
            self.ledger_id,
            quorum,
            links,
            answer_timeout_s=self.config.answer_timeout_s,
            master_key=key,
        ).run()
        start = recovery_start(votes.last_confirmed, fragment.first_entry)
        # Step 3. The pipeline numbers its entries from ``start + 1`` on, so each gets the id that
        # it had.
        change = EnsembleChange(
            self.bookies,
            Purpose.RECOVERY,
            tail.change_ensemble,
            counters=self.counters,
            config=self.config,
        )
        pipeline = tail.pipeline = AddPipeline(
            self.ledger_id,
            quorum,
            links,
            master_key=key,
            listener=NO_LISTENER,
            change=change,
            clock=self.clock,
            config=self.config,
            flags=RECOVERY_ADD,
            last_confirmed=start,
        )
        try:
            has_ended = False
            while not has_ended:
                # Always from where the writer put it (``before``): a bookie that replaced another
                # during this recovery has only what the recovery stored.
                batch = await self._read(
                    metadata, pipeline.last_pushed + 1, self.config.recovery_batch_entries
                )
                has_ended = await self._append_found(batch, pipeline)
                # Batch by batch: what is stored is confirmed before more is read.
                await pipeline.drained()
                if pipeline.failure is not None:
                    raise pipeline.failure
        finally:
            pipeline.detach()
        # Stored and confirmed up to there; else nothing followed ``start``.
        if pipeline.last_confirmed > start:
            return pipeline.last_confirmed, pipeline.length_bytes
        # The pipeline appended nothing, and does not know the length.
        return start, await self._length_at(metadata, start, votes.length_bytes)

    async def _append_found(self, batch: list[Found | Verdict], pipeline: AddPipeline) -> bool:
        """Append a batch up to the ledger's end; returns whether the end is in it.

        An entry keeps its id, payload and length; only the last-add-confirmed that it carries is
        newer.
        """
        for result in batch:
            # What later entries of the batch brought does not matter: confirmed are only those in
            # order.
            if result is Verdict.ABSENT:
                return True
            if isinstance(result, Verdict):
                entry_id = pipeline.last_pushed + 1
                raise RecoveryUndecided(
                    self.ledger_id, f"bookies that did not answer may have entry {entry_id}"
                )
            length, payload = result
            # ``append`` adds the payload: the entry is encoded with the length that it had.
            pipeline.length_bytes = length - len(payload)
            try:
                pipeline.append(payload)
            except TooMuchPending:
                await pipeline.drained()
                pipeline.append(payload)  # raises why, where the pipeline failed meanwhile
        return False

    async def _length_at(self, metadata: LedgerMetadata, entry_id: int, hint_bytes: int) -> int:
        """The ledger's length up to an entry that needs no recovery."""
        if entry_id == NO_ENTRY:
            return 0
        (result,) = await self._read(metadata, entry_id, 1)
        if result is Verdict.UNDECIDED:
            raise RecoveryUndecided(self.ledger_id, f"entry {entry_id} cannot be read")
        if isinstance(result, Verdict):
            # A confirmed entry is lost. The ledger can be closed all the same; upstream takes this
            # number always, though it may count an entry too many.
            log.error("entry lost", extra={"ledger": self.ledger_id, "entry": entry_id})
            return hint_bytes
        return result[0]

    async def _read(
        self, metadata: LedgerMetadata, first: int, count: int
    ) -> list[Found | Verdict]:
        return await RangeRead(
            self.ledger_id,
            metadata,
            self._link,
            entry_ids=range(first, first + count),
            # Where so many of the Qw bookies lack an entry, fewer than Qa can have stored it.
            absences_proving=metadata.write_quorum - metadata.ack_quorum + 1,
            answer_timeout_s=self.config.answer_timeout_s,
            speculative_s=self.config.speculative_read_s,
            flags=RECOVERY_READ,
            master_key=master_key(self.config.password),
            counters=self.counters,
        ).run()

    def _link(self, bookie_id: str) -> BookieLink:
        # Never a connection of ordinary readers and writers: see ``Purpose``.
        return self.bookies.links.link(bookie_id, Purpose.RECOVERY)


@dataclass(eq=False, slots=True)
class _Tail:
    """The metadata that one attempt found, ``before``, and the fragments it leaves, ``after``."""

    before: LedgerMetadata
    after: LedgerMetadata
    # Set once it exists; it calls ``change_ensemble`` later.
    pipeline: AddPipeline | None = None

    async def change_ensemble(self, ensemble: tuple[str, ...]) -> None:
        """What comes after what is confirmed goes to ``ensemble`` (``Commit``)."""
        assert self.pipeline is not None
        # Nothing is written before the end is known: another recovery sees the fragments of before.
        self.after = with_fragment(self.after, self.pipeline.last_confirmed + 1, ensemble)
