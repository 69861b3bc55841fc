"""Proves that chain and record agree after any failure, and that what neither names is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import LOG, MemoryLedgers

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.records.log_store import LogStore
from geminga_broker.managed_ledger.records.recorded_chain import GARBAGE_LEDGERS_MAX, RecordedChain
from geminga_ledger import Ledgers
from geminga_protocol.records.topics.managed_ledger import managed_ledger_path
from geminga_runtime.coordination import (
    ConnectionLost,
    Coordination,
    NodeMissing,
    VersionMismatch,
)

Settle = Callable[[], Awaitable[None]]
Session = Callable[[str], Awaitable[None]]


class Scene:
    """A chain and what stands in ZooKeeper and on the bookies."""

    def __init__(self, coordination: Coordination) -> None:
        self.ledgers = MemoryLedgers()
        self.ledgers.entries = {ledger_id: [] for ledger_id in range(10)}
        self.coordination = coordination
        self.recorded = self.owner()

    def owner(self) -> RecordedChain:
        """Another owner, which opens the log."""
        store = LogStore(self.coordination, LOG)
        return RecordedChain(store, cast(Ledgers, self.ledgers))

    async def filled(self, count: int) -> None:
        """Ledgers 0 to ``count - 1``, closed with one entry each."""
        await self.recorded.create(LedgerSpan(0), {})
        for ledger_id in range(1, count + 1):
            self.close(entries=1)
            if ledger_id < count:
                await self.recorded.append(LedgerSpan(ledger_id))

    def close(self, *, entries: int) -> None:
        last = self.recorded.chain.spans[-1]
        last.entries, last.closed_at_ms = entries, 1

    def ids(self) -> list[int]:
        return [span.ledger_id for span in self.recorded.chain.spans]

    async def named(self) -> list[int]:
        return [span.ledger_id for span in await LogStore(self.coordination, LOG).load()]


@pytest.fixture
def scene(coordination: Coordination) -> Scene:
    """No log yet; ledgers 0 to 9 exist."""
    return Scene(coordination)


def choose(*ledger_ids: int) -> Callable[[Scene], Callable[[], Sequence[LedgerSpan]]]:
    return lambda scene: (
        lambda: [span for span in scene.recorded.chain.spans if span.ledger_id in ledger_ids]
    )


async def test_ledgers_are_added_to_record_and_chain(scene: Scene) -> None:
    await scene.filled(3)
    assert scene.ids() == await scene.named() == [0, 1, 2]


async def test_ledgers_closed_without_an_entry_go_when_another_follows(scene: Scene) -> None:
    await scene.filled(1)
    await scene.recorded.append(LedgerSpan(1))
    scene.close(entries=0)
    await scene.recorded.append(LedgerSpan(2))
    assert scene.ids() == await scene.named() == [0, 2]
    await scene.recorded.delete_garbage()
    assert 1 not in scene.ledgers.entries


async def test_a_ledger_whose_naming_is_in_doubt_is_deleted_once_the_record_says_otherwise(
    scene: Scene, suspend: Session, reconnect: Session
) -> None:
    await scene.filled(1)
    await suspend("broker")
    for ledger_id in (1, 2):
        with pytest.raises(ConnectionLost):
            await scene.recorded.append(LedgerSpan(ledger_id))
    assert not scene.recorded.store.garbage
    await reconnect("broker")
    await scene.recorded.append(LedgerSpan(3))
    await scene.recorded.delete_garbage()
    assert scene.ids() == await scene.named() == [0, 3]
    assert not {1, 2} & set(scene.ledgers.entries)
    assert not scene.recorded.store.garbage


async def test_a_ledger_in_doubt_when_the_log_is_closed_is_left_to_the_next_owner(
    scene: Scene, suspend: Session, reconnect: Session
) -> None:
    await scene.filled(1)
    await suspend("broker")
    with pytest.raises(ConnectionLost):
        await scene.recorded.append(LedgerSpan(1))
    await reconnect("broker")
    await scene.recorded.save()
    scene.recorded = scene.owner()
    await scene.recorded.load()
    await scene.recorded.delete_garbage()
    assert scene.ids() == [0]
    assert 1 not in scene.ledgers.entries


async def test_removal_tells_before_the_chain_changes_and_after_the_record_did(
    scene: Scene,
) -> None:
    await scene.filled(3)
    told: list[tuple[list[int], list[int]]] = []

    def before_removal(spans: Sequence[LedgerSpan]) -> None:
        told.append(([span.ledger_id for span in spans], scene.ids()))

    await scene.recorded.remove(choose(0, 1)(scene), before_removal)
    assert told == [([0, 1], [0, 1, 2])]
    assert scene.ids() == await scene.named() == [2]
    assert {0, 1} <= set(scene.ledgers.entries), "the next owner would find them"
    await scene.recorded.delete_garbage()
    assert not {0, 1} & set(scene.ledgers.entries)


async def test_a_removal_that_could_not_be_written_removes_nothing(
    scene: Scene, suspend: Session, reconnect: Session
) -> None:
    await scene.filled(3)
    await suspend("broker")
    with pytest.raises(ConnectionLost):
        await scene.recorded.remove(choose(0)(scene), lambda _: pytest.fail("not yet"))
    await reconnect("broker")
    await scene.recorded.delete_garbage()
    assert scene.ids() == await scene.named() == [0, 1, 2]
    assert 0 in scene.ledgers.entries


async def test_nothing_to_remove_writes_nothing(scene: Scene, requests: list[str]) -> None:
    await scene.filled(2)
    requests.clear()
    await scene.recorded.remove(list, lambda _: None)
    assert requests == []


async def test_changes_that_overlap_are_made_one_after_the_other(scene: Scene) -> None:
    await scene.filled(3)
    await asyncio.gather(
        scene.recorded.append(LedgerSpan(5)),
        scene.recorded.remove(choose(0, 5)(scene), lambda _: None),
        scene.recorded.save(),
        scene.recorded.append(LedgerSpan(6)),
    )
    assert scene.ids() == await scene.named() == [1, 2, 6]


async def test_no_more_garbage_is_made_than_a_record_can_list(scene: Scene) -> None:
    count = GARBAGE_LEDGERS_MAX + 2
    await scene.recorded.create(LedgerSpan(0, 1, 1, 1), {})
    for ledger_id in range(1, count):
        scene.recorded.chain.append(LedgerSpan(ledger_id, 1, 1, 1))
    everything = choose(*range(count))(scene)
    for _ in range(2):
        await scene.recorded.remove(everything, lambda _: None)
        assert len(scene.ids()) == 2
    await scene.recorded.delete_garbage()
    await scene.recorded.remove(everything, lambda _: None)
    assert scene.ids() == []


async def test_a_takeover_stops_the_former_owner_also_where_no_more_garbage_can_be_listed(
    scene: Scene,
) -> None:
    await scene.filled(1)
    await scene.recorded.append(LedgerSpan(1))
    scene.recorded.store.garbage = tuple(range(100, 100 + GARBAGE_LEDGERS_MAX))
    await scene.recorded.save()
    del scene.ledgers.entries[1]
    other = scene.owner()
    await other.load()
    await other.recover_last(lambda: 1)
    with pytest.raises(VersionMismatch):
        await scene.recorded.append(LedgerSpan(2))


async def test_deleting_takes_ledgers_in_doubt_and_garbage_along(
    scene: Scene, suspend: Session, reconnect: Session
) -> None:
    await scene.filled(3)
    await suspend("broker")
    with pytest.raises(ConnectionLost):
        await scene.recorded.append(LedgerSpan(7))
    await reconnect("broker")
    await scene.recorded.remove(choose(0)(scene), lambda _: None)
    await scene.recorded.delete()
    assert sorted(scene.ledgers.entries) == [3, 4, 5, 6, 8, 9]
    with pytest.raises(NodeMissing):
        await scene.coordination.get(managed_ledger_path(LOG))


async def test_a_log_half_deleted_is_found_empty_and_its_ledgers_are_cleared(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.filled(3)

    async def lost(ledger_id: int) -> None:
        raise ConnectionLost(f"delete {ledger_id}")

    with monkeypatch.context() as patch:
        patch.setattr(scene.ledgers, "delete", lost)
        with pytest.raises(ConnectionLost):
            await scene.recorded.delete()
    other = scene.owner()
    await other.load()
    assert other.chain.spans == ()
    await other.delete_garbage()
    assert not {0, 1, 2} & set(scene.ledgers.entries)


async def test_who_lost_the_log_deletes_nothing(
    scene: Scene, meddle: Callable[[str, bytes], None]
) -> None:
    await scene.filled(3)
    meddle(managed_ledger_path(LOG), b"")
    with pytest.raises(VersionMismatch):
        await scene.recorded.remove(choose(0)(scene), lambda _: None)
    with pytest.raises(VersionMismatch):
        await scene.recorded.delete()
    await scene.recorded.delete_garbage()
    assert len(scene.ledgers.entries) == 10
