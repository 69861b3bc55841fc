"""Proves that a ledger is opened once while it is read, however it grows, and few stay open."""

from __future__ import annotations

from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.chain import LedgerSpan
from geminga_broker.managed_ledger.readers import READERS_MAX, Readers
from geminga_ledger import EntryCorrupt, Ledgers, NoSuchLedger
from geminga_runtime.coordination import ConnectionLost


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """Twenty ledgers of two entries."""
    ledgers = MemoryLedgers()
    ledgers.entries = {ledger_id: [b"a", b"b"] for ledger_id in range(20)}
    return ledgers


@pytest.fixture
def readers(ledgers: MemoryLedgers) -> Readers:
    """The readers of one log."""
    return Readers(cast(Ledgers, ledgers))


async def read(readers: Readers, ledger_id: int, first: int = 0, last: int = 1) -> list[bytes]:
    span = LedgerSpan(ledger_id, entries=last + 1)
    return await readers.read(span, range(first, last + 1), bytes_max=1000)


async def test_a_ledger_that_grows_is_not_opened_again(
    readers: Readers, ledgers: MemoryLedgers
) -> None:
    assert await read(readers, 3) == [b"a", b"b"]
    for number in range(2, 5):
        ledgers.entries[3].append(b"%d" % number)
        assert await read(readers, 3, number, number) == [b"%d" % number]
    assert ledgers.opened == [3]


async def test_the_reader_longest_unused_makes_room(
    readers: Readers, ledgers: MemoryLedgers
) -> None:
    for ledger_id in range(READERS_MAX):
        await read(readers, ledger_id)
    await read(readers, 0)
    await read(readers, READERS_MAX)
    assert len(readers) == READERS_MAX
    ledgers.opened.clear()
    await read(readers, 0)
    assert ledgers.opened == []
    await read(readers, 1)
    assert ledgers.opened == [1]


@pytest.mark.parametrize("error", [ConnectionLost("get"), NoSuchLedger(3)])
async def test_what_cannot_be_opened_is_unavailable_and_asked_for_again(
    readers: Readers, ledgers: MemoryLedgers, error: ConnectionLost | NoSuchLedger
) -> None:
    ledgers.open_error = error
    with pytest.raises(StorageUnavailable, match=str(error)):
        await read(readers, 3)
    ledgers.open_error = None
    assert await read(readers, 3) == [b"a", b"b"]


async def test_an_entry_without_a_whole_copy_is_told_from_storage_that_is_away(
    readers: Readers, ledgers: MemoryLedgers
) -> None:
    ledgers.open_error = EntryCorrupt(3, 1)
    with pytest.raises(EntryDamaged, match="every copy of entry 1 in ledger 3"):
        await read(readers, 3)


async def test_a_reader_that_failed_is_not_kept(readers: Readers, ledgers: MemoryLedgers) -> None:
    await read(readers, 3)
    with pytest.raises(StorageUnavailable):
        await readers.read(LedgerSpan(3, entries=2), [7], bytes_max=10)
    await read(readers, 3)
    assert ledgers.opened == [3, 3]


async def test_a_forgotten_reader_is_opened_anew(readers: Readers, ledgers: MemoryLedgers) -> None:
    await read(readers, 3)
    readers.forget(3)
    readers.forget(4)
    await read(readers, 3)
    assert ledgers.opened == [3, 3]
