"""Proves that a compacted ledger is read from any place of the log, and searched once a pass."""

from __future__ import annotations

from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, MemoryReader

from geminga_broker.compaction.compacted_ledger import CompactedLedger
from geminga_broker.managed_ledger.positions import LATEST, Position
from geminga_ledger import Ledgers
from geminga_protocol.records.topics.compacted_ledger import encode_compacted

LEDGER = 9
# Where the log had what was left of it.
PLACES = [Position(3, 4), Position(3, 5), Position(3, 9), Position(5, 0), Position(5, 7)]


class CountingReader(MemoryReader):
    """Counts the entries that are looked at to find a place."""

    peeks = 0

    async def peek(self, entry_id: int) -> list[bytes]:
        self.peeks += 1
        return await super().peek(entry_id)


class CountingLedgers(MemoryLedgers):
    """Has one compacted ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = CountingReader(
            LEDGER,
            [encode_compacted(*place, b"payload %d" % place[1], partition=-1) for place in PLACES],
        )

    async def open(self, ledger_id: int, *, recover: bool) -> MemoryReader:
        assert (ledger_id, recover) == (LEDGER, False)
        return self.reader


@pytest.fixture
def ledgers() -> CountingLedgers:
    return CountingLedgers()


@pytest.fixture
def compacted(ledgers: CountingLedgers) -> CompactedLedger:
    return CompactedLedger(cast(Ledgers, ledgers), LEDGER, LATEST)


@pytest.mark.parametrize("ledger_id", range(2, 7))
@pytest.mark.parametrize("entry_id", range(11))
async def test_reading_begins_with_the_first_that_is_not_before_a_place(
    compacted: CompactedLedger, ledger_id: int, entry_id: int
) -> None:
    at = Position(ledger_id, entry_id)
    found = await compacted.read_from(at, 2, 1000)
    assert [each.position for each in found] == [each for each in PLACES if each >= at][:2]
    assert all(each.payload == b"payload %d" % each.position.entry_id for each in found)


async def test_who_goes_on_is_not_searched_for(
    compacted: CompactedLedger, ledgers: CountingLedgers
) -> None:
    at, seen = Position(3, 4), list[Position]()
    peeks: list[int] = []
    while found := await compacted.read_from(at, 2, 1000):
        seen += [each.position for each in found]
        at = Position(seen[-1].ledger_id, seen[-1].entry_id + 1)
        peeks.append(ledgers.reader.peeks)
    assert seen == PLACES
    assert peeks == [peeks[0]] * 3
