"""One attempt to get a range of entries from the bookies that should have them.

All requests go out at once; an entry that one bookie does not give is asked of the next of its
write set. Every copy is checked against its digest, a damaged one counts as no copy. What could not
be had is told for each entry; whether to try again, or what it means, is for the caller to say.
Asking a second bookie before the first has failed (speculative reads) belongs here too (issue 4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain

from magnetar_ledger.errors import BookieUnavailable
from magnetar_ledger.links import BookieLink
from magnetar_ledger.quorum import EntrySearch, Quorum, Verdict
from magnetar_ledger.recovery_rules import is_absence
from magnetar_protocol.bookkeeper.codes import ReturnCode
from magnetar_protocol.bookkeeper.digest import decode_entry
from magnetar_protocol.bookkeeper.errors import EntryDigestMismatch
from magnetar_protocol.records.ledger_metadata import LedgerMetadata

log = logging.getLogger(__name__)

Found = tuple[int, bytes]
"""``(length, payload)``: the sum of all payloads up to and with this entry, and its own."""


class RangeRead:
    """Reads entries ``first`` … ``last`` (both included) of one ledger, once."""

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        link: Callable[[str], BookieLink],
        *,
        first: int,
        last: int,
        absences_proving: int,
        answer_timeout_s: float,
        flags: int = 0,
        master_key: bytes | None = None,
    ) -> None:
        quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        write_sets = quorum.write_sets
        entry_ids = range(first, last + 1)
        self._ledger_id = ledger_id
        self._first = first
        self._answer_timeout_s = answer_timeout_s
        self._flags = flags
        self._master_key = master_key
        ensembles = [metadata.ensemble_of(entry_id) for entry_id in entry_ids]
        links = {ensemble: tuple(map(link, ensemble)) for ensemble in dict.fromkeys(ensembles)}
        self._links = list(dict.fromkeys(chain.from_iterable(links.values())))
        self._ensembles = [links[ensemble] for ensemble in ensembles]
        self._searches = [
            EntrySearch(write_sets[entry_id % quorum.ensemble_size], absences_proving)
            for entry_id in entry_ids
        ]
        # Whom each entry was asked of last; None when there is nobody left to answer.
        self._asked: list[int | None] = [None] * len(entry_ids)
        self._results: list[Found | Verdict | None] = [None] * len(entry_ids)
        self._open_count = len(entry_ids)
        self._finished = asyncio.Event()
        # Entries of which a damaged copy was seen, and those that some bookie could not tell about.
        self.damaged: set[int] = set()
        self.unheard: set[int] = set()

    async def run(self) -> list[Found | Verdict]:
        """What became of each entry, in order."""
        await self._connect()
        for index in range(len(self._results)):
            self._ask_next(index)
        while self._open_count:
            try:
                async with asyncio.timeout(self._answer_timeout_s):
                    await self._finished.wait()
            except TimeoutError:
                self._give_up_on_silent()
        return [result for result in self._results if result is not None]

    async def _connect(self) -> None:
        """Get connections to bookies that are not known to be down; one attempt each."""
        missing = [link for link in self._links if not link.is_connected and not link.is_down]
        if missing:
            await asyncio.gather(*(link.connected() for link in missing), return_exceptions=True)

    def _ask_next(self, index: int) -> None:
        """Ask bookies for the entry until one takes the request or none is left."""
        search = self._searches[index]
        while True:
            bookie = search.next_bookie()
            assert bookie is not None, "a search without a verdict has bookies left"
            try:
                self._ensembles[index][bookie].read(
                    self._ledger_id,
                    self._first + index,
                    self,
                    bookie,
                    flags=self._flags,
                    master_key=self._master_key,
                )
            except BookieUnavailable:
                self.unheard.add(self._first + index)
                verdict = search.unknown()
                if verdict is not None:
                    self._finish(index, verdict)
                    return
            else:
                self._asked[index] = bookie
                return

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        """A bookie's answer (``ReadListener``); it may come late, when another was asked."""
        index = entry_id - self._first
        if self._results[index] is not None:
            return
        if return_code == ReturnCode.EOK:
            try:
                _, _, length, payload = decode_entry(buffer, start, end, self._ledger_id, entry_id)
            except EntryDigestMismatch as error:
                self._damaged_copy(index, bookie, error)
            else:
                self._finish(index, (length, payload))
                return
        elif not is_absence(return_code):
            self.unheard.add(entry_id)
        if self._asked[index] == bookie:
            search = self._searches[index]
            self._go_on(index, search.absent() if is_absence(return_code) else search.unknown())

    def read_lost(self, bookie: int, entry_id: int) -> None:
        """The connection to a bookie broke (``ReadListener``)."""
        index = entry_id - self._first
        if self._results[index] is None and self._asked[index] == bookie:
            self.unheard.add(entry_id)
            self._go_on(index, self._searches[index].unknown())

    def _damaged_copy(self, index: int, bookie: int, error: EntryDigestMismatch) -> None:
        self.damaged.add(self._first + index)
        bookie_id = self._ensembles[index][bookie].bookie_id
        log.error("damaged entry", extra={"bookie": bookie_id, "error": str(error)})

    def _go_on(self, index: int, verdict: Verdict | None) -> None:
        self._asked[index] = None
        if verdict is None:
            self._ask_next(index)
        else:
            self._finish(index, verdict)

    def _finish(self, index: int, result: Found | Verdict) -> None:
        self._results[index] = result
        self._open_count -= 1
        if not self._open_count:
            self._finished.set()

    def _give_up_on_silent(self) -> None:
        """Nothing is complete after the time that answers may take: turn to other bookies."""
        for index, bookie in enumerate(self._asked):
            if self._results[index] is None and bookie is not None:
                link = self._ensembles[index][bookie]
                link.suspect(self._answer_timeout_s)
                # Where the connection was too young to be given up, the request is.
                self.read_lost(bookie, self._first + index)
