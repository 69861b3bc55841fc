"""Proves that a log deletes what is not needed, nothing else, and leaves no garbage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from random import Random
from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    NotedListener,
    pending,
)

from geminga_broker.errors import StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.internal_stats import log_stats
from geminga_broker.managed_ledger.ledger_chain.retention import FOR_EVER, Retention
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.log_store import GARBAGE_PROPERTY
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_ledger import Ledgers, NotEnoughBookies
from geminga_protocol.records.topics.managed_ledger import ManagedLedgerRecord, managed_ledger_path
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

Settle = Callable[[], Awaitable[None]]
# Two entries a ledger.
CONFIG = ManagedLedgerConfig(
    ledger_entries_max=2, ledger_age_min_s=0, retry_first_s=0.1, retry_limit_s=0.1
)


class StubbornLedgers(MemoryLedgers):
    """Ledgers that cannot be deleted while ``is_stubborn``."""

    is_stubborn = False

    async def delete(self, ledger_id: int) -> None:
        if self.is_stubborn:
            raise NotEnoughBookies(1, 0)
        await super().delete(ledger_id)


@dataclass
class Readers:
    """The log's subscriptions."""

    of_log: list[Cursor] = field(default_factory=list[Cursor])
    slowest: Position | None = None

    def cursors(self) -> list[Cursor]:
        return self.of_log

    def reads_from(self) -> Position | None:
        return self.slowest


@dataclass
class Scene:
    """A broker's logs with one log in it, and what it stands on."""

    coordination: Coordination
    clock: SimulatedClock
    ledgers: StubbornLedgers
    cache: EntryCache
    factory: ManagedLedgerFactory
    listener: NotedListener
    readers: Readers
    settle: Settle
    stack: AsyncExitStack
    log: ManagedLedger

    async def publish(self, *payloads: bytes) -> None:
        """Publish one after the other, so that each ledger takes its two."""
        for payload in payloads:
            self.log.append_all(pending(payload))
            await self.settle()

    async def cursor(self, name: str = "sub") -> Cursor:
        """A durable cursor before the first entry."""
        chain = self.log.chain
        made = await self.factory.create_cursor(LOG, name, chain, chain.before_first, {})
        self.readers.of_log.append(await self.stack.enter_async_context(made))
        return made

    async def volatile(self) -> Cursor:
        """The same, not durable."""
        chain = self.log.chain
        made = self.factory.volatile_cursor("reader", chain, chain.before_first)
        self.readers.of_log.append(await self.stack.enter_async_context(made))
        return made

    async def passed(self, cursor: Cursor, upto: Position) -> None:
        """A cursor has passed everything up to a position, and that is stored."""
        cursor.acknowledged.acknowledge_upto(upto)
        stored = DurableFuture()
        cursor.changed(stored)
        await stored

    def ids(self) -> list[int]:
        return [span.ledger_id for span in self.log.chain.spans]

    async def record(self) -> ManagedLedgerRecord:
        value, _ = await self.coordination.get(managed_ledger_path(LOG))
        return ManagedLedgerRecord.decode(value)


@pytest.fixture
async def scene(coordination: Coordination, settle: Settle) -> AsyncIterator[Scene]:
    """A new log that is followed by no subscription yet."""
    clock, ledgers, cache = SimulatedClock(), StubbornLedgers(), EntryCache(CacheConfig())
    factory = ManagedLedgerFactory(
        coordination=coordination,
        ledgers=cast(Ledgers, ledgers),
        cache=cache,
        clock=clock,
        random=Random(1),
        config=CONFIG,
    )
    listener, readers = NotedListener(), Readers()
    log = factory.log(LOG, listener, create_with={})
    async with log, AsyncExitStack() as stack:
        log.trimmer.readership = readers
        log.trimmer.trim_soon()
        yield Scene(
            coordination,
            clock,
            ledgers,
            cache,
            factory,
            listener,
            readers,
            settle,
            stack,
            log,
        )


async def test_ledgers_that_every_cursor_has_passed_are_deleted(scene: Scene) -> None:
    fast, slow = await scene.cursor("fast"), await scene.cursor("slow")
    await scene.publish(*(b"%d" % number for number in range(7)))
    assert scene.ids() == [0, 1, 2, 3]
    await scene.passed(fast, scene.log.chain.last_confirmed)
    await scene.passed(slow, Position(1, 1))
    scene.log.trimmer.trim_soon()
    await scene.settle()
    assert scene.ids() == [2, 3]
    assert [each.ledger_id for each in (await scene.record()).ledgers] == [2, 3]
    assert not {0, 1} & set(scene.ledgers.entries), "beside the log's are the cursors' ledgers"
    assert scene.log.reader.cached.run(Position(1, 0), 1) == []
    assert slow.backlog_entries == 3


async def test_what_a_cursor_would_need_again_after_a_crash_is_not_deleted(scene: Scene) -> None:
    """It has passed two ledgers and stored nothing of that, then goes back into the second."""
    cursor = await scene.cursor()
    await scene.publish(*(b"%d" % number for number in range(5)))
    cursor.acknowledged.acknowledge_upto(Position(1, 1))
    await scene.log.trimmer.trim()
    assert scene.ids() == [0, 1, 2]
    await scene.passed(cursor, Position(1, 1))
    cursor.acknowledged.reset(Position(1, 0))
    await scene.log.trimmer.trim()
    assert scene.ids() == [1, 2]


async def test_a_cursor_that_leaves_a_ledger_has_it_trimmed(scene: Scene) -> None:
    cursor = await scene.cursor()
    cursor.on_ledger_left = scene.log.trimmer.trim_soon
    await scene.publish(b"a", b"b", b"c")
    cursor.acknowledged.acknowledge_upto(Position(0, 0))
    cursor.changed(lambda _: None)  # a caller waits for it: it is written at once
    await scene.settle()
    assert scene.ids() == [0, 1]
    cursor.acknowledged.acknowledge_upto(Position(1, 0))
    cursor.changed(lambda _: None)
    await scene.settle()
    assert scene.ids() == [1]


async def test_a_log_without_durable_cursors_is_trimmed_as_it_turns_over(scene: Scene) -> None:
    await scene.volatile()
    await scene.publish(*(b"%d" % number for number in range(7)))
    assert scene.ids() == [3]
    assert scene.log.chain.last_confirmed == Position(3, 0)


async def test_a_cursor_that_is_not_durable_goes_on_behind_what_is_gone(scene: Scene) -> None:
    reader = await scene.volatile()
    await scene.publish(b"a", b"b", b"c")
    assert reader.mark_delete == Position(0, 1)
    assert reader.backlog_entries == 1


async def test_before_all_cursors_are_known_nothing_goes(
    coordination: Coordination, scene: Scene
) -> None:
    del coordination
    other = scene.factory.log("t/n/persistent/other", NotedListener(), create_with={})
    async with other:
        for _ in range(5):
            other.append_all(pending(b"x"))
            await scene.settle()
        await other.trimmer.trim()
        other.sweep()
        await scene.settle()
        assert len(other.chain.spans) == 3
        other.trimmer.readership = Readers()
        other.trimmer.trim_soon()
        await scene.settle()
        assert len(other.chain.spans) == 1


async def test_retention_by_time_ends_without_anything_happening_to_the_log(scene: Scene) -> None:
    scene.log.trimmer.retention = Retention(60_000, FOR_EVER)
    await scene.publish(b"a", b"b", b"c")
    scene.clock.advance(60)
    scene.log.sweep()
    await scene.settle()
    assert scene.ids() == [0, 1]
    scene.clock.advance(1)
    scene.log.sweep()
    await scene.settle()
    assert scene.ids() == [1]


async def test_an_idle_log_turns_over_when_its_ledger_is_old(scene: Scene) -> None:
    await scene.publish(b"a")
    scene.clock.advance(CONFIG.ledger_age_max_s * 1.06)
    scene.log.sweep()
    await scene.settle()
    assert scene.ids() == [1]
    assert [writer.is_closed for writer in scene.ledgers.writers] == [True, False]
    scene.clock.advance(CONFIG.ledger_age_max_s * 10)
    scene.log.sweep()
    await scene.settle()
    assert scene.ids() == [1], "an empty ledger can wait for entries for ever"


async def test_what_could_not_be_deleted_is_deleted_by_the_next_sweep(scene: Scene) -> None:
    scene.ledgers.is_stubborn = True
    await scene.publish(b"a", b"b", b"c")
    assert scene.ids() == [1]
    assert sorted(scene.ledgers.entries) == [0, 1]
    assert (await scene.record()).properties == {GARBAGE_PROPERTY: "0"}
    scene.ledgers.is_stubborn = False
    scene.log.sweep()
    await scene.settle()
    assert sorted(scene.ledgers.entries) == [1]
    await scene.log.roll_over()
    assert "0" not in (await scene.record()).properties.get(GARBAGE_PROPERTY, "").split(",")


async def test_what_a_crash_left_behind_is_deleted_by_the_next_owner(scene: Scene) -> None:
    scene.ledgers.is_stubborn = True
    await scene.publish(b"a", b"b", b"c")
    scene.ledgers.is_stubborn = False  # and the broker is gone
    async with scene.factory.log(LOG, NotedListener(), create_with=None) as log:
        await scene.settle()
        assert [span.entries for span in log.chain.spans] == [1]
        assert sorted(scene.ledgers.entries) == [1]


async def test_without_zookeeper_nothing_is_deleted(
    scene: Scene,
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    scene.log.trimmer.retention = Retention(FOR_EVER, FOR_EVER)
    await scene.publish(b"a", b"b", b"c")
    scene.log.trimmer.retention = Retention()
    await suspend("broker")
    with pytest.raises(StorageUnavailable):
        await scene.log.trimmer.trim()
    assert scene.ids() == [0, 1]
    assert sorted(scene.ledgers.entries) == [0, 1]
    await reconnect("broker")
    await scene.log.trimmer.trim()
    assert sorted(scene.ledgers.entries) == [1]


async def test_what_could_not_be_trimmed_is_trimmed_by_the_next_sweep(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose(*_: object) -> None:
        raise ConnectionLost("no answer")

    scene.log.trimmer.retention = Retention(FOR_EVER, FOR_EVER)
    await scene.publish(b"a", b"b", b"c")
    scene.log.trimmer.retention = Retention()
    with monkeypatch.context() as patch:
        patch.setattr(RecordedChain, "remove", lose)
        scene.log.sweep()
        await scene.settle()
    assert "not trimmed" in caplog.text
    assert scene.ids() == [0, 1]
    scene.log.sweep()
    await scene.settle()
    assert scene.ids() == [1]


async def test_a_log_that_another_broker_has_is_not_trimmed(
    scene: Scene, meddle: Callable[[str, bytes], None]
) -> None:
    scene.log.trimmer.retention = Retention(FOR_EVER, FOR_EVER)
    await scene.publish(b"a", b"b", b"c")
    scene.log.trimmer.retention = Retention()
    meddle(managed_ledger_path(LOG), b"")
    with pytest.raises(TopicFenced):
        await scene.log.trimmer.trim()
    assert scene.listener.is_fenced
    assert sorted(scene.ledgers.entries) == [0, 1]
    with pytest.raises(TopicFenced):
        await scene.log.trimmer.trim()


async def test_truncating_passes_every_cursor_and_deletes_everything(scene: Scene) -> None:
    scene.log.trimmer.retention = Retention(FOR_EVER, FOR_EVER)
    cursor, reader = await scene.cursor(), await scene.volatile()
    await scene.publish(b"a", b"b", b"c")
    await scene.log.truncate()
    await scene.settle()
    assert [span.entries for span in scene.log.chain.spans] == [0]
    assert not {0, 1} & set(scene.ledgers.entries)
    assert (cursor.backlog_entries, reader.backlog_entries) == (0, 0)
    await scene.publish(b"d")
    assert cursor.backlog_entries == 1


async def test_what_is_published_while_a_log_is_truncated_keeps_nothing_from_before(
    scene: Scene,
) -> None:
    cursor = await scene.cursor()
    await scene.publish(b"a")
    truncating = asyncio.ensure_future(scene.log.truncate())
    await asyncio.sleep(0)
    scene.log.append_all(pending(b"b"))
    await truncating
    await scene.settle()
    assert 0 not in scene.ids(), "a was in the ledger that b came to"
    await scene.publish(b"c")
    assert cursor.backlog_entries in {1, 2}


async def test_a_closed_log_deletes_nothing_any_more(scene: Scene) -> None:
    cursor = await scene.cursor()
    await scene.publish(b"a", b"b", b"c")
    await scene.log.__aexit__(None, None, None)
    cursor.acknowledged.acknowledge_upto(scene.log.chain.last_confirmed)
    ledgers = dict(scene.ledgers.entries)
    await scene.log.trimmer.trim()
    with pytest.raises(TopicFenced):
        await scene.log.truncate()
    assert scene.ledgers.entries == ledgers


async def test_a_truncated_log_still_shows_its_last_entry_until_there_is_another(
    scene: Scene,
) -> None:
    await scene.cursor()
    await scene.publish(b"a", b"b", b"c")
    newest = scene.log.chain.last_confirmed
    assert newest.entry_id >= 0
    await scene.log.truncate()
    await scene.settle()
    assert scene.log.chain.last_confirmed.entry_id == -1
    assert log_stats(scene.log).last_confirmed == newest
    await scene.publish(b"d")
    assert log_stats(scene.log).last_confirmed == scene.log.chain.last_confirmed > newest


async def test_truncating_an_empty_log_changes_nothing(scene: Scene) -> None:
    await scene.cursor()
    await scene.log.truncate()
    assert scene.ids() == [0]


async def test_what_is_read_from_a_ledger_that_was_trimmed_is_unavailable(scene: Scene) -> None:
    await scene.publish(b"a", b"b", b"c")
    with pytest.raises(StorageUnavailable, match="trimmed"):
        await scene.log.reader.fetch(0, [0])


async def test_entries_that_every_subscription_was_sent_leave_the_cache_soon(scene: Scene) -> None:
    scene.log.trimmer.retention = Retention(FOR_EVER, FOR_EVER)
    await scene.publish(b"a", b"b", b"c", b"d", b"e")
    scene.readers.slowest = Position(1, 1)
    scene.cache.sweep(scene.clock.monotonic() + 2)
    assert [scene.log.reader.cached.run(Position(each, 0), 9) for each in (0, 1)] == [[], []]
    assert [each[1] for each in scene.log.reader.cached.run(Position(1, 1), 9)] == [b"d"]
    assert [each[1] for each in scene.log.reader.cached.run(Position(2, 0), 9)] == [b"e"]
    scene.readers.slowest = None
    scene.cache.sweep(scene.clock.monotonic() + 2)
    assert scene.cache.inserted - scene.cache.evicted == 0


async def test_the_logs_are_swept_by_one_timer(scene: Scene) -> None:
    config = replace(CONFIG, sweep_period_s=1)
    factory = ManagedLedgerFactory(
        coordination=scene.coordination,
        ledgers=cast(Ledgers, scene.ledgers),
        cache=scene.cache,
        clock=scene.clock,
        random=Random(1),
        config=config,
    )
    async with (
        factory,
        factory.log("t/n/persistent/swept", NotedListener(), create_with={}) as log,
    ):
        log.append_all(pending(b"a"))
        await scene.settle()
        scene.clock.advance(CONFIG.ledger_age_max_s * 1.06)
        await asyncio.sleep(1.5)  # one sweep
        await scene.settle()
        assert [span.entries for span in log.chain.spans] == [1, 0]
