"""What was read once is not asked again until it changes; a change is never missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga_cluster.watched import Watched, watched_children, watched_values
from geminga_runtime.coordination import ConnectionLost, Coordination

Settle = Callable[[], Awaitable[None]]


@pytest.fixture
def texts(coordination: Coordination) -> Watched[str]:
    """Values as text, two kept at most."""
    return watched_values(coordination, bytes.decode, entries_max=2)


async def test_a_value_is_asked_for_once(
    texts: Watched[str], coordination: Coordination, requests: list[str]
) -> None:
    await coordination.create("/a", b"one")
    assert await texts.get("/a") == "one"
    requests.clear()
    assert await texts.get("/a") == "one"
    assert texts.known("/a") == "one"
    assert requests == []


async def test_a_missing_node_is_asked_for_once(texts: Watched[str], requests: list[str]) -> None:
    assert await texts.get("/a") is None
    requests.clear()
    assert await texts.get("/a") is None
    assert texts.known("/a") is None
    assert requests == []


async def test_a_change_by_another_session_is_seen(
    texts: Watched[str], session: Callable[[str], Coordination], settle: Settle
) -> None:
    other = session("other")
    await other.create("/a", b"one")
    assert await texts.get("/a") == "one"
    await other.set("/a", b"two")
    await settle()
    assert await texts.get("/a") == "two"
    await other.delete("/a")
    await settle()
    assert await texts.get("/a") is None
    await other.create("/a", b"three")
    await settle()
    assert await texts.get("/a") == "three"


async def test_an_answer_overtaken_by_a_change_is_not_kept(coordination: Coordination) -> None:
    answers = ["old", "new"]
    release = asyncio.Event()

    async def read(path: str, on_change: Callable[[], None]) -> str:
        del path
        answer = answers.pop(0)
        if answer == "old":
            on_change()
            await release.wait()
        return answer

    watched = Watched(coordination, read)
    asking = asyncio.ensure_future(watched.get("/a"))
    await asyncio.sleep(0)
    release.set()
    assert await asking == "old"
    assert await watched.get("/a") == "new"


async def test_a_writer_need_not_wait_for_its_own_watch(
    texts: Watched[str], coordination: Coordination
) -> None:
    await coordination.create("/a", b"one")
    await texts.get("/a")
    await coordination.set("/a", b"two")
    texts.forget("/a")
    assert await texts.get("/a") == "two"


async def test_children_are_kept_too(
    coordination: Coordination, session: Callable[[str], Coordination], settle: Settle
) -> None:
    names = watched_children(coordination)
    assert await names.get("/a") is None
    await session("other").create("/a/b", make_parents=True)
    await settle()
    assert await names.get("/a") == frozenset({"b"})
    await session("other").create("/a/c")
    await settle()
    assert await names.get("/a") == frozenset({"b", "c"})


async def test_the_oldest_answers_make_room(
    texts: Watched[str], coordination: Coordination, requests: list[str]
) -> None:
    for path in ("/a", "/b", "/c"):
        await coordination.create(path, b"x")
        await texts.get(path)
    requests.clear()
    await texts.get("/c")
    await texts.get("/b")
    assert requests == []
    await texts.get("/a")
    assert requests == ["get /a"]


async def test_what_was_read_last_holds_on_while_zookeeper_is_not_heard_of(
    texts: Watched[str],
    coordination: Coordination,
    session: Callable[[str], Coordination],
    expire: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    await coordination.create("/a", b"one")
    await texts.get("/a")
    assert await texts.get("/missing") is None
    await expire("broker")
    assert texts.known("/a") == await texts.get("/a") == "one"
    assert texts.keeps("/a")
    with pytest.raises(ConnectionLost):
        await texts.get("/b")
    with pytest.raises(ConnectionLost):  # it may have been made meanwhile
        await texts.get("/missing")
    await session("other").set("/a", b"two")
    await reconnect("broker")
    assert await texts.get("/a") == "two"


async def test_what_changed_while_the_connection_was_lost_is_seen(
    texts: Watched[str],
    coordination: Coordination,
    session: Callable[[str], Coordination],
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    await coordination.create("/a", b"one")
    await texts.get("/a")
    await suspend("broker")
    await session("other").set("/a", b"two")
    await reconnect("broker")
    assert await texts.get("/a") == "two"


async def test_followers_hear_of_every_change(
    texts: Watched[str],
    coordination: Coordination,
    meddle: Callable[[str, bytes], None],
    settle: Settle,
) -> None:
    heard: list[str | None] = []
    texts.follow(heard.append)
    await coordination.create("/a", b"one")
    await texts.get("/a")
    meddle("/a", b"two")
    await settle()
    assert heard == ["/a"]
    meddle("/a", b"three")  # it has not been read since
    await settle()
    assert heard == ["/a"]


async def test_followers_hear_that_all_may_have_changed(
    texts: Watched[str],
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    heard: list[str | None] = []
    texts.follow(heard.append)
    await suspend("broker")
    assert heard == []
    await reconnect("broker")
    assert heard == [None]


async def test_what_is_missing_holds_on_where_it_is_to(
    coordination: Coordination,
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
    session: Callable[[str], Coordination],
) -> None:
    texts = watched_values(coordination, bytes.decode, holds_missing=True)
    assert await texts.get("/missing") is None
    await suspend("broker")
    assert await texts.get("/missing") is None
    with pytest.raises(ConnectionLost):
        await texts.get("/never-asked-for")
    await session("other").create("/missing", b"there now")
    await reconnect("broker")
    assert await texts.get("/missing") == "there now"
