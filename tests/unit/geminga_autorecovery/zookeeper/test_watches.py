"""However often a node is asked for, it is watched once; a change ends the wait."""

from __future__ import annotations

import asyncio

import pytest

from geminga_autorecovery.zookeeper.watches import Watches
from geminga_runtime.coordination import NodeMissing
from geminga_simulation.zookeeper.interception import InstantSession


async def test_a_change_ends_the_wait() -> None:
    coordination = InstantSession()
    coordination.zookeeper.put("/a")
    watches = Watches(coordination)
    watches.begin()
    assert await watches.children("/a") == []
    loop = asyncio.get_running_loop()
    loop.call_later(3, coordination.zookeeper.put, "/a/b")
    begun_s = loop.time()
    await watches.wait(100)
    assert loop.time() - begun_s == pytest.approx(3)


async def test_what_changed_since_the_beginning_needs_no_wait() -> None:
    coordination = InstantSession()
    watches = Watches(coordination)
    watches.begin()
    assert await watches.exists("/a") is None
    coordination.zookeeper.put("/a")
    begun_s = asyncio.get_running_loop().time()
    await watches.wait(None)
    assert asyncio.get_running_loop().time() == begun_s


async def test_without_a_change_the_wait_ends_in_time() -> None:
    watches = Watches(InstantSession())
    begun_s = asyncio.get_running_loop().time()
    await watches.wait(7)
    assert asyncio.get_running_loop().time() - begun_s == pytest.approx(7)


async def test_a_node_is_watched_once() -> None:
    coordination = InstantSession()
    coordination.zookeeper.put("/a", b"1")
    watches = Watches(coordination)
    for _ in range(3):
        assert (await watches.get("/a"))[0] == b"1"
    assert coordination.zookeeper.watch_count("/a") == 1
    coordination.zookeeper.put("/a", b"2")
    await asyncio.sleep(0.001)  # until the change was heard of
    assert (await watches.get("/a"))[0] == b"2"
    assert coordination.zookeeper.watch_count("/a") == 1


async def test_a_question_that_failed_is_asked_with_a_watch_again() -> None:
    coordination = InstantSession()
    watches = Watches(coordination)
    with pytest.raises(NodeMissing):
        await watches.children("/a")
    coordination.zookeeper.put("/a")
    await watches.children("/a")
    assert coordination.zookeeper.watch_count("/a") == 1


async def test_it_can_be_woken_by_hand() -> None:
    watches = Watches(InstantSession())
    watches.begin()
    watches.wake()
    await watches.wait(None)
