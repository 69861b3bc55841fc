"""A wait is said soon and then now and then; for a node it ends when that comes, or in time."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import cast

import pytest

from geminga_runtime.coordination import Coordination, NodeStat, OnChange
from geminga_server.zookeeper.startup_wait import (
    FIRST_MESSAGE_S,
    NEXT_MESSAGE_S,
    logged_wait,
    wait_for_node,
)
from geminga_simulation.event_loop.loop import SimulatedLoop

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


def test_a_wait_is_said_soon_and_then_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tries = count(1)

    async def story() -> None:
        with logged_wait("waiting for a server", lambda: {"address": "a:1", "tries": next(tries)}):
            await asyncio.sleep(FIRST_MESSAGE_S + 2 * NEXT_MESSAGE_S + 0.1)
        await asyncio.sleep(10 * NEXT_MESSAGE_S)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
    assert [record.getMessage() for record in caplog.records] == ["waiting for a server"] * 3
    facts = [record.__dict__ for record in caplog.records]
    assert [each["tries"] for each in facts] == [1, 2, 3]
    assert [each["waited_s"] for each in facts] == [0.5, 5.5, 10.5]
    assert {each["address"] for each in facts} == {"a:1"}
    assert [each["levelname"] for each in facts] == ["INFO", "WARNING", "WARNING"]


def test_a_short_wait_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        with logged_wait("waiting for a server", dict):
            await asyncio.sleep(FIRST_MESSAGE_S / 2)
        await asyncio.sleep(NEXT_MESSAGE_S)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
    assert not caplog.records


def test_the_wait_for_a_node_names_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(wait_for_node(cast("Coordination", OneNode()), PATH, LONG_S))
    assert {record.__dict__["node"] for record in caplog.records} == {PATH}
    assert len(caplog.records) == 1 + LONG_S // NEXT_MESSAGE_S - 1
