"""Reads a ledger: ranges of entries, in order, checked, from whichever bookie has them.

Made by ``Ledgers.open``. One ``RangeRead`` is one attempt; here is decided how many entries it asks
for, so that the answer has about the size wanted, and whether to try again. A reader never reads
beyond ``last_confirmed``: what comes after may yet be lost. Entries move while a ledger is read (a
writer's ensemble change, auto-recovery), so what cannot be found is looked for once more where the
newest metadata says that it is.

How far it may read, and how it hears of more, is its ``ledger_view``'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from geminga_ledger.counters import LedgerCounters
from geminga_ledger.digests import (
    Decode,
    payload_decoder,
)
from geminga_ledger.errors import (
    BookieUnavailable,
    EntryCorrupt,
    LedgerError,
    NoSuchEntry,
    UnsupportedLedger,
)
from geminga_ledger.ledger_view import LedgerView
from geminga_ledger.links import BookieLink
from geminga_ledger.options import LedgerOptions
from geminga_ledger.patience import Patience
from geminga_ledger.quorum import Verdict
from geminga_ledger.range_read import RangeRead
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.records.ledger_metadata import LedgerMetadata
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# Entries asked for in a first read when nothing is known of their size.
_FIRST_ENTRIES = 16


class LedgerReader:
    """One ledger, open for reading.

    ``last_confirmed`` is the last entry that may be read (-1: none). It never goes back, and stays
    as it was when the ledger was opened, unless the owner of its writer moves it (``advance``) or
    somebody waits for more (``wait_for_confirmed``).
    """

    def __init__(
        self,
        view: LedgerView,
        link: Callable[[str], BookieLink],
        *,
        counters: LedgerCounters,
        patience: Patience,
        options: LedgerOptions,
    ) -> None:
        self.ledger_id = view.ledger_id
        self._view = view
        self._link = link
        self._counters = counters
        self._patience = patience
        self._options = options
        # What the next entries are expected to have, for asking for the right number of them.
        entries = view.last_confirmed + 1
        self._entry_bytes = view.length_bytes // entries if entries else 0

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as it was read last."""
        return self._view.metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when its metadata was read last: then it grows no more."""
        return self._view.is_closed

    @property
    def last_confirmed(self) -> int:
        """The last entry that may be read; -1 for none."""
        return self._view.last_confirmed

    @property
    def length_bytes(self) -> int:
        """The ledger's payloads together, as far as was known when this was found out."""
        return self._view.length_bytes

    def advance(self, last_confirmed: int) -> None:
        """The ledger is confirmed up to here, as its writer in this process knows."""
        self._view.advance(last_confirmed)

    async def read_last_confirmed(self) -> int:
        """Ask the bookies up to where the ledger is confirmed now; returns ``last_confirmed``.

        They tell what their entries say and what the writer said at a pause, whichever is more.
        Raises ``BookieUnavailable`` where too few answer.
        """
        return await self._view.ask_bookies()

    async def wait_for_confirmed(self, after: int, *, timeout_s: float) -> int:
        """Wait until more than ``after`` is confirmed, the ledger is closed, or time is up.

        Returns ``last_confirmed``. An entry is known to be confirmed when a later one tells, when
        its writer does (``LedgerOptions.explicit_lac_interval_s``), or when the ledger is closed.
        Raises ``NoSuchLedger`` where it was deleted. While ZooKeeper is away, the bookies go on to
        be asked.
        """
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while self.last_confirmed <= after and not self.is_closed:
                    await self._view.wait(after, limit)
        except TimeoutError:
            pass
        return self.last_confirmed

    async def read(self, first: int, last: int, *, bytes_max: int) -> list[bytes]:
        """Payloads of ``first``, ``first + 1``, … up to ``last`` or ``last_confirmed``.

        At least one; as many as fit into ``bytes_max`` bytes together. Raises ``NoSuchEntry``,
        ``EntryCorrupt``, ``UnsupportedLedger`` where the digest is not known, and
        ``BookieUnavailable`` when the deadline for reads has passed.
        """
        digest_type = self.metadata.digest_type
        if digest_type is None:
            raise UnsupportedLedger(self.ledger_id, "does not say which digest it has")
        decode = payload_decoder(digest_type, self._view.password)
        return await self._read_some(first, last, bytes_max, decode)

    async def _read_some(
        self, first: int, last: int, bytes_max: int, decode: Decode
    ) -> list[bytes]:
        if not 0 <= first <= min(last, self.last_confirmed):
            raise NoSuchEntry(self.ledger_id, first)
        last = min(last, self.last_confirmed)
        found = self._take_at_hand(first, decode)
        total_bytes = sum(map(len, found))
        first += len(found)
        while first <= last and (total_bytes < bytes_max or not found):
            count = self._entries_to_ask(bytes_max - total_bytes)
            try:
                batch = await self._read_all(first, min(last, first + count - 1), decode)
            except LedgerError:
                if found:
                    return found  # the next read will be told
                raise
            for each in batch:
                total_bytes += len(each)
                if total_bytes > bytes_max and found:
                    return found
                found.append(each)
            first += len(batch)
            self._entry_bytes = max(map(len, batch))
        return found

    def _take_at_hand(self, first: int, decode: Decode) -> list[bytes]:
        """The entry ``first``, where it came with the news that it is confirmed."""
        entry = self._view.take_entry(first)
        if entry is None:
            return []
        try:
            _, _, _, kept = decode(entry, 0, len(entry), self.ledger_id, first)
        except EntryDigestMismatch as error:
            self._counters.copies_damaged += 1
            log.warning("damaged entry", extra={"error": str(error)})
            return []
        return [kept]

    def _entries_to_ask(self, bytes_left: int) -> int:
        """About as many as fit; one more than fit costs one entry read for nothing."""
        if not self._entry_bytes:
            return _FIRST_ENTRIES
        return min(max(bytes_left // self._entry_bytes, 1), self._options.reads_in_flight_max)

    async def _read_all(self, first: int, last: int, decode: Decode) -> list[bytes]:
        return await self._patience.persist(
            lambda: self._attempt_anywhere(first, last, decode),
            despite=LedgerError,
            deadline_s=self._options.read_deadline_s,
        )

    async def _attempt_anywhere(self, first: int, last: int, decode: Decode) -> list[bytes]:
        """Where the metadata says, and if that has become old, where the newest says."""
        if self._view.is_old:
            with suppress(LedgerError, CoordinationError):  # what is known may do
                await self._view.renew()
        try:
            return await self._attempt(first, last, decode)
        except LedgerError as error:
            try:
                is_renewed = await self._view.renew()
            except CoordinationError:
                raise error from None  # the reason to look for newer metadata is the better one
            if not is_renewed:
                raise
        return await self._attempt(first, last, decode)

    async def _attempt(self, first: int, last: int, decode: Decode) -> list[bytes]:
        read = RangeRead(
            self.ledger_id,
            self.metadata,
            self._link,
            first=first,
            last=last,
            absences_proving=self.metadata.write_quorum,
            answer_timeout_s=self._options.answer_timeout_s,
            speculative_s=self._options.speculative_read_s,
            decode=decode,
            counters=self._counters,
        )
        results = await read.run()
        self._report_missing(read)
        found: list[bytes] = []
        for entry_id, result in enumerate(results, first):
            if not isinstance(result, Verdict):
                found.append(result[1])
            elif found:
                break  # what there is before the gap is an answer; the gap is the next read's
            else:
                is_damaged = entry_id in read.damaged and entry_id not in read.unheard
                raise self._why_unread(entry_id, result, is_damaged=is_damaged)
        return found

    def _report_missing(self, read: RangeRead) -> None:
        """Confirmed entries are not everywhere they should be: somebody should copy them.

        At the end of an open ledger that is nothing special: an ack quorum was faster.
        """
        level = logging.WARNING if self.is_closed else logging.INFO
        for bookie_id, count in read.missing.items():
            self._counters.copies_missing += count
            log.log(
                level,
                "copies missing",
                extra={"ledger": self.ledger_id, "bookie": bookie_id, "entries": count},
            )

    def _why_unread(self, entry_id: int, verdict: Verdict, *, is_damaged: bool) -> LedgerError:
        if verdict is Verdict.ABSENT:
            return NoSuchEntry(self.ledger_id, entry_id)
        ensemble = self.metadata.ensemble_of(entry_id)
        return (
            EntryCorrupt(self.ledger_id, entry_id)
            if is_damaged
            else BookieUnavailable(", ".join(ensemble), f"no copy of entry {entry_id} was given")
        )
