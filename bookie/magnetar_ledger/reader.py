"""Reads a ledger: ranges of entries, in order, checked, from whichever bookie has them.

Made by ``Ledgers.open``. One ``RangeRead`` is one attempt; here is decided how many entries it asks
for, so that the answer has about the size wanted, and whether to try again. A reader never reads
beyond ``last_confirmed``: what comes after may yet be lost. Entries move while a ledger is read (a
writer's ensemble change, auto-recovery), so what cannot be found is looked for once more where the
newest metadata says that it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from magnetar_ledger.counters import LedgerCounters
from magnetar_ledger.digests import Decode, entry_decoder, payload_decoder
from magnetar_ledger.errors import (
    BookieUnavailable,
    EntryCorrupt,
    LedgerError,
    NoSuchEntry,
    UnsupportedLedger,
)
from magnetar_ledger.links import BookieLink
from magnetar_ledger.options import LedgerOptions
from magnetar_ledger.patience import Patience
from magnetar_ledger.quorum import Verdict
from magnetar_ledger.range_read import RangeRead
from magnetar_ledger.store import StoredMetadata
from magnetar_protocol.records.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# Entries asked for in a first read when nothing is known of their size.
_FIRST_ENTRIES = 16
# While nothing new is confirmed, the metadata is read again every so many polls: the ledger may
# have been closed, or its writer may have gone to other bookies.
_POLLS_A_LOOK = 10


class Confirmations(Protocol):
    """Where a reader of an open ledger hears how far it is confirmed.

    Over V2 that is a question to the bookies (their newest entry tells what was confirmed when it
    was written); with V3 it can be a bookie's long poll.
    """

    async def last_confirmed(self, stored: StoredMetadata) -> int:
        """An entry up to which the ledger is surely confirmed; -1 where none is known."""
        ...


class LedgerReader:
    """One ledger, open for reading.

    ``last_confirmed`` is the last entry that may be read (-1: none). It never goes back, and stays
    as it was when the ledger was opened, unless the owner of its writer moves it (``advance``) or
    somebody waits for more (``wait_for_confirmed``).
    """

    def __init__(
        self,
        stored: StoredMetadata,
        *,
        last_confirmed: int,
        length_bytes: int,
        link: Callable[[str], BookieLink],
        read_metadata: Callable[[int], Awaitable[StoredMetadata]],
        confirmations: Confirmations,
        counters: LedgerCounters,
        patience: Patience,
        options: LedgerOptions,
    ) -> None:
        self.ledger_id = stored.ledger_id
        self.last_confirmed = last_confirmed
        self.length_bytes = length_bytes
        self._stored = stored
        self._link = link
        self._read_metadata = read_metadata
        self._confirmations = confirmations
        self._counters = counters
        self._patience = patience
        self._options = options
        # What the next entries are expected to have, for asking for the right number of them.
        self._entry_bytes = length_bytes // (last_confirmed + 1) if last_confirmed >= 0 else 0

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as it was read last."""
        return self._stored.metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when its metadata was read last: then it grows no more."""
        return self.metadata.state is LedgerState.CLOSED

    def advance(self, last_confirmed: int) -> None:
        """The ledger is confirmed up to here, as its writer in this process knows."""
        self.last_confirmed = max(self.last_confirmed, last_confirmed)

    async def wait_for_confirmed(self, after: int, *, timeout_s: float) -> int:
        """Wait until more than ``after`` is confirmed, the ledger is closed, or time is up.

        Returns ``last_confirmed``. An entry is known to be confirmed when a later one tells, or the
        ledger is closed. Raises ``NoSuchLedger`` where it was deleted, ``CoordinationError``.
        """
        polls = 0
        try:
            async with asyncio.timeout(timeout_s):
                while self.last_confirmed <= after and not self.is_closed:
                    if polls:
                        await asyncio.sleep(self._options.poll_interval_s)
                    if polls % _POLLS_A_LOOK == 0:
                        await self._renew()
                    polls += 1
                    if not self.is_closed:
                        self.advance(await self._confirmations.last_confirmed(self._stored))
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
        decode = payload_decoder(digest_type, self._password)
        return await self._read_some(first, last, bytes_max, decode)

    async def read_raw(self, first: int, last: int, *, bytes_max: int) -> list[bytes]:
        """The same entries whole, as bookies store them, to be stored elsewhere as they are.

        They are verified, unless the ledger does not say which digest it has.
        """
        decode = entry_decoder(self.metadata.digest_type, self._password)
        return await self._read_some(first, last, bytes_max, decode)

    @property
    def _password(self) -> bytes:
        password = self.metadata.password
        return self._options.password if password is None else password

    async def _read_some(
        self, first: int, last: int, bytes_max: int, decode: Decode
    ) -> list[bytes]:
        if not 0 <= first <= min(last, self.last_confirmed):
            raise NoSuchEntry(self.ledger_id, first)
        last = min(last, self.last_confirmed)
        found: list[bytes] = []
        total_bytes = 0
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
        try:
            return await self._attempt(first, last, decode)
        except LedgerError as error:
            try:
                is_renewed = await self._renew()
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

    async def _renew(self) -> bool:
        """Read the metadata again; whether it is another one."""
        before = self._stored
        self._stored = await self._read_metadata(self.ledger_id)
        if self.is_closed and before.metadata.state is not LedgerState.CLOSED:
            self.advance(self.metadata.last_entry)
            self.length_bytes = self.metadata.length
        return self._stored.version != before.version
