"""Reads one log: what is in memory first, the rest from bookies.

Everything that reads entries of a log does it here: dispatchers, compaction, the replay of
deduplication, expiry, searches by time or index, the views of operators. So one place decides how
far a log may be read (``readable_upto``), how much one read returns, and what a failure means.

Opening a ledger costs requests to ZooKeeper and, while it is written, to its bookies. So its reader
is kept, and before each read it is given the ledger's present end, which the owner of the log knows
without asking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from geminga_broker.errors import EntryDamaged, LedgerGone, StorageUnavailable
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position
from geminga_ledger import (
    EntryCorrupt,
    LedgerError,
    LedgerReader,
    Ledgers,
    NoSuchEntry,
    NoSuchLedger,
)
from geminga_runtime.coordination import CoordinationError


class LogReader:
    """Reads the log ``name``, which has the ledgers of ``chain`` from the moment it is open.

    All that waits for bookies raises ``StorageUnavailable``, also where a ledger was trimmed since
    (look where the log begins), and of it ``EntryDamaged`` and ``LedgerGone``.
    ``read_ahead_budget`` bounds what all dispatchers of the broker read ahead.
    """

    __slots__ = (
        "_ledgers",
        "_name",
        "_readers",
        "_readers_max",
        "bytes_max",
        "cached",
        "chain",
        "entries_max",
        "read_ahead_budget",
    )

    def __init__(
        self,
        name: str,
        *,
        ledgers: Ledgers,
        cached: LogCache,
        read_ahead_budget: ReadAheadBudget,
        config: ManagedLedgerConfig,
    ) -> None:
        # Set by the log when it is open. Before that, the reader of a log that is being opened
        # finds no ledger.
        self.chain = LedgerChain()
        # What of the log is in memory.
        self.cached = cached
        self.read_ahead_budget = read_ahead_budget
        # What one read asks bookies for at most. An entry larger than ``bytes_max`` comes alone.
        self.entries_max = config.read_entries_max
        self.bytes_max = config.read_bytes_max
        self._readers_max = config.readers_max
        self._name = name
        self._ledgers = ledgers
        # Open readers by ledger, in the order of their last use. Each is used by any number of
        # reads at once; one that is dropped here is freed with its last read.
        self._readers: dict[int, LedgerReader] = {}

    @property
    def readable_upto(self) -> Position:
        """The last entry that may be read; the gap before the first one where there is none.

        That is the last confirmed one. (With transactions, what follows the first entry of an open
        one would not be readable; this property and ``readable_end`` would have to say so.)
        """
        return self.chain.last_confirmed

    def readable_end(self, ledger_id: int) -> int:
        """How many entries of a ledger may be read: all before this id. 0 where the log does not
        have the ledger (any more)."""
        span = self.chain.span(ledger_id)
        return 0 if span is None else span.entries

    async def read(self, position: Position, count_max: int) -> list[Entry]:
        """Entries from ``position`` on, all of its ledger: at least one, which must be there, and
        at most ``count_max``."""
        # What is in memory costs nothing to return, so ``entries_max`` does not limit it. Memory
        # first in every case: also in the middle of a long read from bookies, where the cache
        # begins.
        run = self.cached.run(position, count_max)
        if run:
            return run
        count_max = min(count_max, self.entries_max)
        return await self.fetch(position[0], range(position[1], position[1] + count_max))

    async def read_one(self, position: Position) -> bytes:
        """The payload of the entry at ``position``."""
        return (await self.read(position, 1))[0][1]

    async def fetch(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
        """Read entries of one ledger from bookies: at least the first of ``entry_ids``, which
        ascend, and as many of the others as one read returns.

        For callers that know that the first is not in memory; it must be there. Message counts are
        0, since nothing was parsed here.
        """
        span = self.chain.span(ledger_id)
        if span is None:
            raise StorageUnavailable(f"ledger {ledger_id} of {self._name} was trimmed")
        # A mistake of ours: callers stay within ``readable_upto``, which never goes back.
        assert entry_ids[0] < span.entries, f"{entry_ids[0]} is beyond the end of {self._name}"
        # What is in memory behind them need not come from bookies: the next read finds it there.
        entry_ids = self.cached.missing(ledger_id, entry_ids)
        # Taken before anything is awaited: the ledger may be trimmed or grow meanwhile.
        last_confirmed, length_bytes = span.entries - 1, span.size_bytes
        try:
            reader = self._readers.get(ledger_id)
            if reader is None:
                # Without recovery: this broker's own writer goes on. Two reads may open the same
                # ledger at once; the later one replaces the reader of the other, which loses
                # nothing but the open.
                reader = await self._ledgers.open(ledger_id, recover=False)
            # On every read, as this is the order of the last use.
            self.keep(reader)
            # It was opened when the ledger was shorter, or by the word of bookies that lag behind.
            reader.advance(last_confirmed, length_bytes)
            payloads = await reader.read_entries(entry_ids, bytes_max=self.bytes_max)
        except (EntryCorrupt, NoSuchEntry) as error:  # no bookie has it (any more)
            raise EntryDamaged(str(error)) from error
        except NoSuchLedger as error:
            self.forget(ledger_id)
            raise LedgerGone(str(error)) from error
        except (LedgerError, CoordinationError) as error:
            self.forget(ledger_id)
            raise StorageUnavailable(str(error)) from error
        # ``payloads`` may be fewer than was asked for: one read is bounded by bytes, too.
        self.cached.cache.missed_bytes += sum(map(len, payloads))
        return [(each, payload, 0) for each, payload in zip(entry_ids, payloads, strict=False)]

    async def first_where(
        self, is_reached: Callable[[bytes], bool], *, after: Position = EARLIEST
    ) -> Position:
        """The first entry whose payload fulfils ``is_reached``, the end of the log if none does.

        That is the end which the log had when the search began: an entry that is appended
        meanwhile was not looked at, so the position is not behind it.

        Only entries ``after`` the given position are considered. A binary search, so the condition
        must stay true once it is (publish times that grow); it reads one entry for each doubling
        of the log's length.
        """
        # A list of the log as it is now: what is appended or trimmed meanwhile must not shift the
        # numbers. An entry that was trimmed makes the search fail. Only the last of these may grow
        # meanwhile, behind all that is searched.
        spans = [span for span in self.chain.spans if span.entries]
        last_searched = self.chain.last_confirmed
        count = sum(each.entries for each in spans)
        low, high = self.chain.entries_between(EARLIEST, after), count
        while low < high:
            middle = (low + high) // 2
            if is_reached(await self.read_one(nth_of(spans, middle))):
                high = middle
            else:
                low = middle + 1
        if low < count:
            return nth_of(spans, low)
        # Not the present end: the log may have got another ledger, with entries that the search did
        # not look at.
        return self.chain.next_after(last_searched)

    # The readers of ledgers

    def keep(self, reader: LedgerReader) -> None:
        """Keep an open reader as the one used last; the one longest unused is dropped for it."""
        self._readers.pop(reader.ledger_id, None)
        self._readers[reader.ledger_id] = reader
        if len(self._readers) > self._readers_max:
            del self._readers[next(iter(self._readers))]

    def forget(self, ledger_id: int) -> None:
        """Drop the reader of a ledger that is gone, or failed: the next read opens it anew."""
        self._readers.pop(ledger_id, None)


@dataclass(slots=True, eq=False)
class LogScan:
    """Reads a log once, in order, from the entry after one position up to another."""

    reader: LogReader
    # The last entry that was read, at first the position before the scan.
    after: Position
    # The last entry to read. None for the end that the log has when the scan arrives there: what is
    # appended meanwhile is read too.
    upto: Position | None = None

    async def next_run(self, count_max: int | None = None) -> tuple[int, list[Entry]] | None:
        """The next entries, of one ledger, and its id; None at the end."""
        reader = self.reader
        upto = reader.readable_upto if self.upto is None else self.upto
        # Empty ledgers, and those that were trimmed since, are skipped.
        position = reader.chain.next_after(self.after)
        if position > upto:
            return None
        ledger_id, first = position
        if count_max is None:
            count_max = reader.entries_max
        if ledger_id == upto[0]:
            # A limit within this ledger only: the run never goes beyond the ledger in any case.
            count_max = min(count_max, upto[1] - first + 1)
        run = await reader.read(position, count_max)
        self.after = Position(ledger_id, run[-1][0])
        return ledger_id, run


def nth_of(spans: Sequence[LedgerSpan], index: int) -> Position:
    """The ``index``-th entry (from 0) of these ledgers."""
    for span in spans:
        if index < span.entries:
            return Position(span.ledger_id, index)
        index -= span.entries
    # Callers have counted the entries: the index is one of them.
    raise AssertionError(f"there are {index} entries too few")
