"""Reads a ledger: entries in order, checked, from whichever bookie has them.

Made by ``Ledgers.open``. ``ReadPlan`` chooses which entries are requested, so that about as much is
read as is given out; what arrives too early waits in the ``ReadAheadCache``. One ``RangeRead`` is
one attempt; the reader decides whether to try again. It never reads beyond ``last_confirmed``: what
comes after may yet be lost. Entries move while a ledger is read (a writer's ensemble change,
auto-recovery), so an entry that cannot be found is looked for once more where the newest metadata
says that it is.

How far it may read, and how it learns that more was confirmed, is the business of ``LedgerView``.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLink
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.entries.digests import Decode, payload_decoder
from geminga_ledger.entries.read_ahead_cache import ReadAheadCache
from geminga_ledger.entries.read_plan import ReadPlan
from geminga_ledger.errors import (
    BookieUnavailable,
    EntryCorrupt,
    LedgerError,
    NoSuchEntry,
    UnsupportedLedger,
)
from geminga_ledger.reading.ledger_view import LedgerView
from geminga_ledger.reading.range_read import RangeRead
from geminga_ledger.replication.quorum import Verdict
from geminga_ledger.retry import RetryPolicy
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# A read that has three quarters of the bytes wanted is given out: the last quarter is not worth
# another round trip.
_ENOUGH_PART = 4


class LedgerReader:
    """One ledger, open for reading.

    ``last_confirmed`` is the last entry that may be read (-1: none). It never goes back, and stays
    as it was when the ledger was opened, unless the owner of its writer moves it (``advance``), or
    it is asked for (``view.ask_bookies``, ``wait_for_confirmed``).
    """

    def __init__(
        self,
        view: LedgerView,
        link: Callable[[str], BookieLink],
        *,
        counters: LedgerCounters,
        retry: RetryPolicy,
        config: LedgerConfig,
        read_ahead: ReadAheadCache,
    ) -> None:
        self.ledger_id = view.ledger_id
        # The metadata as it was read last, and up to where the ledger is confirmed.
        self.view = view
        self._link = link
        self._counters = counters
        self._retry = retry
        self._config = config
        self._read_ahead = read_ahead
        # What this reader has learned of the sizes of the ledger's entries.
        self._plan = ReadPlan(config.reads_in_flight_max)
        # The length of an open ledger is that of an entry which may lie beyond the last confirmed.
        if view.is_closed:
            self._plan.note_end(view.last_confirmed, view.length_bytes)

    @property
    def last_confirmed(self) -> int:
        """The last entry that may be read; -1 for none."""
        return self.view.last_confirmed

    @property
    def length_bytes(self) -> int:
        """The payload bytes of the ledger; of an open one, as known when it was opened."""
        return self.view.length_bytes

    def advance(self, last_confirmed: int, length_bytes: int = 0) -> None:
        """The ledger is confirmed up to here, as its writer in this process knows, and has so many
        payload bytes (0: not known)."""
        self.view.advance(last_confirmed)
        self._plan.note_end(last_confirmed, length_bytes)

    async def wait_for_confirmed(self, after: int, *, timeout_s: float) -> int:
        """Wait until more than ``after`` is confirmed, the ledger is closed, or time is up.

        Returns ``last_confirmed``. An entry is known to be confirmed from a later one, from the
        explicit LAC (``LedgerConfig.explicit_lac_interval_s``), or when the ledger is closed.
        Raises ``NoSuchLedger`` where it was deleted. While ZooKeeper is away, bookies are still
        asked.
        """
        try:
            async with asyncio.timeout(timeout_s) as limit:
                # Each turn is one long poll, or one reading of the metadata.
                while self.last_confirmed <= after and not self.view.is_closed:
                    await self.view.wait(after, limit)
        except TimeoutError:
            pass
        return self.last_confirmed

    async def read(self, first: int, last: int, *, bytes_max: int) -> list[bytes]:
        """Payloads of ``first``, ``first + 1``, … up to ``last`` or ``last_confirmed``; otherwise
        as ``read_entries``."""
        return await self.read_entries(range(first, last + 1), bytes_max=bytes_max)

    async def read_entries(self, entry_ids: Sequence[int], *, bytes_max: int) -> list[bytes]:
        """Payloads of the entries ``entry_ids``, which grow, as far as they are confirmed.

        At least one; about as many as fit into ``bytes_max`` bytes together, and no more. Raises
        ``NoSuchEntry``, ``EntryCorrupt``, ``UnsupportedLedger`` where the digest is not known, and
        ``BookieUnavailable`` when the deadline for reads has passed.
        """
        digest_type = self.view.metadata.digest_type
        if digest_type is None:
            raise UnsupportedLedger(self.ledger_id, "does not say which digest it has")
        # Read once: ``advance`` may move the end while this reads, and the next read sees it.
        wanted = entry_ids[: bisect_right(entry_ids, self.last_confirmed)]
        if not wanted or wanted[0] < 0:
            raise NoSuchEntry(self.ledger_id, entry_ids[0] if entry_ids else 0)
        decode = payload_decoder(digest_type, self.view.password)
        # What was read and not given out yet, by entry id.
        at_hand: dict[int, bytes] = {}
        first = wanted[0]
        # A long poll may have brought the entry together with the news that it is confirmed.
        entry = self.view.take_entry(first)
        if entry is not None:
            try:
                at_hand[first] = decode(entry, 0, len(entry), self.ledger_id, first)[3]
            except EntryDigestMismatch as error:
                self._counters.copies_damaged += 1
                log.warning("damaged entry", extra={"error": str(error)})
            else:
                self._counters.bytes_read += len(at_hand[first])
        try:
            found = await self._read_some(wanted, bytes_max, at_hand, decode)
        finally:
            # Also after an error: the entries that came are right, and asked for again soon.
            self._read_ahead.keep(self.ledger_id, at_hand)
        self._counters.bytes_given_out += sum(map(len, found))
        return found

    async def peek(self, entry_id: int) -> list[bytes]:
        """The payload of one entry that is read again soon: it is kept for that."""
        found = await self.read(entry_id, entry_id, bytes_max=0)
        # Counted when it is read again.
        self._counters.bytes_given_out -= len(found[0])
        self._read_ahead.keep(self.ledger_id, {entry_id: found[0]})
        return found

    async def _read_some(
        self, wanted: Sequence[int], bytes_max: int, at_hand: dict[int, bytes], decode: Decode
    ) -> list[bytes]:
        """The payloads to give out; what was read beyond them is left in ``at_hand``."""
        found: list[bytes] = []
        # How many bytes may still be given out.
        room = bytes_max
        while len(found) < len(wanted):
            entry_id = wanted[len(found)]
            payload = at_hand.pop(entry_id, None)
            if payload is None:
                payload = self._read_ahead.take(self.ledger_id, entry_id)
            if payload is None:
                if found and room < bytes_max // _ENOUGH_PART:
                    break
                # Each turn brings the next entry or raises, unless another reader of the ledger
                # takes it out of the read-ahead cache meanwhile: the next turn requests it then.
                # Several entries are requested at once; the loop goes on with what has come.
                entry_ids = self._plan.next_ids(wanted[len(found) :], room, bytes_max)
                try:
                    await self._fetch(entry_ids, at_hand, decode)
                except LedgerError:
                    if found:
                        break  # the next read begins with this entry, and meets the error again
                    raise
                continue
            # The first is given out whatever its size, so that every reader gets on.
            if found and len(payload) > room:
                at_hand[entry_id] = payload
                break
            found.append(payload)
            room -= len(payload)
        return found

    async def _fetch(
        self, entry_ids: Sequence[int], at_hand: dict[int, bytes], decode: Decode
    ) -> None:
        """Read what is not there yet of ``entry_ids`` into ``at_hand``, the first in any case.

        Looks where the metadata says and, if that is out of date, where the newest metadata says;
        tries again until the deadline for reads.
        """

        async def attempt() -> None:
            missing = [
                each
                for each in entry_ids
                if each not in at_hand and (self.ledger_id, each) not in self._read_ahead
            ]
            # While this waited to try again, other readers may have brought all of it.
            if not missing:
                return
            # Known to be out of date: the first request could go to the wrong bookies.
            if self.view.is_old:
                with suppress(LedgerError, CoordinationError):  # what is known may do
                    await self.view.renew()
            try:
                await self._attempt(missing, at_hand, decode)
            except LedgerError as error:
                try:
                    is_renewed = await self.view.renew()
                except CoordinationError:
                    # The error that was a reason to look for newer metadata tells more.
                    raise error from None
                if not is_renewed:
                    raise
            else:
                return
            # The ensemble has changed since: the entry may have moved. Outside of the handler, so
            # that a second failure is reported by itself.
            await self._attempt([each for each in missing if each not in at_hand], at_hand, decode)

        await self._retry.run(attempt, on=LedgerError, deadline_s=self._config.read_deadline_s)

    async def _attempt(
        self, entry_ids: Sequence[int], at_hand: dict[int, bytes], decode: Decode
    ) -> None:
        """Read entries once. Raises why the first one could not be read.

        Another one that could not be read is left out; the next read begins with it.
        """
        read = RangeRead(
            self.ledger_id,
            self.view.metadata,
            self._link,
            entry_ids=entry_ids,
            # Every copy counts: a confirmed entry may be on one bookie alone by now.
            absences_proving=self.view.metadata.write_quorum,
            answer_timeout_s=self._config.answer_timeout_s,
            speculative_s=self._config.speculative_read_s,
            decode=decode,
            counters=self._counters,
        )
        # Stage 1: the bookies' answers, whole or not.
        results = await read.run()
        self._counters.bytes_read += read.received_bytes
        # Stage 2: what operators should know. Confirmed entries that a bookie lacks should be
        # copied by auto-recovery. At the end of an open ledger that is nothing special: an ack
        # quorum was faster than this bookie.
        level = logging.WARNING if self.view.is_closed else logging.INFO
        for bookie_id, count in read.missing.items():
            self._counters.copies_missing += count
            log.log(
                level,
                "copies missing",
                extra={"ledger": self.ledger_id, "bookie": bookie_id, "entries": count},
            )
        # Stage 3: what came is kept, also where the first entry could not be read.
        for entry_id, found in zip(entry_ids, results, strict=True):
            if not isinstance(found, Verdict):
                at_hand[entry_id] = found[1]
        # For the next plan: how far the ledger's bytes go, up to three of the entries. The last one
        # may be further on, the end of the next window; the one before it is the last neighbour.
        for index in sorted({0, len(results) - 2, len(results) - 1}):
            found = results[index]
            if not isinstance(found, Verdict):
                self._plan.note_length(entry_ids[index], found[0])
        neighbours = [each for each in results[:-1] or results if not isinstance(each, Verdict)]
        if neighbours:
            self._plan.note_sizes(len(neighbours), sum(len(payload) for _, payload in neighbours))
        # Stage 4: only the first entry can make this fail.
        first, result = entry_ids[0], results[0]
        if isinstance(result, Verdict):
            is_damaged = first in read.damaged and first not in read.unheard
            raise self._why_unread(first, result, is_damaged=is_damaged)

    def _why_unread(self, entry_id: int, verdict: Verdict, *, is_damaged: bool) -> LedgerError:
        if verdict is Verdict.ABSENT:
            return NoSuchEntry(self.ledger_id, entry_id)
        # Where some bookie did not answer, a good copy may be there.
        if is_damaged:
            return EntryCorrupt(self.ledger_id, entry_id)
        bookie_ids = ", ".join(self.view.metadata.ensemble_of(entry_id))
        return BookieUnavailable(bookie_ids, f"no copy of entry {entry_id} was given")
