"""The one writer of a ledger: appends entries, and closes the ledger where its confirmed ones end.

Made by ``Ledgers.create``. How entries get to the bookies is the business of ``pipeline``, which
bookie replaces one that fails that of ``ensemble_change``. This module says what the metadata
becomes, at a change of the ensemble and at the end. Both are compare-and-set: a ledger that another
process recovers, or has closed, is not changed any more, and its writer counts as fenced when it
finds it so.

There is no ``force``: in BookKeeper it makes durable what was added with the deferred-sync flag,
which V2 adds cannot carry. What is confirmed here is durable on Qa bookies already.
"""

from __future__ import annotations

import asyncio
import logging

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import Purpose
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.errors import LedgerClosed, LedgerClosedByOther, LedgerFenced
from geminga_ledger.membership.bookies import Bookies
from geminga_ledger.metadata.store import LedgerStore, StoredMetadata
from geminga_ledger.replication.ensembles import with_fragment
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.writing.ensemble_change import EnsembleChange
from geminga_ledger.writing.listener import LedgerListener
from geminga_ledger.writing.pipeline import AddPipeline
from geminga_protocol.bookkeeper.digest import master_key
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)


class LedgerWriter(AddPipeline):
    """Entries 0, 1, … of a new ledger. Every method belongs to the event loop's thread.

    ``last_pushed`` and ``last_confirmed`` are entry ids (-1: none), ``length_bytes`` the payload
    bytes appended, ``pending_bytes`` those of them not confirmed yet. ``failure`` says why
    ``writer_failed`` was called.
    """

    __slots__ = ("_closing", "_is_closed", "_metadata", "_store")

    def __init__(
        self,
        metadata: StoredMetadata,
        *,
        bookies: Bookies,
        store: LedgerStore,
        listener: LedgerListener,
        counters: LedgerCounters,
        clock: Clock,
        config: LedgerConfig,
    ) -> None:
        record = metadata.metadata
        # The writer begins with the last fragment, which of a new ledger is the only one.
        super().__init__(
            metadata.ledger_id,
            Quorum(record.ensemble_size, record.write_quorum, record.ack_quorum),
            [bookies.links.link(bookie_id) for bookie_id in record.fragments[-1].ensemble],
            master_key=master_key(config.password),
            listener=listener,
            change=EnsembleChange(
                bookies,
                Purpose.ORDINARY,
                self._change_ensemble,
                counters=counters,
                config=config,
            ),
            clock=clock,
            config=config,
        )
        # As this writer wrote it last. Another process may have written it since.
        self._metadata = metadata
        self._store = store
        # Two calls of ``close`` at once would both write the end.
        self._closing = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Take no more entries, wait for those on their way, and close the ledger's metadata.

        A writer that failed closes its ledger where it was confirmed: writing can go on in another
        ledger without anything twice. Closing again does nothing.

        Raises ``LedgerFenced`` when another process has taken the ledger over; then, and on
        ``CoordinationError``, it is not closed and ``close`` may be called again.
        """
        # Before the first ``await``: nothing is appended any more, so that ``drained`` comes to an
        # end.
        if self._refusal is None:
            self._refusal = LedgerClosed(self.ledger_id)
        async with self._closing:
            if self._is_closed:
                return
            # All confirmed, or failed: then the end is where it was confirmed.
            await self.drained()
            # The end is the new owner's to find: it may keep entries which this writer saw
            # unconfirmed.
            if isinstance(self.failure, LedgerFenced):
                raise LedgerFenced(self.ledger_id) from self.failure
            # From here on the ensemble does not change: a change would add a fragment after the
            # end.
            self.detach()
            # Where ZooKeeper stays away, the ledger is left open and ``_is_closed`` unset: the
            # caller closes again, or the next owner of the ledger recovers it.
            self._metadata = await self._store.update(self._metadata, self._with_end)
            self._is_closed = True
        log.info(
            "ledger closed",
            extra={
                "ledger": self.ledger_id,
                "last_entry": self.last_confirmed,
                "bytes": self.length_bytes,
            },
        )

    def _with_end(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        """The metadata closed at our end; None where it is that already.

        A recovery that is under way finds the ledger closed when it wants to close it, and stops.
        """
        if metadata.state is not LedgerState.CLOSED:
            return metadata.closed(self.last_confirmed, self.length_bytes)
        # Our own write whose answer was lost, or a recovery that came to the same end.
        if metadata.last_entry == self.last_confirmed and metadata.length == self.length_bytes:
            return None
        raise self._closed_by_other(metadata)

    async def _change_ensemble(self, ensemble: tuple[str, ...]) -> None:
        """Write down the bookies of what is not confirmed (``Commit``)."""

        def changed(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if metadata.state is LedgerState.CLOSED:
                raise self._closed_by_other(metadata)
            # The recovery looks for the end in the fragments that it found. It would not see what a
            # new one holds.
            if metadata.state is LedgerState.IN_RECOVERY:
                raise LedgerFenced(self.ledger_id)
            newest = metadata.fragments[-1].ensemble
            if newest == ensemble:
                return None  # written by an attempt whose answer was lost
            if newest != self.ensemble:
                # Only the writer begins fragments: another process takes itself for the writer.
                raise LedgerFenced(self.ledger_id)
            # ``last_confirmed`` cannot have moved since ``retire``, unless the pause was over: then
            # the entries since are on bookies of both ensembles.
            return with_fragment(metadata, self.last_confirmed + 1, ensemble)

        self._metadata = await self._store.update(self._metadata, changed)

    def _closed_by_other(self, metadata: LedgerMetadata) -> LedgerClosedByOther:
        return LedgerClosedByOther(
            self.ledger_id,
            last_entry=metadata.last_entry,
            our_last_entry=self.last_confirmed,
        )
