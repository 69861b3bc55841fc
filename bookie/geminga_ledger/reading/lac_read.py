"""Asks the bookies of a ledger's last ensemble how far it is confirmed (last-add-confirmed, LAC).

A bookie knows it from its newest entry, and from the writer's explicit LAC (``explicit_lac``); both
come with their digests. The V2 request for the newest entry (``last_entry_poll``) misses the
second. Facts: ``PendingReadLacOp`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.entries.digests import Decode
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import LastEntryVotes, is_absence
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.digest import ANY_ENTRY
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch, refusal_of
from geminga_protocol.bookkeeper.v3_requests import read_lac_request, return_code_of
from geminga_protocol.records.ledger_metadata import NO_ENTRY

log = logging.getLogger(__name__)


class LacRead:
    """One read from one ensemble; ``links`` are its bookies, by slot.

    ``decode_lac`` takes the LAC out of an explicit LAC's body, given the ledger's id.
    """

    def __init__(
        self,
        ledger_id: int,
        quorum: Quorum,
        links: Sequence[V3Link],
        *,
        answer_timeout_s: float,
        decode_entry: Decode,
        decode_lac: Callable[[bytes, int], int],
    ) -> None:
        self._ledger_id = ledger_id
        self._links = links
        self._answer_timeout_s = answer_timeout_s
        self._decode_entry = decode_entry
        self._decode_lac = decode_lac
        self._votes = LastEntryVotes(quorum)

    async def run(self) -> int:
        """The highest LAC that any bookie knows, once enough have answered; -1 for none.

        Raises ``BookieUnavailable`` where too few answer.
        """
        asking = {
            asyncio.get_running_loop().create_task(self._ask(slot), name=f"ask {link.bookie_id}")
            for slot, link in enumerate(self._links)
        }
        left = asking
        try:
            # Until no entry can be confirmed by the other bookies alone.
            while left and not self._votes.is_decided:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Those that are not needed any more, or all where this is cancelled.
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not self._votes.is_decided:
            silent = (
                link.bookie_id
                for slot, link in enumerate(self._links)
                if slot not in self._votes.heard
            )
            raise BookieUnavailable(
                ", ".join(silent), f"no answer how far ledger {self._ledger_id} is confirmed"
            )
        return self._votes.last_confirmed

    async def _ask(self, slot: int) -> None:
        link = self._links[slot]
        request = read_lac_request(self._ledger_id)
        try:
            response = await link.ask(request, timeout_s=self._answer_timeout_s)
        except BookieUnavailable as error:
            log.info("bookie not asked", extra={"ledger": self._ledger_id, "error": str(error)})
            return
        code = return_code_of(response.status)
        if is_absence(code):
            self._votes.empty(slot)
            return
        if code != ReturnCode.EOK:
            link.note_failure()
            refusal = refusal_of(code, self._ledger_id, ANY_ENTRY)
            log.warning(
                "bookie refused to tell what is confirmed",
                extra={"bookie": link.bookie_id, "error": str(refusal)},
            )
            return
        told = response.readLacResponse
        entry = told.lastEntryBody
        last_confirmed = length_bytes = NO_ENTRY
        try:
            if entry:
                _, last_confirmed, length_bytes, _ = self._decode_entry(
                    entry, 0, len(entry), self._ledger_id, ANY_ENTRY
                )
            if told.lacBody:
                last_confirmed = max(
                    last_confirmed, self._decode_lac(told.lacBody, self._ledger_id)
                )
        except EntryDigestMismatch as error:
            # Counts as no answer: the bookie may know more than its damaged entry says.
            link.note_doubt()
            log.warning("damaged last entry", extra={"bookie": link.bookie_id, "error": str(error)})
        else:
            self._votes.found(slot, last_confirmed, length_bytes)
