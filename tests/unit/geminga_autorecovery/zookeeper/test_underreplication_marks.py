"""Marks are made where BookKeeper looks for them, and never forget a lost bookie."""

from __future__ import annotations

import asyncio

import pytest

from geminga_autorecovery.zookeeper.underreplication_marks import (
    UnderreplicationMarks,
    prepare_underreplication,
    read_mark,
)
from geminga_protocol.records.errors import UnsupportedRecord
from geminga_protocol.records.ledgers.underreplication import (
    UNDERREPLICATION_LAYOUT_PATH,
    mark_path,
)
from geminga_runtime.coordination import VersionMismatch
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.interception import InstantSession


def make() -> tuple[InstantSession, UnderreplicationMarks]:
    coordination = InstantSession()
    return coordination, UnderreplicationMarks(coordination, SimulatedClock())


async def test_the_nodes_are_prepared_once_and_left_then() -> None:
    coordination, _ = make()
    for _ in range(2):
        await prepare_underreplication(coordination)
        assert coordination.zookeeper.tree.children("/ledgers/underreplication") == [
            "LAYOUT",
            "ledgers",
            "locks",
        ]


async def test_another_layout_is_refused() -> None:
    coordination, _ = make()
    coordination.zookeeper.put(UNDERREPLICATION_LAYOUT_PATH, b'type: "OTHER"\nversion: 1\n')
    with pytest.raises(UnsupportedRecord):
        await prepare_underreplication(coordination)


async def test_a_mark_names_the_bookies_and_the_time() -> None:
    coordination, marks = make()
    await marks.mark(5, ["b1", "b0"])
    mark = await read_mark(marks.coordination, 5)
    assert mark is not None
    assert mark.missing_bookies == ("b0", "b1")
    assert mark.marked_at_ms == SimulatedClock().wall_ms()
    assert coordination.zookeeper.tree.exists(mark_path(5))


async def test_marking_again_adds_to_what_is_known() -> None:
    _, marks = make()
    await marks.mark(5, ["b1"])
    await marks.mark(5, ["b0", "b1"])
    mark = await read_mark(marks.coordination, 5)
    assert mark is not None
    assert mark.missing_bookies == ("b1", "b0")


async def test_marking_again_for_the_same_reason_gives_the_mark_another_version() -> None:
    coordination, marks = make()
    await marks.mark(5, ["b1"])
    before, stat = await coordination.get(mark_path(5))
    await asyncio.sleep(1)
    await marks.mark(5, ["b1"])
    after, stat_after = await coordination.get(mark_path(5))
    assert stat_after.version == stat.version + 1
    assert after == before  # since when it is marked, above all


async def test_a_mark_that_says_nothing_is_replaced() -> None:
    coordination, marks = make()
    coordination.zookeeper.put(mark_path(5), b"\xff")
    assert (await read_mark(marks.coordination, 5)) is not None
    await marks.mark(5, ["b1"])
    mark = await read_mark(marks.coordination, 5)
    assert mark is not None
    assert mark.missing_bookies == ("b1",)


async def test_a_change_of_the_mark_in_between_is_not_overwritten() -> None:
    coordination, marks = make()
    await marks.mark(5, ["b1"])
    other = UnderreplicationMarks(coordination, SimulatedClock())

    def interfere(method: str, path: str) -> None:
        if (method, path) == ("set", mark_path(5)):
            coordination.before = None
            coordination.zookeeper.put(path, b'replica: "b1"\nreplica: "b9"\n')

    coordination.before = interfere
    await other.mark(5, ["b2"])
    mark = await read_mark(marks.coordination, 5)
    assert mark is not None
    assert mark.missing_bookies == ("b1", "b9", "b2")


async def test_a_mark_that_never_stands_still_is_given_up() -> None:
    coordination, marks = make()
    await marks.mark(5, ["b1"])
    coordination.before = lambda method, path: (
        coordination.zookeeper.put(path, b"") if method == "set" else None
    )
    with pytest.raises(VersionMismatch):
        await marks.mark(5, ["b2"])


async def test_all_marked_ledgers_are_listed() -> None:
    _, marks = make()
    assert await marks.ledgers() == []
    for ledger_id in (5, 1 << 40, 70_000):
        await marks.mark(ledger_id, ["b1"])
    assert await marks.ledgers() == [5, 70_000, 1 << 40]
    assert await read_mark(marks.coordination, 6) is None
