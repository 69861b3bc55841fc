"""Proves that a log's record is Pulsar's, keeps what we do not use, and belongs to one owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geminga_broker.errors import TopicExists
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.records.log_store import GARBAGE_PROPERTY, LogStore
from geminga_protocol.records.managed_ledgers_pb2 import OffloadContext
from geminga_protocol.records.topics.managed_ledger import (
    LedgerRecord,
    ManagedLedgerRecord,
    managed_ledger_path,
)
from geminga_runtime.coordination import Coordination, NodeMissing, VersionMismatch

LOG = "t/n/persistent/topic"
CLOSED = LedgerSpan(3, entries=7, size_bytes=700, closed_at_ms=5)
OPEN = LedgerSpan(9, entries=2, size_bytes=20)
OFFLOAD = OffloadContext(uidMsb=1, uidLsb=2, complete=True).SerializeToString()


async def stored(coordination: Coordination) -> ManagedLedgerRecord:
    return ManagedLedgerRecord.decode((await coordination.get(managed_ledger_path(LOG)))[0])


async def test_a_closed_ledger_is_stored_with_its_size_and_an_open_one_without(
    coordination: Coordination,
) -> None:
    await LogStore(coordination, LOG).create((CLOSED, OPEN), {"colour": "red"})
    record = await stored(coordination)
    assert record.ledgers == (
        LedgerRecord(3, entries=7, size_bytes=700, closed_at_ms=5),
        LedgerRecord(9, entries=None, size_bytes=None, closed_at_ms=0),
    )
    assert record.properties == {"colour": "red"}


async def test_what_was_stored_is_loaded(coordination: Coordination) -> None:
    await LogStore(coordination, LOG).create((CLOSED, OPEN), {"colour": "red"})
    store = LogStore(coordination, LOG)
    assert await store.load() == [CLOSED, LedgerSpan(9)]
    assert store.properties == {"colour": "red"}


async def test_a_log_is_made_once(coordination: Coordination) -> None:
    await LogStore(coordination, LOG).create((), {})
    with pytest.raises(TopicExists):
        await LogStore(coordination, LOG).create((), {})


async def test_a_log_that_is_not_there_is_not_loaded(coordination: Coordination) -> None:
    with pytest.raises(NodeMissing):
        await LogStore(coordination, LOG).load()


async def test_saving_keeps_properties_offloaded_ledgers_and_where_the_log_ends(
    coordination: Coordination,
) -> None:
    theirs = ManagedLedgerRecord(
        ledgers=(LedgerRecord(3, 7, 700, 5, offload=OFFLOAD), LedgerRecord(9, 2, 20, 6)),
        terminated_at=(9, 1),
        properties={"colour": "red"},
    )
    await coordination.create(managed_ledger_path(LOG), theirs.encode(), make_parents=True)
    store = LogStore(coordination, LOG)
    await store.save(await store.load())
    assert await stored(coordination) == theirs


async def test_a_record_that_another_broker_changed_is_not_overwritten(
    coordination: Coordination, meddle: Callable[[str, bytes], None]
) -> None:
    store = LogStore(coordination, LOG)
    await store.create((), {})
    meddle(managed_ledger_path(LOG), b"")
    with pytest.raises(VersionMismatch):
        await store.save((OPEN,))


async def test_deleting_takes_the_cursors_records_along(
    coordination: Coordination, tree: Callable[[], dict[str, bytes]]
) -> None:
    store = LogStore(coordination, LOG)
    await store.create((), {})
    await coordination.create(f"{managed_ledger_path(LOG)}/sub", b"")
    await store.delete()
    assert not [path for path in tree() if path.startswith(managed_ledger_path(LOG))]


async def test_dropped_ledgers_are_listed_until_the_record_is_written_without_them(
    coordination: Coordination,
) -> None:
    store = LogStore(coordination, LOG)
    await store.create((CLOSED, OPEN), {"colour": "red"})
    await store.save((OPEN,), dropped=(3, 2))
    again = LogStore(coordination, LOG)
    await again.load()
    assert again.garbage == (3, 2)
    assert again.properties == {"colour": "red"}
    again.garbage = (2,)
    await again.save((OPEN,))
    await store.load()
    assert store.garbage == (2,)


async def test_a_record_that_was_not_written_drops_nothing(
    coordination: Coordination, meddle: Callable[[str, bytes], None]
) -> None:
    store = LogStore(coordination, LOG)
    await store.create((CLOSED, OPEN), {})
    meddle(managed_ledger_path(LOG), b"")
    with pytest.raises(VersionMismatch):
        await store.save((OPEN,), dropped=(3,))
    assert store.garbage == ()


@pytest.mark.parametrize("listed", ["", ",", "x", "1,,x,-2,٣,2 "])
async def test_a_damaged_list_of_garbage_names_only_numbers(
    coordination: Coordination, listed: str
) -> None:
    record = ManagedLedgerRecord(properties={GARBAGE_PROPERTY: listed})
    await coordination.create(managed_ledger_path(LOG), record.encode(), make_parents=True)
    store = LogStore(coordination, LOG)
    await store.load()
    assert store.garbage in ((), (1,))


async def test_an_offloaded_ledger_is_known_as_such(coordination: Coordination) -> None:
    record = ManagedLedgerRecord(ledgers=(LedgerRecord(3, 7, 700, 5, offload=OFFLOAD),))
    await coordination.create(managed_ledger_path(LOG), record.encode(), make_parents=True)
    assert (await LogStore(coordination, LOG).load())[0].is_offloaded
