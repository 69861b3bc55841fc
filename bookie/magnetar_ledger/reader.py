"""Reads a ledger: ranges of entries, in order, checked, from whichever bookie has them.

Made by ``Ledgers.open``. One ``RangeRead`` is one attempt; here is decided how many entries it asks
for, so that the answer has about the size wanted, and whether to try again.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_ledger.errors import (
    BookieUnavailable,
    EntryCorrupt,
    LedgerError,
    NoSuchEntry,
)
from magnetar_ledger.links import BookieLink
from magnetar_ledger.options import LedgerOptions
from magnetar_ledger.patience import Patience
from magnetar_ledger.quorum import Verdict
from magnetar_ledger.range_read import RangeRead
from magnetar_ledger.store import StoredMetadata
from magnetar_protocol.records.ledger_metadata import LedgerMetadata

# Entries asked for in a first read when nothing is known of their size.
_FIRST_ENTRIES = 16


class LedgerReader:
    """One ledger, open for reading.

    ``last_confirmed`` is the last entry that may be read (-1: none). It stays as it was when the
    ledger was opened, unless the owner of its writer moves it (``advance``).
    """

    def __init__(
        self,
        stored: StoredMetadata,
        *,
        last_confirmed: int,
        length_bytes: int,
        link: Callable[[str], BookieLink],
        patience: Patience,
        options: LedgerOptions,
    ) -> None:
        self.ledger_id = stored.ledger_id
        self.metadata: LedgerMetadata = stored.metadata
        self.last_confirmed = last_confirmed
        self.length_bytes = length_bytes
        self._link = link
        self._patience = patience
        self._options = options
        # What the next entries are expected to have, for asking for the right number of them.
        self._entry_bytes = length_bytes // (last_confirmed + 1) if last_confirmed >= 0 else 0

    def advance(self, last_confirmed: int) -> None:
        """The ledger is confirmed up to here, as its writer in this process knows."""
        self.last_confirmed = max(self.last_confirmed, last_confirmed)

    async def read(self, first: int, last: int, *, bytes_max: int) -> list[bytes]:
        """Payloads of ``first``, ``first + 1``, … up to ``last`` or ``last_confirmed``.

        At least one; as many as fit into ``bytes_max`` bytes together. Raises ``NoSuchEntry``,
        ``EntryCorrupt``, and ``BookieUnavailable`` when the deadline for reads has passed.
        """
        if not 0 <= first <= min(last, self.last_confirmed):
            raise NoSuchEntry(self.ledger_id, first)
        last = min(last, self.last_confirmed)
        payloads: list[bytes] = []
        total_bytes = 0
        while first <= last and (total_bytes < bytes_max or not payloads):
            count = self._entries_to_ask(bytes_max - total_bytes)
            try:
                batch = await self._read_all(first, min(last, first + count - 1))
            except LedgerError:
                if payloads:
                    return payloads  # the next read will be told
                raise
            for payload in batch:
                total_bytes += len(payload)
                if total_bytes > bytes_max and payloads:
                    return payloads
                payloads.append(payload)
            first += len(batch)
            self._entry_bytes = max(map(len, batch))
        return payloads

    def _entries_to_ask(self, bytes_left: int) -> int:
        """About as many as fit; one more than fit costs one entry read for nothing."""
        if not self._entry_bytes:
            return _FIRST_ENTRIES
        return min(max(bytes_left // self._entry_bytes, 1), self._options.reads_in_flight_max)

    async def _read_all(self, first: int, last: int) -> list[bytes]:
        return await self._patience.persist(
            lambda: self._attempt(first, last),
            despite=LedgerError,
            deadline_s=self._options.read_deadline_s,
        )

    async def _attempt(self, first: int, last: int) -> list[bytes]:
        read = RangeRead(
            self.ledger_id,
            self.metadata,
            self._link,
            first=first,
            last=last,
            absences_proving=self.metadata.write_quorum,
            answer_timeout_s=self._options.answer_timeout_s,
        )
        payloads: list[bytes] = []
        for entry_id, result in enumerate(await read.run(), first):
            if not isinstance(result, Verdict):
                payloads.append(result[1])
            elif payloads:
                break  # what there is before the gap is an answer; the gap is the next read's
            else:
                is_damaged = entry_id in read.damaged and entry_id not in read.unheard
                raise self._why_unread(entry_id, result, is_damaged=is_damaged)
        return payloads

    def _why_unread(self, entry_id: int, verdict: Verdict, *, is_damaged: bool) -> LedgerError:
        if verdict is Verdict.ABSENT:
            return NoSuchEntry(self.ledger_id, entry_id)
        ensemble = self.metadata.ensemble_of(entry_id)
        return (
            EntryCorrupt(self.ledger_id, entry_id)
            if is_damaged
            else BookieUnavailable(", ".join(ensemble), f"no copy of entry {entry_id} was given")
        )
