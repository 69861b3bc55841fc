"""Proves what reading a log costs and gives: a ledger is opened once while it is read, however it
grows, and few stay open; memory comes before bookies; a search reads little, a scan everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from unittest.mock import Mock

import pytest
from tests.unit.geminga_broker.clients_and_logs import MemoryLog
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.errors import EntryDamaged, LedgerGone, StorageUnavailable
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader, LogScan
from geminga_ledger import EntryCorrupt, Ledgers, NoSuchEntry, NoSuchLedger
from geminga_runtime.coordination import ConnectionLost

CONFIG = ManagedLedgerConfig()


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """Twenty ledgers of two entries."""
    ledgers = MemoryLedgers()
    ledgers.entries = {ledger_id: [b"a", b"b"] for ledger_id in range(20)}
    return ledgers


@pytest.fixture
def cached() -> LogCache:
    """What of the log is in memory: nothing yet."""
    return LogCache(EntryCache(CacheConfig()), Mock())


@pytest.fixture
def reader(ledgers: MemoryLedgers, cached: LogCache) -> LogReader:
    """The reader of the log that has all these ledgers."""
    reader = LogReader(
        "log",
        ledgers=cast(Ledgers, ledgers),
        cached=cached,
        read_ahead_budget=ReadAheadBudget(0),
        config=CONFIG,
    )
    reader.chain = LedgerChain(LedgerSpan(ledger_id, entries=2) for ledger_id in range(20))
    return reader


async def read(reader: LogReader, ledger_id: int, first: int = 0) -> list[bytes]:
    return [payload for _, payload, _ in await reader.read(Position(ledger_id, first), 2)]


async def test_a_ledger_that_grows_is_not_opened_again(
    reader: LogReader, ledgers: MemoryLedgers
) -> None:
    assert await read(reader, 3) == [b"a", b"b"]
    span = reader.chain.span(3)
    assert span is not None
    for number in range(2, 5):
        ledgers.entries[3].append(b"%d" % number)
        span.entries += 1
        assert await read(reader, 3, number) == [b"%d" % number]
    assert ledgers.opened == [3]


async def test_the_reader_longest_unused_makes_room(
    reader: LogReader, ledgers: MemoryLedgers
) -> None:
    for ledger_id in range(CONFIG.readers_max):
        await read(reader, ledger_id)
    await read(reader, 0)
    await read(reader, CONFIG.readers_max)
    ledgers.opened.clear()
    await read(reader, 0)
    assert ledgers.opened == []
    await read(reader, 1)
    assert ledgers.opened == [1]


@pytest.mark.parametrize("error", [ConnectionLost("get"), NoSuchLedger(3)])
async def test_what_cannot_be_opened_is_unavailable_and_asked_for_again(
    reader: LogReader, ledgers: MemoryLedgers, error: ConnectionLost | NoSuchLedger
) -> None:
    ledgers.open_error = error
    with pytest.raises(StorageUnavailable, match=str(error)):
        await read(reader, 3)
    ledgers.open_error = None
    assert await read(reader, 3) == [b"a", b"b"]


async def test_an_entry_without_a_whole_copy_is_told_from_storage_that_is_away(
    reader: LogReader, ledgers: MemoryLedgers
) -> None:
    ledgers.open_error = EntryCorrupt(3, 1)
    with pytest.raises(EntryDamaged, match="every copy of entry 1 in ledger 3"):
        await read(reader, 3)


async def test_an_entry_that_no_bookie_has_any_more_is_told_from_storage_that_is_away(
    reader: LogReader, ledgers: MemoryLedgers
) -> None:
    ledgers.open_error = NoSuchEntry(3, 1)
    with pytest.raises(EntryDamaged, match="there is no entry 1 in ledger 3"):
        await read(reader, 3)


async def test_a_ledger_that_is_gone_is_told_from_storage_that_is_away(
    reader: LogReader, ledgers: MemoryLedgers
) -> None:
    ledgers.open_error = NoSuchLedger(3)
    with pytest.raises(LedgerGone, match="there is no ledger 3"):
        await read(reader, 3)


async def test_a_reader_that_failed_is_not_kept(
    reader: LogReader, ledgers: MemoryLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await read(reader, 3)
    with monkeypatch.context() as patch:
        failing = Mock(side_effect=NoSuchLedger(3))
        patch.setattr(reader._readers[3], "read_entries", failing, raising=False)
        with pytest.raises(StorageUnavailable):
            await read(reader, 3)
    await read(reader, 3)
    assert ledgers.opened == [3, 3]


async def test_a_forgotten_reader_is_opened_anew(reader: LogReader, ledgers: MemoryLedgers) -> None:
    await read(reader, 3)
    reader.forget(3)
    reader.forget(4)
    await read(reader, 3)
    assert ledgers.opened == [3, 3]


async def test_a_trimmed_ledger_is_not_opened(reader: LogReader, ledgers: MemoryLedgers) -> None:
    reader.chain.remove(3)
    with pytest.raises(StorageUnavailable, match="ledger 3 of log was trimmed"):
        await read(reader, 3)
    assert ledgers.opened == []
    assert (reader.readable_end(3), reader.readable_end(4)) == (0, 2)


async def test_what_is_in_memory_is_not_read_from_bookies(
    reader: LogReader, ledgers: MemoryLedgers, cached: LogCache
) -> None:
    cached.begin(19)
    cached.insert(19, [(0, b"a", 1), (1, b"b", 1)], 2, 0.0)
    assert await reader.read(Position(19, 0), 1) == [(0, b"a", 1)]
    assert await reader.read_one(Position(19, 1)) == b"b"
    assert ledgers.opened == []


async def test_one_read_asks_for_no_more_than_its_budget(reader: LogReader) -> None:
    reader.entries_max = 1
    assert await read(reader, 3) == [b"a"]


# Searching and scanning


class NumberedLog(MemoryLog):
    """Entry n of the log, over ``ledgers`` of so many entries, holds the number n."""

    def __init__(self, ledgers: Sequence[int], *, cached_from: int = 0) -> None:
        super().__init__(*((3 + number, entries) for number, entries in enumerate(ledgers)))
        self.cached_from = cached_from

    def number(self, position: Position) -> int:
        """How many entries come before this one."""
        before = [span.entries for span in self.chain.spans if span.ledger_id < position[0]]
        return sum(before) + position[1]

    def cached_run(self, position: Position, count_max: int) -> list[Entry]:
        if self.number(position) < self.cached_from:
            return []
        end = min(position[1] + count_max, self.readable_end(position[0]))
        return self.numbered(position[0], range(position[1], end))

    async def fetch(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
        self.reads += 1
        end = self.readable_end(ledger_id)
        return self.numbered(ledger_id, [each for each in entry_ids if each < end])

    def numbered(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
        return [(each, b"%d" % self.number(Position(ledger_id, each)), 1) for each in entry_ids]


async def search(log: NumberedLog, number: int) -> Position:
    return await log.first_where(lambda payload: int(payload) >= number)


LEDGERS = [(1,), (5,), (2, 3), (4, 0, 1, 0, 2), (0, 3, 0)]


@pytest.mark.parametrize("ledgers", LEDGERS)
async def test_the_first_entry_that_fulfils_the_condition_is_found(ledgers: Sequence[int]) -> None:
    log = NumberedLog(ledgers)
    everything = [
        Position(span.ledger_id, entry) for span in log.chain.spans for entry in range(span.entries)
    ]
    for number, position in enumerate(everything):
        assert await search(log, number) == position


async def test_where_no_entry_fulfils_it_the_end_of_the_log_is_found() -> None:
    assert await search(NumberedLog((2, 3)), 99) == Position(4, 3)


@pytest.mark.parametrize("ledgers", [(2, 3), (2, 0)])
async def test_entries_of_a_ledger_that_is_added_during_a_search_are_not_passed(
    ledgers: Sequence[int],
) -> None:
    log = NumberedLog(ledgers)

    def is_reached(_: bytes) -> bool:
        if log.chain.span(9) is None:
            log.chain.append(LedgerSpan(9, entries=4))
        return False

    # The first entry that was not looked at, or the end of an empty ledger before it.
    found = await log.first_where(is_reached)
    assert log.chain.entries_between(EARLIEST, log.chain.previous_of(found)) == sum(ledgers)


async def test_only_what_comes_after_a_position_is_searched() -> None:
    found = await NumberedLog((2, 3)).first_where(lambda _: True, after=Position(4, 0))
    assert found == Position(4, 1)


async def test_an_empty_log_is_all_end() -> None:
    assert await search(NumberedLog((0,)), 0) == Position(3, 0)
    assert await search(NumberedLog(()), 0) == EARLIEST._replace(entry_id=0)


async def test_a_search_reads_about_once_for_each_doubling() -> None:
    log = NumberedLog((1000, 1000), cached_from=10_000)
    await search(log, 1234)
    assert log.reads <= 12


async def scanned(scan: LogScan) -> list[int]:
    numbers: list[int] = []
    while found := await scan.next_run():
        assert found[1], "a run has an entry at least"
        numbers += [int(payload) for _, payload, _ in found[1]]
    return numbers


@pytest.mark.parametrize("ledgers", LEDGERS)
@pytest.mark.parametrize("cached_from", [0, 2, 99])
@pytest.mark.parametrize("entries_max", [1, 2, 1000])
async def test_a_scan_gives_every_entry_once_in_order(
    ledgers: Sequence[int], cached_from: int, entries_max: int
) -> None:
    log = NumberedLog(ledgers, cached_from=cached_from)
    log.entries_max = entries_max
    assert await scanned(LogScan(log, log.chain.before_first)) == list(range(sum(ledgers)))


async def test_a_scan_ends_where_it_was_told_to() -> None:
    log = NumberedLog((4, 4))
    assert await scanned(LogScan(log, Position(3, 1), Position(4, 2))) == [2, 3, 4, 5, 6]


async def test_a_scan_without_an_end_reads_what_comes_meanwhile() -> None:
    log = NumberedLog((2,))
    scan = LogScan(log, EARLIEST)
    assert await scan.next_run() is not None
    log.chain.append(LedgerSpan(9, entries=1))
    assert await scanned(scan) == [2]
