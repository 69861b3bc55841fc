"""One of the candidates leads, all know which, and a leader that is gone is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from geminga_cluster.election import LeaderElection
from geminga_protocol.records.cluster.brokers import LeaderBroker
from geminga_runtime.coordination import Coordination, NodeStat, OnChange
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

PATH = "/loadbalance/leader"

Session = Callable[[str], Coordination]
Settle = Callable[[], Awaitable[None]]
OnName = Callable[[str], Awaitable[None]]
Tree = Callable[[], dict[str, bytes]]
Election = LeaderElection[LeaderBroker]


def candidate(
    coordination: Coordination, name: str, told: list[bool] | None = None, past: str = "none"
) -> Election:
    """A candidate of that name; ``past`` is the name it had before."""
    return LeaderElection(
        coordination,
        PATH,
        LeaderBroker(broker_id=name, service_url=f"http://{name}"),
        is_past=lambda record: record.broker_id == past,
        on_leading=([] if told is None else told).append,
    )


def leads(election: Election) -> bool:
    """Ask anew: type checkers take a property for a constant."""
    return election.is_leader


async def leader_of(election: Election) -> str | None:
    record = await election.leader()
    return None if record is None else record.broker_id


async def test_the_first_candidate_leads_and_all_know(
    coordination: Coordination, session: Session
) -> None:
    told: list[bool] = []
    async with candidate(coordination, "a", told) as first:
        async with candidate(session("other"), "b", told_second := list[bool]()) as second:
            assert (leads(first), leads(second)) == (True, False)
            assert await leader_of(first) == await leader_of(second) == "a"
        assert told_second == []
        assert told == [True]
    assert told == [True, False]


async def test_a_leader_that_closes_hands_over_at_once(
    coordination: Coordination, session: Session, settle: Settle, tree: Tree
) -> None:
    async with candidate(session("other"), "b", told := list[bool]()) as second:
        await settle()
        assert leads(second)
    assert PATH not in tree()
    async with candidate(coordination, "a"):
        async with candidate(session("other"), "b", told) as second:
            assert not leads(second)
        assert (await coordination.get(PATH))[0]  # who does not lead takes no leader away
    assert told == [True, False]


async def test_a_leader_whose_session_ends_is_replaced_and_is_told_first(
    coordination: Coordination, session: Session, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    async with (
        candidate(coordination, "a", told := list[bool]()) as first,
        candidate(session("other"), "b") as second,
    ):
        await expire("broker")
        assert not leads(first)
        assert told == [True, False]
        await settle()
        assert leads(second)
        await reconnect("broker")
        await settle()
        assert not leads(first)
        assert await leader_of(first) == "b"
        assert told == [True, False]


async def test_a_leader_in_doubt_leads_no_more_until_it_has_read_that_it_does(
    coordination: Coordination, zookeeper: SimulatedZooKeeper, settle: Settle
) -> None:
    async with candidate(coordination, "a", told := list[bool]()) as first:
        zookeeper.go_away()
        await asyncio.sleep(60)
        assert not leads(first)
        zookeeper.come_back(keeps_sessions=True)
        await settle()
        assert leads(first)
        assert told == [True, False, True]


async def test_a_candidate_alone_leads_again_after_a_lost_connection(
    coordination: Coordination, suspend: OnName, reconnect: OnName, settle: Settle
) -> None:
    async with candidate(coordination, "a", told := list[bool]()) as first:
        await coordination.delete(PATH)
        await suspend("broker")
        await settle()
        await reconnect("broker")
        await settle()
        assert leads(first)
        assert await leader_of(first) == "a"
    assert told == [True, False]


async def test_a_node_of_an_earlier_life_is_taken_over_at_once(
    coordination: Coordination, session: Session, kill: Callable[[str], None]
) -> None:
    await candidate(session("killed"), "old").__aenter__()
    kill("killed")
    async with candidate(coordination, "a", past="old") as again:
        assert leads(again)


class Slow:
    """A session whose answers come after what happens meanwhile."""

    def __init__(
        self, coordination: Coordination, meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        self._coordination = coordination
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> object:
        return getattr(self._coordination, name)

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        answer = await self._coordination.get(path, on_change=on_change)
        session_id = answer[1].ephemeral_owner
        await self._meanwhile()
        # The answer is looked at while the session seems to be the same, as with a real ZooKeeper,
        # whose answers wait for a turn of the event loop.
        self.session_id = session_id
        return answer


async def test_an_answer_of_a_session_that_has_ended_meanwhile_makes_no_leader(
    coordination: Coordination, expire: OnName, settle: Settle
) -> None:
    slow = Slow(coordination, lambda: expire("broker"))
    async with candidate(cast(Coordination, slow), "a", told := list[bool]()) as first:
        await settle()
        assert not leads(first)
    assert told == []
