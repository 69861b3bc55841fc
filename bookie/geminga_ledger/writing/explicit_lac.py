"""Tells the bookies up to where a ledger is confirmed while nothing is added to it.

Every entry says what was confirmed when it was sent, so that a reader hears of the last one only
with the next. Where that may take long, its writer can say it without an entry: when nothing was
added for an interval. Off unless the config sets one. Facts: ``ExplicitLacFlushPolicy`` and
``PendingWriteLacOp`` of Apache BookKeeper, which go by a fixed interval too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.writing.pipeline import AddPipeline
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.v3_requests import return_code_of, write_lac_request
from geminga_protocol.records.ledger_metadata import NO_ENTRY

log = logging.getLogger(__name__)


class ExplicitLac:
    """Looks at a writer from time to time, and costs it nothing. ``run`` is a task of its own."""

    def __init__(
        self,
        writer: AddPipeline,
        link: Callable[[str], V3Link],
        *,
        master_key: bytes,
        interval_s: float,
        answer_timeout_s: float,
    ) -> None:
        self._writer = writer
        self._link = link
        self._master_key = master_key
        self._interval_s = interval_s
        self._answer_timeout_s = answer_timeout_s

    async def run(self) -> None:
        """Until the writer is closed or has failed."""
        writer = self._writer
        pushed = told = NO_ENTRY
        while True:
            await asyncio.sleep(self._interval_s)
            if writer.is_over:
                return
            is_pausing, pushed = writer.last_pushed == pushed, writer.last_pushed
            last_confirmed = writer.last_confirmed
            if is_pausing and last_confirmed > told and await self._tell(last_confirmed):
                told = last_confirmed

    async def _tell(self, last_confirmed: int) -> bool:
        """Whether as many bookies keep it as keep an entry that is confirmed."""
        writer = self._writer
        ensemble = writer.ensemble
        results = await asyncio.gather(
            *(
                self._tell_one(self._link(ensemble[slot]), last_confirmed)
                for slot in writer.quorum.write_set(last_confirmed)
            )
        )
        return sum(results) >= writer.quorum.ack_quorum

    async def _tell_one(self, link: V3Link, last_confirmed: int) -> bool:
        ledger_id = self._writer.ledger_id
        request = write_lac_request(ledger_id, last_confirmed, self._master_key)
        try:
            response = await link.ask(request, timeout_s=self._answer_timeout_s)
        except BookieUnavailable as error:
            log.info("bookie not told", extra={"ledger": ledger_id, "error": str(error)})
            return False
        code = return_code_of(response.status)
        if code != ReturnCode.EOK:
            log.info(
                "bookie will not keep what is confirmed",
                extra={"ledger": ledger_id, "bookie": link.bookie_id, "code": code.name},
            )
        return code == ReturnCode.EOK
