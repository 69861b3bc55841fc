"""Proves that stamps are upstream's to the byte, and that a log's index goes on, whatever comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    QUIET,
    MemoryLedgers,
    NotedListener,
    pending,
)

from geminga_broker.errors import EntryDamaged, NotAllowed
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.managed_ledger.writing.broker_entry_metadata import (
    NO_INDEX,
    BrokerEntryFields,
    BrokerEntryMetadata,
    index_of,
)
from geminga_ledger import AppendTimedOut, Ledgers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, skip_broker_entry
from geminga_protocol.records.topics.managed_ledger import ManagedLedgerRecord, managed_ledger_path
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import WALL_START_MS, SimulatedClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

Settle = Callable[[], Awaitable[None]]
ALL = BrokerEntryFields(time=True, index=True)
INDEX = BrokerEntryFields(index=True)
OFF = BrokerEntryFields()
# The beginnings of four entries that Apache Pulsar 4.0.6 stored: single messages and batches of
# three and of five, with the broker's time, the number of messages, and the index.
STORED_BY_PULSAR = [
    ("0e020000000908b49a99f79f341000", 1_795_277_868_340, 1, 0),
    ("0e020000000908e59c99f79f341003", 1_795_277_868_645, 3, 3),
    ("0e020000000908959f99f79f341004", 1_795_277_868_949, 1, 4),
    ("0e020000000908c6a199f79f341009", 1_795_277_869_254, 5, 9),
]


def item(messages: int, payload: bytes = b"payload") -> AppendRequest:
    return payload, messages, QUIET, 0, 0


def test_stamps_are_those_of_pulsar_to_the_byte() -> None:
    clock = SimulatedClock()
    stamps = BrokerEntryMetadata(ALL, clock)
    stored: list[bytes] = []
    for _, time_ms, messages, _ in STORED_BY_PULSAR:
        clock.set_wall(time_ms)
        stamps.append([item(messages)], lambda items: stored.extend(each[0] for each in items))
    assert [each.hex() for each in stored] == [
        head + b"payload".hex() for head, *_ in STORED_BY_PULSAR
    ]
    assert [index_of(each) for each in stored] == [index for *_, index in STORED_BY_PULSAR]
    assert {skip_broker_entry(each, 0, len(each)) for each in stored} == {15}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (BrokerEntryFields(time=True), api.BrokerEntryMetadata(broker_timestamp=1)),
        (INDEX, api.BrokerEntryMetadata(index=1)),
    ],
)
def test_only_what_is_wanted_is_written(
    kinds: BrokerEntryFields, expected: api.BrokerEntryMetadata
) -> None:
    stored: list[AppendRequest] = []
    BrokerEntryMetadata(kinds, SimulatedClock(skew_ms=1 - WALL_START_MS)).append(
        [item(2)], stored.extend
    )
    assert stored[0] == (encode_broker_entry(expected) + b"payload", 2, QUIET, 0, 0)


def test_a_marker_has_an_index_of_its_own() -> None:
    stamps = BrokerEntryMetadata(INDEX, SimulatedClock())
    stamps.append([item(3), item(0), item(1)], lambda _: None)
    assert stamps.index == 4


class NoReaders:
    """No part reads the log."""

    def cursors(self) -> list[Cursor]:
        return []

    def reads_from(self) -> Position | None:
        return None


@dataclass
class Cluster:
    """Ledgers and ZooKeeper, which outlive the brokers on them."""

    session: Callable[[str], Coordination]
    settle: Settle
    ledgers: MemoryLedgers = field(default_factory=MemoryLedgers)
    number: int = 0

    @asynccontextmanager
    async def log(
        self,
        kinds: BrokerEntryFields = ALL,
        *,
        is_killed: bool = False,
        config: ManagedLedgerConfig | None = None,
    ) -> AsyncGenerator[ManagedLedger, None]:
        """The log in the hands of the next broker, which closes it, or ``is_killed``."""
        self.number += 1
        factory = ManagedLedgerFactory(
            coordination=self.session(f"broker-{self.number}"),
            ledgers=cast(Ledgers, self.ledgers),
            cache=EntryCache(CacheConfig()),
            clock=SimulatedClock(),
            random=Random(1),
            config=config or ManagedLedgerConfig(retry_first_s=0.1, retry_limit_s=0.1),
            stamps=kinds,
        )
        log = factory.log(LOG, NotedListener(), create_with={})
        await log.__aenter__()
        yield log
        await self.settle()
        if is_killed:
            log.fence()
        await log.__aexit__(None, None, None)

    def indexes(self) -> list[int]:
        """Those of all entries, in the order of the log."""
        stored = [each for ledger in sorted(self.ledgers.entries.items()) for each in ledger[1]]
        return [index_of(each) for each in stored]


@pytest.fixture
def cluster(session: Callable[[str], Coordination], settle: Settle) -> Cluster:
    return Cluster(session, settle)


async def noted_index(coordination: Coordination) -> str:
    """What the log's record says."""
    value, _ = await coordination.get(managed_ledger_path(LOG))
    return dict(ManagedLedgerRecord.decode(value).properties)["index"]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_the_next_broker_goes_on_where_the_last_one_stopped(
    cluster: Cluster, *, is_killed: bool
) -> None:
    for _ in range(3):
        async with cluster.log(is_killed=is_killed) as log:
            log.append_all([item(1), item(3)])
            log.append_all([item(5)])
    assert cluster.indexes() == [0, 3, 8, 9, 12, 17, 18, 21, 26]


async def test_the_record_tells_the_index_where_the_last_ledger_is_empty(
    cluster: Cluster, coordination: Coordination, settle: Settle
) -> None:
    async with cluster.log() as log:
        assert await noted_index(coordination) == "-1"
        log.append_all([item(7)])
        await settle()
        await log.roll_over()
        assert await noted_index(coordination) == "6"
        log.trimmer.readership = NoReaders()
        log.trimmer.trim_soon()
        await log.truncate()
    assert cluster.indexes() == []
    async with cluster.log(is_killed=True) as log:
        log.append_all([item(1)])
    assert cluster.indexes() == [7]


async def test_an_owner_that_only_opens_the_log_leaves_the_index_in_its_record(
    cluster: Cluster, coordination: Coordination, settle: Settle
) -> None:
    """It writes the record where it finds the end of the last ledger, before it knows the index."""
    async with cluster.log(is_killed=True) as log:
        log.append_all([item(7)])
        await settle()
        await log.roll_over()
        log.trimmer.readership = NoReaders()
        log.trimmer.trim_soon()
        await log.truncate()
    async with cluster.log(is_killed=True):
        assert await noted_index(coordination) == "6"
    async with cluster.log() as log:
        log.append_all([item(1)])
    assert cluster.indexes() == [7]


async def test_an_index_that_was_turned_off_goes_on_when_it_is_turned_on_again(
    cluster: Cluster,
) -> None:
    for kinds in (OFF, INDEX, OFF, OFF, BrokerEntryFields(time=True), ALL):
        async with cluster.log(kinds, is_killed=kinds == INDEX) as log:
            log.append_all([item(1), item(3)])
    nothing = [NO_INDEX, NO_INDEX]
    assert cluster.indexes() == [*nothing, 0, 3, *nothing, *nothing, *nothing, 4, 7]


async def test_a_log_that_never_had_an_index_is_not_searched(cluster: Cluster) -> None:
    for _ in range(3):
        async with cluster.log(OFF) as log:
            log.append_all([item(1)])
    opened = len(cluster.ledgers.opened)
    async with cluster.log(INDEX) as log:
        assert log.stamps is not None
        assert log.stamps.index == -1
        assert len(cluster.ledgers.opened) - opened <= 1


async def test_what_is_refused_leaves_no_gap(cluster: Cluster) -> None:
    async with cluster.log() as log:
        log.append_all([item(1)])
        with pytest.raises(NotAllowed):
            log.append_all([item(9), item(1, bytes(cluster.ledgers.entry_bytes_max + 1))])
        log.append_all([item(1)])
    assert cluster.indexes() == [0, 1]


async def test_entries_sent_again_to_another_ledger_keep_their_stamps(
    cluster: Cluster, settle: Settle
) -> None:
    cluster.ledgers.is_prompt = False
    async with cluster.log() as log:
        log.append_all(pending(b"a", b"b"))
        cluster.ledgers.is_prompt = True
        cluster.ledgers.writers[0].fail(AppendTimedOut(0, 0, 1.0))
        log.append_all(pending(b"c"))
        await settle()
    assert cluster.indexes() == [0, 1, 2]
    stored = cluster.ledgers.entries[1]
    assert [skip_broker_entry(each, 0, len(each)) for each in stored] == [15, 15, 15]


async def test_a_damaged_entry_counts_as_one_message(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.log() as log:
        log.append_all([item(5), item(1), item(1)])
        honest = LogReader.read

        async def failing(reader: LogReader, position: Position, count_max: int) -> list[Entry]:
            if position[1] > 0:
                raise EntryDamaged(f"{position} is damaged")
            return await honest(reader, position, count_max)

        monkeypatch.setattr(LogReader, "read", failing)
        await cluster.settle()
        again = BrokerEntryMetadata(INDEX, SimulatedClock())
        await again.recover(log)
        assert again.index == 6


async def test_entries_of_a_deleted_ledger_count_as_one_message_each(
    cluster: Cluster, settle: Settle
) -> None:
    async with cluster.log() as log:
        log.append_all([item(5)])
        await settle()
        await log.roll_over()
        log.append_all([item(1), item(1)])
    del cluster.ledgers.entries[1]
    async with cluster.log() as log:
        await BrokerEntryMetadata(INDEX, SimulatedClock()).recover(log)
        log.append_all([item(1)])
    assert cluster.indexes() == [4, 7]


async def test_senders_are_told_to_look_at_stamped_entries_and_only_at_those(
    cluster: Cluster, settle: Settle
) -> None:
    for kinds, count in ((OFF, 5), (ALL, 0)):
        async with cluster.log(kinds) as log:
            log.append_all([item(5)])
            await settle()
            (entry,) = log.reader.cached.run(log.chain.last_confirmed, 1)
            assert entry[2] == count
