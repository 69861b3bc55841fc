"""The one writer of a ledger: appends entries, and closes the ledger where its confirmed ones end.

How entries get to the bookies is ``pipeline``'s business; this module adds the end. Made by
``Ledgers.create``. Replacing a dead bookie in the ensemble (a new fragment of the metadata) will be
the writer's too (issue 4): until then a dead bookie is waited for, up to the append deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from magnetar_ledger.errors import LedgerClosed, LedgerClosedByOther, LedgerFenced
from magnetar_ledger.links import BookieLink
from magnetar_ledger.options import LedgerOptions
from magnetar_ledger.pipeline import AddPipeline, LedgerListener
from magnetar_ledger.quorum import Quorum
from magnetar_ledger.store import LedgerStore, StoredMetadata
from magnetar_protocol.bookkeeper.digest import master_key
from magnetar_protocol.records.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_runtime.clock import Clock

log = logging.getLogger(__name__)


class LedgerWriter(AddPipeline):
    """Entries 0, 1, … of a new ledger. Every method belongs to the event loop's thread.

    ``last_pushed`` and ``last_confirmed`` are entry ids (-1: none), ``length_bytes`` the payload
    bytes appended, ``pending_bytes`` those of them not confirmed yet. ``failure`` says why
    ``writer_failed`` was called.
    """

    def __init__(
        self,
        metadata: StoredMetadata,
        links: Sequence[BookieLink],
        *,
        store: LedgerStore,
        listener: LedgerListener,
        clock: Clock,
        options: LedgerOptions,
    ) -> None:
        record = metadata.metadata
        super().__init__(
            metadata.ledger_id,
            Quorum(record.ensemble_size, record.write_quorum, record.ack_quorum),
            links,
            master_key=master_key(options.password),
            listener=listener,
            clock=clock,
            options=options,
        )
        self._metadata = metadata
        self._store = store
        self._closing = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Take no more entries, wait for those on their way, and close the ledger's metadata.

        A writer that failed closes its ledger where it was confirmed: writing can go on in another
        ledger without anything twice. Closing again does nothing.

        Raises ``LedgerFenced`` when the ledger belongs to somebody else by now; then, and on
        ``CoordinationError``, it is not closed and ``close`` may be called again.
        """
        if self._refusal is None:
            self._refusal = LedgerClosed(self.ledger_id)
        async with self._closing:
            if self._is_closed:
                return
            await self.drained()
            if isinstance(self.failure, LedgerFenced):
                raise LedgerFenced(self.ledger_id) from self.failure
            self.detach()
            self._metadata = await self._store.update(self._metadata, self._closed)
            self._is_closed = True
        log.info(
            "ledger closed",
            extra={
                "ledger": self.ledger_id,
                "last_entry": self.last_confirmed,
                "bytes": self.length_bytes,
            },
        )

    def _closed(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        """The metadata with our end in it. A recovery that goes on meanwhile finds it and stops."""
        if metadata.state is not LedgerState.CLOSED:
            return metadata.closed(self.last_confirmed, self.length_bytes)
        if metadata.last_entry == self.last_confirmed and metadata.length == self.length_bytes:
            return None
        raise LedgerClosedByOther(
            self.ledger_id,
            last_entry=metadata.last_entry,
            our_last_entry=self.last_confirmed,
        )
