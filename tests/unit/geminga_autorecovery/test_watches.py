"""However often a node is asked for, it is watched once; a change ends the wait."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_ledger.fake_coordination import FakeCoordination

from geminga_autorecovery.watches import Watches
from geminga_runtime.coordination import NodeMissing


async def test_a_change_ends_the_wait() -> None:
    coordination = FakeCoordination()
    coordination.put("/a")
    watches = Watches(coordination)
    watches.begin()
    assert await watches.children("/a") == []
    loop = asyncio.get_running_loop()
    loop.call_later(3, coordination.put, "/a/b")
    begun_s = loop.time()
    await watches.wait(100)
    assert loop.time() - begun_s == pytest.approx(3)


async def test_what_changed_since_the_beginning_needs_no_wait() -> None:
    coordination = FakeCoordination()
    watches = Watches(coordination)
    watches.begin()
    assert await watches.exists("/a") is None
    coordination.put("/a")
    begun_s = asyncio.get_running_loop().time()
    await watches.wait(None)
    assert asyncio.get_running_loop().time() == begun_s


async def test_without_a_change_the_wait_ends_in_time() -> None:
    watches = Watches(FakeCoordination())
    begun_s = asyncio.get_running_loop().time()
    await watches.wait(7)
    assert asyncio.get_running_loop().time() - begun_s == pytest.approx(7)


async def test_a_node_is_watched_once() -> None:
    coordination = FakeCoordination()
    coordination.put("/a", b"1")
    watches = Watches(coordination)
    for _ in range(3):
        assert (await watches.get("/a"))[0] == b"1"
    assert len(coordination.nodes["/a"].watchers) == 1
    coordination.put("/a", b"2")
    assert (await watches.get("/a"))[0] == b"2"
    assert len(coordination.nodes["/a"].watchers) == 1


async def test_a_question_that_failed_is_asked_with_a_watch_again() -> None:
    coordination = FakeCoordination()
    watches = Watches(coordination)
    with pytest.raises(NodeMissing):
        await watches.children("/a")
    coordination.put("/a")
    await watches.children("/a")
    assert len(coordination.nodes["/a"].child_watchers) == 1


async def test_it_can_be_woken_by_hand() -> None:
    watches = Watches(FakeCoordination())
    watches.begin()
    watches.wake()
    await watches.wait(None)
