"""Reads one compacted ledger: its entries bear their places in the log, in growing order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from geminga_broker.compaction.errors import CompactedLedgerGone
from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.positions import Position
from geminga_ledger import EntryCorrupt, LedgerError, LedgerReader, Ledgers, NoSuchLedger
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.compacted_ledger import decode_compacted
from geminga_runtime.coordination import CoordinationError

# The places that a binary search meets first are asked for again and again: so many are kept.
PLACES_MAX = 256


class CompactedEntry(NamedTuple):
    """What the log had at ``position``, or what compaction left of it."""

    position: Position
    payload: bytes


class CompactedLedger:
    """The compacted ledger ``ledger_id``, opened when it is first read.

    All methods raise ``StorageUnavailable``, of it ``CompactedLedgerGone`` and ``EntryDamaged``.
    """

    def __init__(self, ledgers: Ledgers, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._ledgers = ledgers
        self._reader: LedgerReader | None = None
        self._opening = asyncio.Lock()
        # By entry id of this ledger, in the order of their reading.
        self._places: dict[int, Position] = {}
        # By position behind the last entry of a read: the entry of this ledger that comes next.
        self._following: dict[Position, int] = {}

    async def opened(self) -> LedgerReader:
        """The ledger's reader: how many entries and bytes it has."""
        async with self._opening:
            if self._reader is None:
                self._reader = await self._open()
            return self._reader

    async def _open(self) -> LedgerReader:
        try:
            return await self._ledgers.open(self.ledger_id, recover=False)
        except NoSuchLedger as error:
            raise CompactedLedgerGone(self.ledger_id) from error
        except (LedgerError, CoordinationError) as error:
            raise StorageUnavailable(str(error)) from error

    async def read_from(
        self, position: Position, count_max: int, bytes_max: int
    ) -> list[CompactedEntry]:
        """Entries whose place is not less than ``position``, as ``read``.

        Who goes on behind what was read last is not searched for.
        """
        index = self._following.get(position)
        if index is None:
            index = await self.index_of(position)
        entries = await self.read(index, count_max, bytes_max)
        if entries:
            ledger_id, entry_id = entries[-1].position
            self._following[Position(ledger_id, entry_id + 1)] = index + len(entries)
            if len(self._following) > PLACES_MAX:
                del self._following[next(iter(self._following))]
        return entries

    async def read(self, first: int, count_max: int, bytes_max: int) -> list[CompactedEntry]:
        """Entries from the ``first`` on, as many as are there and fit; empty at the end."""
        last = min(first + count_max - 1, (await self.opened()).last_confirmed)
        if last < first:
            return []
        return await self._ask(lambda reader: reader.read(first, last, bytes_max=bytes_max))

    async def _ask(
        self, question: Callable[[LedgerReader], Awaitable[list[bytes]]]
    ) -> list[CompactedEntry]:
        reader = await self.opened()
        try:
            return [_entry(each) for each in await question(reader)]
        except (EntryCorrupt, MalformedRecord) as error:
            raise EntryDamaged(f"compacted ledger {self.ledger_id}: {error}") from error
        except NoSuchLedger as error:
            raise CompactedLedgerGone(self.ledger_id) from error
        except (LedgerError, CoordinationError) as error:
            self._reader = None
            raise StorageUnavailable(str(error)) from error

    async def last(self) -> CompactedEntry | None:
        """The entry with the greatest place; None where all was compacted away."""
        last = (await self.opened()).last_confirmed
        return None if last < 0 else (await self.read(last, 1, 1))[0]

    async def index_of(self, position: Position) -> int:
        """The first entry whose place is not less than ``position``; behind the last where there
        is none."""
        low, high = 0, (await self.opened()).last_confirmed + 1
        while low < high:
            middle = (low + high) // 2
            if await self._place(middle) < position:
                low = middle + 1
            else:
                high = middle
        return low

    async def _place(self, index: int) -> Position:
        place = self._places.get(index)
        if place is None:
            (entry,) = await self._ask(lambda reader: reader.peek(index))
            place = entry.position
            if len(self._places) >= PLACES_MAX:
                del self._places[next(iter(self._places))]
            self._places[index] = place
        return place

    async def first_where(self, is_reached: Callable[[bytes], bool]) -> Position | None:
        """The place of the first entry whose payload fulfils a condition that stays true once it
        is; None where none does."""
        low, high = 0, (await self.opened()).last_confirmed + 1
        found: Position | None = None
        while low < high:
            middle = (low + high) // 2
            position, payload = (await self.read(middle, 1, 1))[0]
            if is_reached(payload):
                high, found = middle, position
            else:
                low = middle + 1
        return found


def _entry(entry: bytes) -> CompactedEntry:
    ledger_id, entry_id, payload = decode_compacted(entry)
    return CompactedEntry(Position(ledger_id, entry_id), payload)
