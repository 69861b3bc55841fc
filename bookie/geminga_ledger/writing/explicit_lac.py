"""Tells bookies how far a ledger is confirmed while nothing is added to it: the explicit LAC.

Every entry carries what was confirmed when it was sent (the last-add-confirmed, LAC), so a reader
learns that the last entry is confirmed only from the next one. Where that may take long, the writer
can send the LAC without an entry, once nothing was added for an interval. Off unless the config
sets one. Facts: ``ExplicitLacFlushPolicy`` and ``PendingWriteLacOp`` of Apache BookKeeper, which
use a fixed interval too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.writing.pipeline import AddPipeline
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.v3_requests import return_code_of, write_lac_request
from geminga_protocol.records.ledgers.ledger_metadata import NO_ENTRY

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class ExplicitLac:
    """Polls a writer, which does not know of it and pays nothing. ``run`` is a task of its own."""

    writer: AddPipeline
    # The V3 link to a bookie: V2 has no such request.
    link: Callable[[str], V3Link]
    master_key: bytes
    interval_s: float
    answer_timeout_s: float

    async def run(self) -> None:
        """Until the writer is closed or has failed."""
        writer = self.writer
        # The last entry of the poll before, and the LAC that enough bookies know.
        pushed = told = NO_ENTRY
        while True:
            await asyncio.sleep(self.interval_s)
            if writer.is_over:
                return
            # Entries that are being added carry the LAC themselves.
            is_pausing, pushed = writer.last_pushed == pushed, writer.last_pushed
            last_confirmed = writer.last_confirmed
            # Also of an empty ledger: -1 is not more than -1.
            if not is_pausing or last_confirmed <= told:
                continue
            ensemble = writer.ensemble
            # In the newest ensemble, though another one may have stored the entry: readers ask the
            # bookies of the last fragment (``LedgerView``), and first those of the entry's write
            # set (``Quorum.telling``).
            results = await asyncio.gather(
                *(
                    self._tell(self.link(ensemble[slot]), last_confirmed)
                    for slot in writer.quorum.write_set(last_confirmed)
                )
            )
            # As many bookies must keep it as keep a confirmed entry: then a reader that asks all
            # but Qa - 1 of them learns it. Else the next poll sends it again, to all of them.
            if sum(results) >= writer.quorum.ack_quorum:
                told = last_confirmed

    async def _tell(self, link: V3Link, last_confirmed: int) -> bool:
        """Whether the bookie keeps it."""
        ledger_id = self.writer.ledger_id
        # The bookie checks the master key, as with an add.
        request = write_lac_request(ledger_id, last_confirmed, self.master_key)
        try:
            response = await link.ask(request, timeout_s=self.answer_timeout_s)
        except BookieUnavailable as error:
            log.info("explicit lac not sent", extra={"ledger": ledger_id, "error": str(error)})
            return False
        code = return_code_of(response.status)
        if code != ReturnCode.EOK:
            log.info(
                "explicit lac refused",
                extra={"ledger": ledger_id, "bookie": link.bookie_id, "code": code.name},
            )
        return code == ReturnCode.EOK
