"""One write to ZooKeeper meets with trouble: which one it is, and what its client learns."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from geminga_runtime.coordination import ConnectionLost, SessionState
from geminga_simulation.zookeeper.server import SimulatedZooKeeper
from geminga_simulation.zookeeper.write_troubles import Trouble, WriteTroubles


def ignore(_: str) -> None:
    """For tests that ask otherwise."""


def test_writes_of_a_seldom_kind_meet_with_nearly_as_much_as_those_of_a_frequent_one() -> None:
    met = Counter[str]()
    for story in range(100):
        troubles = WriteTroubles(Random(story))
        for _ in range(10):  # changes of which each is made of a hundred writes and of one
            troubles.waiting.append((Trouble.LATE, ignore))
            for number in range(100):
                troubles.meet("create", f"/often/{number}")
            troubles.meet("set", "/seldom")
        met += troubles.met
    assert met["create /often 2"] < 4 * met["set /seldom 1"]


def test_reads_and_writes_meet_with_nothing_while_nothing_is_planned() -> None:
    troubles = WriteTroubles(Random(1))
    assert troubles.meet("create", "/a") is None
    troubles.waiting.append((Trouble.LATE, ignore))
    troubles.waiting.clear()
    assert troubles.meet("create", "/a") is None
    assert troubles.met == Counter()


@pytest.mark.parametrize(
    ("trouble", "is_made", "is_answered", "is_over"),
    [
        (Trouble.REFUSED, False, False, False),
        (Trouble.UNANSWERED, True, False, False),
        (Trouble.LATE, True, True, False),
        (Trouble.ANSWERED_LATE, True, True, False),
        (Trouble.EXPIRED, False, False, True),
        (Trouble.EXPIRED_BEHIND, True, False, True),
    ],
)
async def test_a_write_that_meets_with_trouble(
    trouble: Trouble,
    is_made: bool,  # noqa: FBT001 - parameters of the test
    is_answered: bool,  # noqa: FBT001
    is_over: bool,  # noqa: FBT001
) -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    states: list[SessionState] = []
    session.on_session(states.append)
    notes: list[str] = []
    zookeeper.troubles.waiting.append((trouble, notes.append))
    (answer,) = await asyncio.gather(session.create("/a"), return_exceptions=True)
    assert answer == "/a" if is_answered else isinstance(answer, ConnectionLost)
    assert (zookeeper.tree.exists("/a") is not None) is is_made
    assert notes == [f"create of /a {trouble.value}"]
    await asyncio.sleep(2)  # by then it is connected again
    assert (SessionState.EXPIRED in states) is is_over
    assert (SessionState.SUSPENDED in states) is not is_answered
    await session.create("/b")  # the next one is made and answered as ever


async def test_others_see_a_write_before_its_late_answer() -> None:
    zookeeper = SimulatedZooKeeper()
    writer, reader = zookeeper.session("writer"), zookeeper.session("reader")
    zookeeper.troubles.waiting.append((Trouble.ANSWERED_LATE, ignore))
    creating = asyncio.ensure_future(writer.create("/a"))
    await asyncio.sleep(0.01)
    assert await reader.exists("/a") is not None
    assert not creating.done()
    assert await creating == "/a"


async def test_what_was_sent_behind_a_write_that_is_refused_is_not_made_either() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    zookeeper.troubles.waiting.append((Trouble.REFUSED, ignore))
    answers = await asyncio.gather(
        *(session.create(path) for path in ("/a", "/b", "/c")), return_exceptions=True
    )
    assert all(isinstance(answer, ConnectionLost) for answer in answers)
    assert zookeeper.tree.values() == {}
