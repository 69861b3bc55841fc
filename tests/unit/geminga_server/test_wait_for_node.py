"""Who waits for a node goes on when it comes, and not much later than the time is up."""

from __future__ import annotations

import asyncio
from typing import cast

from geminga_runtime.coordination import Coordination, NodeStat, OnChange
from geminga_server.wait_for_node import wait_for_node

PATH = "/ledgers/INSTANCEID"
LONG_S = 60.0


class OneNode:
    """As much of a ``Coordination`` as is asked for: whether one node exists."""

    def __init__(self) -> None:
        self.is_there = False
        self.watches: list[OnChange] = []
        self.asked = asyncio.Event()

    async def exists(self, path: str, *, on_change: OnChange) -> NodeStat | None:
        assert path == PATH
        self.watches.append(on_change)
        self.asked.set()
        return NodeStat(0, 1, 1, 0) if self.is_there else None


async def test_a_node_that_is_there_is_not_waited_for() -> None:
    node = OneNode()
    node.is_there = True
    await wait_for_node(cast("Coordination", node), PATH, LONG_S)
    assert len(node.watches) == 1


async def test_a_node_that_comes_ends_the_wait() -> None:
    node = OneNode()
    waiting = asyncio.ensure_future(wait_for_node(cast("Coordination", node), PATH, LONG_S))
    await node.asked.wait()
    node.asked.clear()
    node.watches.pop()()  # something else changed
    await node.asked.wait()
    assert not waiting.done()
    node.is_there = True
    node.watches.pop()()
    await waiting


async def test_the_wait_has_an_end() -> None:
    node = OneNode()
    await wait_for_node(cast("Coordination", node), PATH, 0.001)
    assert not node.is_there
