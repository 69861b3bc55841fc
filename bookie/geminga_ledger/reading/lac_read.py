"""Asks the bookies of a ledger's last ensemble how far it is confirmed (last-add-confirmed, LAC).

A bookie knows it from its newest entry, and from the writer's explicit LAC (``explicit_lac``); both
come with their digests. The V2 request for the newest entry (``last_entry_poll``) misses the
second. Facts: ``PendingReadLacOp`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.entries.digests import Decode
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import LastEntryVotes, is_absence
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.digest import ANY_ENTRY
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch, refusal_of
from geminga_protocol.bookkeeper.v3_requests import read_lac_request, return_code_of
from geminga_protocol.records.ledgers.ledger_metadata import NO_ENTRY

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class LacRead:
    """One read from one ensemble."""

    ledger_id: int
    quorum: Quorum
    # The links to the ensemble's bookies, by slot.
    links: Sequence[V3Link]
    answer_timeout_s: float = field(kw_only=True)
    # Checks an entry, and takes its LAC out.
    decode_entry: Decode = field(kw_only=True)
    # Checks the body of an explicit LAC, and takes the LAC out, given the ledger's id.
    decode_lac: Callable[[bytes, int], int] = field(kw_only=True)
    votes: LastEntryVotes = field(init=False)

    async def run(self) -> int:
        """The highest LAC that any bookie knows, once enough have answered; -1 for none.

        Raises ``BookieUnavailable`` where too few answer.
        """
        self.votes = LastEntryVotes(self.quorum)
        # A task for each bookie, so that a hung one delays nothing where the others are enough.
        asking = {
            asyncio.get_running_loop().create_task(self._ask(slot), name=f"ask {link.bookie_id}")
            for slot, link in enumerate(self.links)
        }
        left = asking
        try:
            # Until no entry can be confirmed by the other bookies alone.
            while left and not self.votes.is_decided:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Those that are not needed any more, or all where this is cancelled.
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not self.votes.is_decided:
            silent = (
                link.bookie_id
                for slot, link in enumerate(self.links)
                if slot not in self.votes.heard
            )
            raise BookieUnavailable(
                ", ".join(silent), f"no answer how far ledger {self.ledger_id} is confirmed"
            )
        return self.votes.last_confirmed

    async def _ask(self, slot: int) -> None:
        link = self.links[slot]
        request = read_lac_request(self.ledger_id)
        try:
            response = await link.ask(request, timeout_s=self.answer_timeout_s)
        except BookieUnavailable as error:
            log.info("bookie not asked", extra={"ledger": self.ledger_id, "error": str(error)})
            return
        code = return_code_of(response.status)
        # A bookie without an entry of the ledger has stored nothing: its answer counts.
        if is_absence(code):
            self.votes.heard.add(slot)
            return
        if code != ReturnCode.EOK:
            # A refusal, other than an absence, is the bookie's own fault. It counts as no answer.
            link.note_failure()
            refusal = refusal_of(code, self.ledger_id, ANY_ENTRY)
            log.warning(
                "bookie refused to tell what is confirmed",
                extra={"bookie": link.bookie_id, "error": str(refusal)},
            )
            return
        told = response.readLacResponse
        entry = told.lastEntryBody
        # An answer with neither an entry nor an explicit LAC counts as well.
        last_confirmed = length_bytes = NO_ENTRY
        try:
            if entry:
                _, last_confirmed, length_bytes, _ = self.decode_entry(
                    entry, 0, len(entry), self.ledger_id, ANY_ENTRY
                )
            # Each carries a digest of its own; the higher of the two counts.
            if told.lacBody:
                last_confirmed = max(last_confirmed, self.decode_lac(told.lacBody, self.ledger_id))
        except EntryDigestMismatch as error:
            # Counts as no answer: the bookie may know more than its damaged entry says.
            link.note_doubt()
            log.warning("damaged last entry", extra={"bookie": link.bookie_id, "error": str(error)})
        else:
            self.votes.found(slot, last_confirmed, length_bytes)
