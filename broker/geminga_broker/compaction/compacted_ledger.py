"""Reads one compacted ledger: each of its entries bears its position in the log, in order.

So a position of the log is found by a binary search over the entries of this ledger::

    entry of the compacted ledger    0     1     2     3
    position in the log             4:7   4:9   5:0   7:2
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from geminga_broker.compaction.errors import CompactedLedgerGone
from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.positions import Position
from geminga_ledger import EntryCorrupt, LedgerError, LedgerReader, Ledgers, NoSuchLedger
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.compacted_ledger import decode_compacted
from geminga_runtime.coordination import CoordinationError

# How many positions are kept. A binary search reads the same ones first each time.
POSITIONS_KEPT_MAX = 256


class CompactedEntry(NamedTuple):
    """What the log had at ``position``, or what compaction left of it."""

    position: Position
    payload: bytes


@dataclass(slots=True, eq=False)
class CompactedLedger:
    """The compacted ledger ``ledger_id``, opened when it is first read.

    All methods raise ``StorageUnavailable``, of it ``CompactedLedgerGone`` and ``EntryDamaged``.
    """

    ledgers: Ledgers
    ledger_id: int
    # The last position of the log that it stands for: what is left up to there is in it.
    horizon: Position
    # None until the first read, and again after one that failed.
    _reader: LedgerReader | None = field(default=None, init=False)
    # Of many that read at once, one opens the ledger.
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    # By entry id of this ledger: its position in the log, in the order of their reading. Never out
    # of date: a ledger in force is closed, and its entries do not change.
    _positions: dict[int, Position] = field(default_factory=dict[int, Position], init=False)
    # By position behind the last entry of a read: the entry of this ledger that comes next.
    _following: dict[Position, int] = field(default_factory=dict[Position, int], init=False)

    async def opened(self) -> LedgerReader:
        """The ledger's reader, which knows how many entries and bytes there are."""
        async with self._opening:
            # Another task may have opened it while this one waited for the lock.
            if self._reader is None:
                try:
                    self._reader = await self.ledgers.open(self.ledger_id, recover=False)
                except NoSuchLedger as error:
                    raise CompactedLedgerGone(self.ledger_id) from error
                except (LedgerError, CoordinationError) as error:
                    raise StorageUnavailable(str(error)) from error
            return self._reader

    async def read_from(
        self, position: Position, count_max: int, bytes_max: int
    ) -> list[CompactedEntry]:
        """Entries whose position is not less than ``position``, as ``read``."""
        # A reader that goes on where its last read ended needs no search. The reader asks from the
        # entry behind the last one that it got; that is how the key was made.
        index = self._following.get(position)
        if index is None:
            index = await self.index_of(position)
        entries = await self.read(index, count_max, bytes_max)
        if entries:
            ledger_id, entry_id = entries[-1].position
            self._following[Position(ledger_id, entry_id + 1)] = index + len(entries)
            if len(self._following) > POSITIONS_KEPT_MAX:
                # The oldest: most keys are of readers that have moved on.
                del self._following[next(iter(self._following))]
        return entries

    async def read(self, first: int, count_max: int, bytes_max: int) -> list[CompactedEntry]:
        """Entries from the ``first`` on, as many as are there and fit; empty at the end."""
        # A compacted ledger is closed before it is in force: its end does not move.
        last = min(first + count_max - 1, (await self.opened()).last_confirmed)
        if last < first:
            return []
        return await self._ask(lambda reader: reader.read(first, last, bytes_max=bytes_max))

    async def _ask(
        self, question: Callable[[LedgerReader], Awaitable[list[bytes]]]
    ) -> list[CompactedEntry]:
        reader = await self.opened()
        try:
            decoded = [decode_compacted(each) for each in await question(reader)]
            return [
                CompactedEntry(Position(ledger_id, entry_id), payload)
                for ledger_id, entry_id, payload in decoded
            ]
        except (EntryCorrupt, MalformedRecord) as error:
            raise EntryDamaged(f"compacted ledger {self.ledger_id}: {error}") from error
        except NoSuchLedger as error:
            raise CompactedLedgerGone(self.ledger_id) from error
        except (LedgerError, CoordinationError) as error:
            # Opened anew for the next read: its bookies may have been replaced.
            self._reader = None
            raise StorageUnavailable(str(error)) from error

    async def last(self) -> CompactedEntry | None:
        """The entry with the greatest position; None where all was compacted away."""
        last = (await self.opened()).last_confirmed
        # A read gives at least one entry, however small its limit of bytes.
        return None if last < 0 else (await self.read(last, 1, 1))[0]

    async def index_of(self, position: Position) -> int:
        """The first entry of this ledger whose position is not less than ``position``; behind the
        last where there is none."""
        low, high = 0, (await self.opened()).last_confirmed + 1
        while low < high:
            middle = (low + high) // 2
            found = self._positions.get(middle)
            if found is None:
                found = await self._read_position(middle)
            if found < position:
                low = middle + 1
            else:
                high = middle
        return low

    async def _read_position(self, index: int) -> Position:
        """Read the position of an entry from its start: payloads may be megabytes."""
        # The position stands in front of the payload (``RawMessage``).
        (entry,) = await self._ask(lambda reader: reader.peek(index))
        if len(self._positions) >= POSITIONS_KEPT_MAX:
            del self._positions[next(iter(self._positions))]
        self._positions[index] = entry.position
        return entry.position

    async def first_where(self, is_reached: Callable[[bytes], bool]) -> Position | None:
        """The position of the first entry whose payload fulfils a condition that stays true once
        it is; None where no entry does."""
        # Unlike ``index_of`` it reads whole entries: the condition may need any part of them.
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
