"""Proves that logs and cursors are found by name, made once, and made whole after a lost answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    LOG,
    MemoryLedgers,
    NotedListener,
    log_over,
    logs_over,
)

from geminga_broker.errors import StorageUnavailable, TopicNotFound
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import CURSOR_LOADS_MAX, ManagedLedgerFactory
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.records.topics.cursor import cursor_path
from geminga_runtime.coordination import Coordination, NodeMissing

AT = Position(0, -1)


@pytest.fixture
def factory(coordination: Coordination) -> ManagedLedgerFactory:
    """The broker's logs."""
    return logs_over(coordination, MemoryLedgers())


@pytest.fixture
async def log(factory: ManagedLedgerFactory) -> AsyncIterator[ManagedLedger]:
    """One of them, open."""
    async with log_over(factory) as log:
        yield log


async def test_a_log_that_may_not_be_made_is_missing(factory: ManagedLedgerFactory) -> None:
    assert not await factory.exists(LOG)
    with pytest.raises(NodeMissing):
        await factory.log(LOG, NotedListener(), create_with=None).__aenter__()
    assert not await factory.exists(LOG)


async def test_a_log_exists_once_it_was_made(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    assert await factory.exists(log.name)


async def test_cursors_are_listed_by_the_names_their_subscriptions_have(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    for name in ("plain", "a/b %?"):
        async with await factory.create_cursor(LOG, name, log.chain, AT, {}):
            pass
    assert sorted(await factory.cursor_names(LOG)) == ["a/b %?", "plain"]


class Loads:
    """What becomes of the cursors that ``logs`` load: how many at a time, begun and ended."""

    def __init__(self, factory: ManagedLedgerFactory, *, broken: str = "") -> None:
        self.begun = self.running = self.most = 0
        self._load = factory.load_cursor
        self._broken = broken

    async def load_cursor(self, log_name: str, name: str, chain: LedgerChain) -> Cursor:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if name == self._broken:
                raise StorageUnavailable(name)
            return await self._load(log_name, name, chain)
        finally:
            self.running -= 1


async def test_cursors_are_loaded_a_few_at_a_time_and_come_in_their_order(
    factory: ManagedLedgerFactory, log: ManagedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3 * CURSOR_LOADS_MAX):
        await factory.create_cursor(LOG, f"s{number}", log.chain, AT, {})
    loads = Loads(factory)
    monkeypatch.setattr(factory, "load_cursor", loads.load_cursor)
    cursors = await factory.load_cursors(LOG, log.chain)
    assert [each.name for each in cursors] == await factory.cursor_names(LOG)
    assert loads.begun == 3 * CURSOR_LOADS_MAX
    assert loads.most == CURSOR_LOADS_MAX


async def test_a_cursor_that_cannot_be_loaded_leaves_no_other_loading(
    factory: ManagedLedgerFactory, log: ManagedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3 * CURSOR_LOADS_MAX):
        await factory.create_cursor(LOG, f"s{number}", log.chain, AT, {})
    loads = Loads(factory, broken="s0")
    monkeypatch.setattr(factory, "load_cursor", loads.load_cursor)
    with pytest.raises(StorageUnavailable, match="s0"):
        await factory.load_cursors(LOG, log.chain)
    assert loads.running == 0
    assert loads.begun < 3 * CURSOR_LOADS_MAX


@pytest.mark.parametrize("count", [1, 3])
async def test_a_cursor_that_is_deleted_while_others_are_loaded_is_left_out(
    factory: ManagedLedgerFactory,
    log: ManagedLedger,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    for number in range(count):
        await factory.create_cursor(LOG, f"s{number}", log.chain, AT, {})
    honest = coordination.children

    async def children(path: str) -> list[str]:
        found = await honest(path)
        await coordination.delete(cursor_path(LOG, "s0"))
        return found

    monkeypatch.setattr(coordination, "children", children)
    found = await factory.load_cursors(LOG, log.chain)
    assert [each.name for each in found] == [f"s{number}" for number in range(1, count)]


async def test_a_log_that_is_gone_has_no_cursors_to_list(
    factory: ManagedLedgerFactory,
) -> None:
    with pytest.raises(TopicNotFound):
        await factory.cursor_names(LOG)


async def test_a_stored_cursor_is_loaded_with_its_labels(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    async with await factory.create_cursor(LOG, "sub", log.chain, AT, {"team": "blue"}) as made:
        assert made.is_durable
    async with await factory.load_cursor(LOG, "sub", log.chain) as found:
        assert (found.mark_delete, found.properties) == (AT, {"team": "blue"})


async def test_a_cursor_left_by_an_attempt_without_answer_is_taken_as_it_stands(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    async with await factory.create_cursor(LOG, "sub", log.chain, AT, {}):
        pass
    async with await factory.create_cursor(LOG, "sub", log.chain, Position(0, 5), {}) as again:
        assert again.mark_delete == AT


async def test_a_volatile_cursor_is_stored_nowhere(
    factory: ManagedLedgerFactory, log: ManagedLedger
) -> None:
    async with factory.volatile_cursor("reader", log.chain, AT) as cursor:
        assert not cursor.is_durable
        assert await factory.cursor_names(LOG) == []


async def test_sweeping_goes_on_after_an_unexpected_error(
    factory: ManagedLedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []

    def fail(swept_thing: object, *_: object) -> None:
        swept.append(type(swept_thing).__name__)
        raise ValueError("a bug")

    monkeypatch.setattr(ManagedLedger, "sweep", fail)
    monkeypatch.setattr(EntryCache, "sweep", fail)
    async with factory, log_over(factory):
        await asyncio.sleep(3 * factory.config.sweep_period_s)
    assert swept.count("ManagedLedger") > 1
    assert swept.count("EntryCache") > 1
