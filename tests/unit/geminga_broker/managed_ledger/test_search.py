"""Proves that a search finds the first entry that fulfils a condition, with few reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from geminga_broker.managed_ledger.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position
from geminga_broker.managed_ledger.search import first_position_where, read_one


class NumberedLog:
    """Entry n of the log, over ``ledgers`` of so many entries, holds the number n."""

    def __init__(self, ledgers: Sequence[int], *, cached_from: int = 0) -> None:
        self.chain = LedgerChain(LedgerSpan(3 + number, n) for number, n in enumerate(ledgers))
        self.cached_from = cached_from
        self.reads = 0

    def _number(self, position: Position) -> int:
        before = [span.entries for span in self.chain.spans if span.ledger_id < position[0]]
        return sum(before) + position[1]

    def _entry(self, position: Position) -> list[Entry]:
        return [(position[1], b"%d" % self._number(position), 1)]

    def cached_run(self, position: Position, count_max: int) -> list[Entry]:
        assert count_max == 1
        return self._entry(position) if self._number(position) >= self.cached_from else []

    async def read(self, position: Position, count_max: int) -> list[Entry]:
        assert count_max == 1
        self.reads += 1
        return self._entry(position)


async def search(log: NumberedLog, number: int) -> Position:
    return await first_position_where(
        cast(ManagedLedger, log), lambda payload: int(payload) >= number
    )


@pytest.mark.parametrize("ledgers", [(1,), (5,), (2, 3), (4, 0, 1, 0, 2), (0, 3, 0)])
async def test_the_first_entry_that_fulfils_the_condition_is_found(ledgers: Sequence[int]) -> None:
    log = NumberedLog(ledgers)
    everything = [
        Position(span.ledger_id, entry) for span in log.chain.spans for entry in range(span.entries)
    ]
    for number, position in enumerate(everything):
        assert await search(log, number) == position


async def test_where_no_entry_fulfils_it_the_end_of_the_log_is_found() -> None:
    assert await search(NumberedLog((2, 3)), 99) == Position(4, 3)


async def test_an_empty_log_is_all_end() -> None:
    assert await search(NumberedLog((0,)), 0) == Position(3, 0)
    assert await search(NumberedLog(()), 0) == EARLIEST._replace(entry_id=0)


async def test_a_search_reads_about_once_for_each_doubling() -> None:
    log = NumberedLog((1000, 1000), cached_from=10_000)
    await search(log, 1234)
    assert log.reads <= 12


async def test_an_entry_in_memory_is_not_read_from_a_bookie() -> None:
    log = NumberedLog((3,), cached_from=2)
    assert await read_one(cast(ManagedLedger, log), Position(3, 2)) == b"2"
    assert log.reads == 0
    assert await read_one(cast(ManagedLedger, log), Position(3, 1)) == b"1"
    assert log.reads == 1
