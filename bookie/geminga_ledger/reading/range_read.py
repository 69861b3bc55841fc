"""One attempt to get some entries of a ledger from the bookies that should have them.

All requests go out at once. An entry that one bookie does not give is requested from the next of
its write set; where a bookie is slow, from the next as well (a speculative read: the first good
copy counts), unless the slow bookie answers other requests meanwhile. Bookies that failed or were
slow a moment ago are asked last. Every copy is checked against its digest; a damaged one counts as
no copy. An entry that could not be read gets a ``Verdict``; what that means, and whether to try
again, is for the caller to say. Facts: ``PendingReadOp`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from geminga_ledger.connections.links import BookieLink
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.entries.digests import Decode
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.quorum import EntrySearch, Quorum, Verdict
from geminga_ledger.replication.recovery_rules import is_absence
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.digest import ENTRY_HEADER_BYTES, decode_entry
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata

log = logging.getLogger(__name__)

# Where enough bookies said that they do not have an entry to prove that it was never confirmed, the
# others still get so long to give a copy: one of those that lack it may have lost it.
PROVEN_WAIT_S = 0.25

Found = tuple[int, bytes]
"""``(length, bytes)``: the sum of all payloads up to and with this entry, and what ``Decode`` took
out of it."""


class RangeRead:
    """Reads the entries ``entry_ids`` of one ledger, once: a range, or any others in growing order.

    After ``speculative_s`` (0: never) without an answer a bookie counts as slow, after
    ``answer_timeout_s`` as hung.
    """

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        link: Callable[[str], BookieLink],
        *,
        entry_ids: Sequence[int],
        absences_proving: int,
        answer_timeout_s: float,
        speculative_s: float = 0.0,
        flags: int = 0,
        master_key: bytes | None = None,
        decode: Decode = decode_entry,
        counters: LedgerCounters | None = None,
    ) -> None:
        self._ledger_id = ledger_id
        self._entry_ids = entry_ids
        self._quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._absences_proving = absences_proving
        self._answer_timeout_s = answer_timeout_s
        # How often bookies that owe answers are checked.
        self._check_s = min(speculative_s, answer_timeout_s) or answer_timeout_s
        self._is_speculative = self._check_s < answer_timeout_s
        self._flags = flags
        self._master_key = master_key
        self._decode = decode
        self._counters = counters or LedgerCounters()
        # Everything below is by index: the position in ``entry_ids``. Entries of one fragment share
        # the tuple of their bookies' links.
        self._indexes = {entry_id: index for index, entry_id in enumerate(entry_ids)}
        ensembles = [metadata.ensemble_of(entry_id) for entry_id in entry_ids]
        links = {ensemble: tuple(map(link, ensemble)) for ensemble in dict.fromkeys(ensembles)}
        self._links = list(dict.fromkeys(chain.from_iterable(links.values())))
        self._ensembles = [links[ensemble] for ensemble in ensembles]
        # Filled by ``run``, when the links have been tried.
        self._searches: list[EntrySearch] = []
        # None until the entry is settled; then it stays as it is, whatever comes later.
        self._results: list[Found | Verdict | None] = [None] * len(ensembles)
        # How many entries have no result yet; at 0 ``_finished`` is set.
        self._open_count = len(ensembles)
        self._finished = asyncio.Event()
        # Runs from the first proof that an entry is absent, see ``PROVEN_WAIT_S``.
        self._proven_timer: asyncio.TimerHandle | None = None
        # Bookies that answered something since the last check, and for how many checks others have
        # owed answers without giving one.
        self._heard: set[BookieLink] = set()
        self._silent_checks: Counter[BookieLink] = Counter()
        # Entries of which a damaged copy was seen, and those of which some bookie did not say
        # whether it has a copy.
        self.damaged: set[int] = set()
        self.unheard: set[int] = set()
        # By bookie: how many entries it does not have.
        self.missing: Counter[str] = Counter()
        # Payload bytes that came, those of copies that were not needed or are damaged among them.
        self.received_bytes = 0

    async def run(self) -> list[Found | Verdict]:
        """What became of each entry, in order."""
        # Stage 1: connections. One attempt to connect to each bookie that is not known to be down.
        missing = [link for link in self._links if not link.is_connected and not link.is_down]
        if missing:
            attempts = [asyncio.ensure_future(link.connected()) for link in missing]
            try:
                await asyncio.wait(attempts, timeout=self._check_s)
            finally:
                for attempt in attempts:
                    attempt.cancel()
                await asyncio.gather(*attempts, return_exceptions=True)
        # Stage 2: the order in which each entry's bookies are asked. After connecting: that has
        # shown which bookies are worth asking first. Entries with the same write set on the same
        # ensemble share their order.
        orders: dict[tuple[tuple[BookieLink, ...], int], tuple[int, ...]] = {}
        for entry_id, links in zip(self._entry_ids, self._ensembles, strict=True):
            key = links, entry_id % self._quorum.ensemble_size
            order = orders.get(key)
            if order is None:
                write_set = self._quorum.write_set(entry_id)
                ranks = {bookie: links[bookie].rank for bookie in write_set}
                order = orders[key] = tuple(sorted(write_set, key=ranks.__getitem__))
            self._searches.append(EntrySearch(order, self._absences_proving))
        # Stage 3: one request for each entry. Answers come to ``read_answered``, which asks the
        # next bookie where it must; this function only looks after those that do not answer.
        for index in range(len(self._results)):
            self._ask_next(index)
        try:
            # Ends: each entry's search asks Qw bookies at most, and one that hangs is given up
            # after ``answer_timeout_s``.
            while self._open_count:
                # A request that is made between two checks has not had a whole period to be
                # answered.
                awaited = self._awaited()
                self._heard.clear()
                try:
                    async with asyncio.timeout(self._check_s):
                        await self._finished.wait()
                except TimeoutError:
                    self._check_silent(awaited)
        finally:
            if self._proven_timer is not None:
                self._proven_timer.cancel()
        return [result for result in self._results if result is not None]

    def _ask_next(self, index: int) -> bool:
        """Request the entry from its next bookie that is connected; False where there is none."""
        # ``read`` answers never before it returns, so this loop and the listener do not meet.
        search, entry_id = self._searches[index], self._entry_ids[index]
        # Bookies without a connection are passed over, and count as unknown at once.
        while (bookie := search.next_bookie()) is not None:
            try:
                self._ensembles[index][bookie].read(
                    self._ledger_id,
                    entry_id,
                    self,
                    bookie,
                    flags=self._flags,
                    master_key=self._master_key,
                )
            except BookieUnavailable:
                self.unheard.add(entry_id)
                verdict = search.unknown(bookie)
                if verdict is not None:
                    self._finish(index, verdict)
            else:
                return True
        return False

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        """A bookie's answer (``ReadListener``); it may come late, when another was asked."""
        index = self._indexes[entry_id]
        link = self._ensembles[index][bookie]
        self._heard.add(link)
        self.received_bytes += max(end - start - ENTRY_HEADER_BYTES, 0)
        # Another bookie was faster.
        if self._results[index] is not None:
            return
        if return_code == ReturnCode.EOK:
            try:
                _, _, length, kept = self._decode(buffer, start, end, self._ledger_id, entry_id)
            except EntryDigestMismatch as error:
                self.damaged.add(entry_id)
                self._counters.copies_damaged += 1
                link.note_doubt()
                log.error(  # noqa: TRY400 -- where it was found says nothing
                    "damaged entry", extra={"bookie": link.bookie_id, "error": str(error)}
                )
            else:
                self._finish(index, (length, kept))
                return
        elif is_absence(return_code):
            self.missing[link.bookie_id] += 1
        else:
            self.unheard.add(entry_id)
            # A wrong password is not the bookie's fault.
            if return_code != ReturnCode.EUA:
                link.note_failure()
        search = self._searches[index]
        # Not awaited: it was given up as hung, and counted then.
        if bookie in search.awaited:
            is_absent = is_absence(return_code)
            self._go_on(index, search.absent(bookie) if is_absent else search.unknown(bookie))

    def read_lost(self, bookie: int, entry_id: int) -> None:
        """The connection to a bookie broke (``ReadListener``)."""
        index = self._indexes[entry_id]
        search = self._searches[index]
        if self._results[index] is None and bookie in search.awaited:
            self.unheard.add(entry_id)
            self._go_on(index, search.unknown(bookie))

    def _go_on(self, index: int, verdict: Verdict | None) -> None:
        if verdict is not None:
            self._finish(index, verdict)
            return
        search = self._searches[index]
        # Another one may have been asked speculatively already.
        if not search.awaited:
            self._ask_next(index)
        # One timer for all entries: the tail of a ledger is absent as a whole.
        if search.is_proven and self._proven_timer is None and self._results[index] is None:
            loop = asyncio.get_running_loop()
            self._proven_timer = loop.call_later(PROVEN_WAIT_S, self._believe_the_proven)

    def _believe_the_proven(self) -> None:
        """Stop waiting for entries that enough bookies do not have."""
        self._proven_timer = None
        for index, search in enumerate(self._searches):
            if self._results[index] is None and search.is_proven:
                self._finish(index, Verdict.ABSENT)

    def _finish(self, index: int, result: Found | Verdict) -> None:
        self._results[index] = result
        self._open_count -= 1
        if not self._open_count:
            self._finished.set()

    # --- bookies that do not answer -----------------------------------------------------------

    def _awaited(self) -> dict[BookieLink, list[tuple[int, int]]]:
        """The bookies that owe answers, and which: ``(index, bookie)`` of each."""
        awaited: dict[BookieLink, list[tuple[int, int]]] = {}
        for index, search in enumerate(self._searches):
            if self._results[index] is None:
                for bookie in search.awaited:
                    awaited.setdefault(self._ensembles[index][bookie], []).append((index, bookie))
        return awaited

    def _check_silent(self, awaited_before: dict[BookieLink, list[tuple[int, int]]]) -> None:
        """Ask other bookies where one has answered nothing since the last check."""
        # A bookie is hung after so many checks in a row without any answer from it.
        checks_max = round(self._answer_timeout_s / self._check_s)
        for link, owed in self._awaited().items():
            # A bookie that answers other requests is busy, not hung.
            if link in self._heard or link not in awaited_before:
                self._silent_checks[link] = 0
                continue
            self._silent_checks[link] += 1
            if self._silent_checks[link] >= checks_max:
                link.note_failure()
                link.suspect(self._answer_timeout_s)
                for index, bookie in owed:
                    # Where the connection was too young to be given up, the request is.
                    self.read_lost(bookie, self._entry_ids[index])
            elif self._is_speculative and self._silent_checks[link] == 1:
                link.note_doubt()
                for index, _ in owed:
                    # ``suspect`` of another bookie may have brought the result meanwhile.
                    if self._results[index] is None:
                        self._counters.reads_speculative += self._ask_next(index)
