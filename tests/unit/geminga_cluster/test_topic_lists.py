"""A namespace's topics are followed through every change, also when ZooKeeper was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from geminga_cluster.topic_lists import Names, TopicLists
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_runtime.coordination import Coordination

SHOP = NamespaceName("acme", "shop")
PARENT = "/managed-ledgers/acme/shop/persistent"
Settle = Callable[[], Awaitable[None]]


@pytest.fixture
async def lists(coordination: Coordination) -> AsyncIterator[TopicLists]:
    """No list is followed yet."""
    async with TopicLists(coordination) as lists:
        yield lists


class Told:
    """What a follower was told: names that came, names that went."""

    def __init__(self) -> None:
        self.changes: list[tuple[list[str], list[str]]] = []
        self.is_told = asyncio.Event()

    def __call__(self, added: Names, removed: Names) -> None:
        self.changes.append((sorted(added), sorted(removed)))
        self.is_told.set()


async def test_topics_made_by_another_broker_are_told(
    lists: TopicLists, session: Callable[[str], Coordination], settle: Settle
) -> None:
    told, other = Told(), session("other")
    await other.create(f"{PARENT}/a", make_parents=True)
    assert await lists.follow(SHOP, told) == {"a"}
    await other.create(f"{PARENT}/b")
    await settle()
    assert told.changes == [(["b"], [])]


async def test_what_changed_while_zookeeper_was_away_is_told_later(
    lists: TopicLists,
    session: Callable[[str], Coordination],
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    told, other = Told(), session("other")
    await other.create(f"{PARENT}/a", make_parents=True)
    await lists.follow(SHOP, told)
    await suspend("broker")
    await other.create(f"{PARENT}/b")
    await other.delete(f"{PARENT}/a")
    await asyncio.sleep(0.01)
    await reconnect("broker")
    await asyncio.wait_for(told.is_told.wait(), 60)
    assert told.changes == [(["b"], ["a"])]


async def test_watches_of_an_ended_session_are_set_again(
    lists: TopicLists,
    session: Callable[[str], Coordination],
    settle: Settle,
    expire: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    told, other = Told(), session("other")
    await lists.follow(SHOP, told)
    await expire("broker")
    await reconnect("broker")
    await settle()
    await other.create(f"{PARENT}/a", make_parents=True)
    await asyncio.wait_for(told.is_told.wait(), 60)
    assert told.changes == [(["a"], [])]


async def test_a_list_without_followers_is_dropped(
    lists: TopicLists, settle: Settle, requests: list[str]
) -> None:
    first, second = Told(), Told()
    await lists.follow(SHOP, first)
    await lists.follow(SHOP, second)
    lists.leave(SHOP, first)
    assert len(lists.lists) == 1
    lists.leave(SHOP, second)
    await settle()
    assert len(lists.lists) == 0
    assert len(requests) == 2


async def test_a_follower_that_gives_up_waiting_leaves_nothing(
    lists: TopicLists, settle: Settle, suspend: Callable[[str], Awaitable[None]]
) -> None:
    await suspend("broker")
    waiting = asyncio.ensure_future(lists.follow(SHOP, Told()))
    await settle()
    waiting.cancel()
    await settle()
    assert len(lists.lists) == 0
