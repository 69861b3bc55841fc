"""Takes a ledger over whose writer is gone: fences it, finds its end, closes it there.

The steps and rules are BookKeeper's (``LedgerRecoveryOp``, ``ReadOnlyLedgerHandle.recover``); the
decisions stand in ``recovery_rules`` and ``quorum``. Two who recover at once come to the same
entries or the first to close wins: nobody is told anything before the metadata is closed.

A bookie that fails while the tail is stored again is replaced; the new fragments are written
together with the end, so that two recoveries do not get into each other's way before.
"""

from __future__ import annotations

import logging
from dataclasses import replace

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
from geminga_protocol.records.ledger_metadata import (
    NO_ENTRY,
    LedgerMetadata,
    LedgerState,
)
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

RECOVERY_READ = Flag.FENCING | Flag.HIGH_PRIORITY
RECOVERY_ADD = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY

End = tuple[int, int]
"""``(last entry, payload bytes up to it)``; (-1, 0) for an empty ledger."""


class LedgerRecovery:
    """Recovers one ledger, over connections that nothing else uses."""

    def __init__(
        self,
        ledger_id: int,
        *,
        store: LedgerStore,
        bookies: Bookies,
        counters: LedgerCounters,
        clock: Clock,
        retry: RetryPolicy,
        config: LedgerConfig,
    ) -> None:
        self._ledger_id = ledger_id
        self._store = store
        self._bookies = bookies
        self._counters = counters
        self._clock = clock
        self._retry = retry
        self._config = config
        self._master_key = master_key(config.password)

    async def run(self) -> StoredMetadata:
        """The metadata of the ledger, closed: by us, or by somebody who was faster.

        Raises ``RecoveryUndecided``, ``AppendTimedOut`` and the like when the deadline for
        recoveries has passed, ``NoSuchLedger``, ``WrongPassword``.
        """
        return await self._retry.run(
            self._attempt, on=LedgerError, deadline_s=self._config.recovery_deadline_s
        )

    async def _attempt(self) -> StoredMetadata:
        stored = await self._store.update(await self._store.read(self._ledger_id), _marked)
        if stored.metadata.state is LedgerState.CLOSED:
            return stored
        tail = _Tail(stored.metadata)
        last_entry, length = await self._recover_tail(tail)

        def closed(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if metadata.state is LedgerState.CLOSED:
                return None
            if metadata.fragments != tail.before.fragments:
                raise RecoveryUndecided(self._ledger_id, "its ensembles were changed meanwhile")
            return ended_at(replace(metadata, fragments=tail.after.fragments), last_entry).closed(
                last_entry, length
            )

        stored = await self._store.update(stored, closed)
        log.info(
            "ledger recovered",
            extra={"ledger": self._ledger_id, "last_entry": stored.metadata.last_entry},
        )
        return stored

    async def _recover_tail(self, tail: _Tail) -> End:
        """Fence the last ensemble, and store again on it all that may have been confirmed."""
        metadata = tail.before
        quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        fragment = metadata.fragments[-1]
        links = [self._link(bookie_id) for bookie_id in fragment.ensemble]
        votes = await LastEntryPoll(
            self._ledger_id,
            quorum,
            links,
            answer_timeout_s=self._config.answer_timeout_s,
            master_key=self._master_key,
        ).run()
        start = recovery_start(votes.last_confirmed, fragment.first_entry)
        change = EnsembleChange(
            self._bookies,
            Purpose.RECOVERY,
            tail.change_ensemble,
            counters=self._counters,
            config=self._config,
        )
        pipeline = tail.pipeline = AddPipeline(
            self._ledger_id,
            quorum,
            links,
            master_key=self._master_key,
            listener=NO_LISTENER,
            change=change,
            clock=self._clock,
            config=self._config,
            flags=RECOVERY_ADD,
            last_confirmed=start,
        )
        try:
            await self._copy_tail(metadata, pipeline)
        finally:
            pipeline.detach()
        if pipeline.last_confirmed > start:
            return pipeline.last_confirmed, pipeline.length_bytes
        return start, await self._length_at(metadata, start, votes.length_bytes)

    async def _copy_tail(self, metadata: LedgerMetadata, pipeline: AddPipeline) -> None:
        """Append every entry after the pipeline's to it, up to the first that was never confirmed.

        An entry keeps its id, payload and length; only what it says was confirmed is newer.
        """
        has_ended = False
        while not has_ended:
            batch = await self._read(
                metadata, pipeline.last_pushed + 1, self._config.recovery_batch_entries
            )
            has_ended = await self._append_found(batch, pipeline)
            await pipeline.drained()
            if pipeline.failure is not None:
                raise pipeline.failure

    async def _append_found(self, batch: list[Found | Verdict], pipeline: AddPipeline) -> bool:
        """Append a batch up to the ledger's end; tells whether the end is in it."""
        for result in batch:
            if result is Verdict.ABSENT:
                return True
            if isinstance(result, Verdict):
                entry_id = pipeline.last_pushed + 1
                raise RecoveryUndecided(
                    self._ledger_id, f"bookies that did not answer may have entry {entry_id}"
                )
            length, payload = result
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
            raise RecoveryUndecided(self._ledger_id, f"entry {entry_id} cannot be read")
        if isinstance(result, Verdict):
            # A confirmed entry is lost. The ledger can be closed all the same; upstream takes this
            # number always, though it may count an entry too many.
            log.error("entry lost", extra={"ledger": self._ledger_id, "entry": entry_id})
            return hint_bytes
        return result[0]

    async def _read(
        self, metadata: LedgerMetadata, first: int, count: int
    ) -> list[Found | Verdict]:
        return await RangeRead(
            self._ledger_id,
            metadata,
            self._link,
            entry_ids=range(first, first + count),
            absences_proving=metadata.write_quorum - metadata.ack_quorum + 1,
            answer_timeout_s=self._config.answer_timeout_s,
            speculative_s=self._config.speculative_read_s,
            flags=RECOVERY_READ,
            master_key=self._master_key,
            counters=self._counters,
        ).run()

    def _link(self, bookie_id: str) -> BookieLink:
        return self._bookies.links.link(bookie_id, Purpose.RECOVERY)


class _Tail:
    """What one attempt found, ``before``, and the fragments it leaves, ``after``."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.before = metadata
        self.after = metadata
        self.pipeline: AddPipeline | None = None

    async def change_ensemble(self, ensemble: tuple[str, ...]) -> None:
        """What comes after what is confirmed goes to ``ensemble`` (``Commit``)."""
        assert self.pipeline is not None
        self.after = with_fragment(self.after, self.pipeline.last_confirmed + 1, ensemble)


def _marked(metadata: LedgerMetadata) -> LedgerMetadata | None:
    """An open ledger's metadata as recovery leaves it first: its writer adds no fragments then."""
    return metadata.in_recovery() if metadata.state is LedgerState.OPEN else None
