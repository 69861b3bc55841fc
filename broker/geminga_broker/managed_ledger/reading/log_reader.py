"""Reads one log: what is in memory first, the rest from bookies.

Everything that reads entries of a log does it here: dispatchers, compaction, the replay of
deduplication, expiry, searches by time or index, what operators look at. So it is said in one place
how far a log may be read (``readable_upto``), how much one read gives, and what a failure means.

Opening a ledger costs requests to ZooKeeper and, while it is written, to its bookies; so its reader
is kept, and told how far its ledger has grown, which the log's owner knows without asking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga_broker.errors import EntryDamaged, LedgerGone, StorageUnavailable
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, EntryId, Position
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
        "_cached",
        "_ledgers",
        "_name",
        "_readers",
        "_readers_max",
        "bytes_max",
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
        self.chain = LedgerChain()
        self.read_ahead_budget = read_ahead_budget
        # What one read asks bookies for at most; of these bytes, at least one entry.
        self.entries_max = config.read_entries_max
        self.bytes_max = config.read_bytes_max
        self._readers_max = config.readers_max
        self._name = name
        self._ledgers = ledgers
        self._cached = cached
        # By ledger, in the order of their last use.
        self._readers: dict[int, LedgerReader] = {}

    @property
    def readable_upto(self) -> Position:
        """The last entry that may be read; the gap before the first one where there is none.

        That is the last confirmed one. (Once a transaction is open, what follows its first entry
        must not be read: then this is where it is said, here and in ``readable_end``.)
        """
        return self.chain.last_confirmed

    def readable_end(self, ledger_id: int) -> int:
        """How many entries of a ledger may be read: all before this id. 0 where the log does not
        have the ledger (any more)."""
        span = self.chain.span(ledger_id)
        return 0 if span is None else span.entries

    # In memory

    def cached_run(self, position: Position, count_max: int) -> list[Entry]:
        """Entries from ``position`` on, of its ledger, in memory; empty when that one is not."""
        return self._cached.run(position, count_max)

    def cached_entries(self, ids: Sequence[EntryId]) -> list[Entry]:
        """The entries of ``ids``, of one ledger and in order, up to the first not in memory."""
        return self._cached.entries(ids)

    # Wherever they are

    async def read(self, position: Position, count_max: int) -> list[Entry]:
        """Entries from ``position`` on, all of its ledger: at least one, which must be there, and
        at most ``count_max``."""
        run = self.cached_run(position, count_max)
        if run:
            return run
        count_max = min(count_max, self.entries_max)
        return await self.fetch(position[0], range(position[1], position[1] + count_max))

    async def read_one(self, position: Position) -> bytes:
        """The payload of the entry at ``position``."""
        return (await self.read(position, 1))[0][1]

    async def fetch(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
        """The first of the entries ``entry_ids``, which grow, of one ledger: at least one.

        From bookies, for those who know that the first is not in memory; the first must be there.
        Message counts come as 0: they are not known here.
        """
        span = self.chain.span(ledger_id)
        if span is None:
            raise StorageUnavailable(f"ledger {ledger_id} of {self._name} was trimmed")
        assert entry_ids[0] < span.entries, f"{entry_ids[0]} is beyond the end of {self._name}"
        entry_ids = self._cached.missing(ledger_id, entry_ids)
        payloads = await self._ask(span, entry_ids)
        self._cached.missed(sum(map(len, payloads)))
        return [(each, payload, 0) for each, payload in zip(entry_ids, payloads, strict=False)]

    async def first_where(
        self, is_reached: Callable[[bytes], bool], *, after: Position = EARLIEST
    ) -> Position:
        """The first entry whose payload fulfils ``is_reached``, the end of the log if none does.

        Only entries ``after`` that position are looked at. The condition must stay true once it is
        (publish times that grow): about one read for each doubling of the log's length.
        """
        spans = [span for span in self.chain.spans if span.entries]
        low, high = self.chain.entries_between(EARLIEST, after), sum(each.entries for each in spans)
        while low < high:
            middle = (low + high) // 2
            if is_reached(await self.read_one(nth_of(spans, middle))):
                high = middle
            else:
                low = middle + 1
        if low < sum(each.entries for each in spans):
            return nth_of(spans, low)
        return self.chain.next_after(self.chain.last_confirmed)

    # The readers of ledgers

    async def _ask(self, span: LedgerSpan, entry_ids: Sequence[int]) -> list[bytes]:
        """Payloads of ``entry_ids``; what ``span`` says of the ledger's end is so by now."""
        ledger_id, last_confirmed, length_bytes = span.ledger_id, span.entries - 1, span.size_bytes
        try:
            reader = self._readers.get(ledger_id)
            if reader is None:
                reader = await self._ledgers.open(ledger_id, recover=False)
            self.keep(reader)
            reader.advance(last_confirmed, length_bytes)
            return await reader.read_entries(entry_ids, bytes_max=self.bytes_max)
        except (EntryCorrupt, NoSuchEntry) as error:  # no bookie has it (any more)
            raise EntryDamaged(str(error)) from error
        except NoSuchLedger as error:
            self.forget(ledger_id)
            raise LedgerGone(str(error)) from error
        except (LedgerError, CoordinationError) as error:
            self.forget(ledger_id)
            raise StorageUnavailable(str(error)) from error

    def keep(self, reader: LedgerReader) -> None:
        """Take a reader that was opened elsewhere; the one longest unused makes room."""
        self._readers.pop(reader.ledger_id, None)
        self._readers[reader.ledger_id] = reader
        if len(self._readers) > self._readers_max:
            del self._readers[next(iter(self._readers))]

    def forget(self, ledger_id: int) -> None:
        """The ledger is gone, or its reader failed: the next read opens it anew."""
        self._readers.pop(ledger_id, None)


class LogScan:
    """Reads a log once, in order, from the entry after one position up to another.

    Without ``upto`` it ends where the log does when it gets there: what is appended meanwhile is
    read too.
    """

    def __init__(self, reader: LogReader, after: Position, upto: Position | None = None) -> None:
        self._reader = reader
        self._after = after
        self._upto = upto

    async def next_run(self, count_max: int | None = None) -> tuple[int, list[Entry]] | None:
        """The next entries, of one ledger, and its id; None at the end."""
        reader = self._reader
        upto = reader.readable_upto if self._upto is None else self._upto
        position = reader.chain.next_after(self._after)
        if position > upto:
            return None
        ledger_id, first = position
        if count_max is None:
            count_max = reader.entries_max
        if ledger_id == upto[0]:
            count_max = min(count_max, upto[1] - first + 1)
        run = await reader.read(position, count_max)
        self._after = Position(ledger_id, run[-1][0])
        return ledger_id, run


def nth_of(spans: Sequence[LedgerSpan], index: int) -> Position:
    """The ``index``-th entry (from 0) of these ledgers."""
    for span in spans:
        if index < span.entries:
            return Position(span.ledger_id, index)
        index -= span.entries
    raise AssertionError(f"there are {index} entries too few")
