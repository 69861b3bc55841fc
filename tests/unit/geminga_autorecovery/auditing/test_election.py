"""One auditor at a time, among ours and Java's; another when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from geminga_autorecovery.auditing.election import Election
from geminga_protocol.records.ledgers.underreplication import (
    LEADER_PATH,
    VOTE_PREFIX,
    VOTES_PATH,
    decode_vote,
    encode_leader,
    encode_vote,
)
from geminga_runtime.coordination import Coordination
from geminga_simulation.host import Host
from geminga_simulation.simulate import simulate
from geminga_simulation.world import ZOOKEEPER, World

RETRY_S = 0.1


class Candidates:
    """Daemons that count how many work at a time."""

    def __init__(self) -> None:
        self.working: list[str] = []
        self.most = 0

    @asynccontextmanager
    async def daemon(self, host: Host) -> AsyncGenerator[Election]:
        async def work() -> None:
            self.working.append(host.name)
            self.most = max(self.most, len(self.working))
            try:
                await asyncio.Event().wait()
            finally:
                self.working.remove(host.name)

        async with (
            host.coordination() as session,
            Election(session, host.name, work, retry_s=RETRY_S) as election,
        ):
            yield election


def run(story: Callable[[World, Candidates], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        async with World() as world:
            await story(world, Candidates())

    simulate(seed, main)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- any condition, in virtual time
            await asyncio.sleep(0.01)


async def start(world: World, candidates: Candidates, count: int) -> list[Host]:
    hosts = [world.host(f"b{number}") for number in range(count)]
    for host in hosts:
        await host.serve(candidates.daemon)
        await asyncio.sleep(1)  # its vote stands before the next one's
    await until(lambda: bool(candidates.working))
    return hosts


async def other(world: World) -> Coordination:
    host = world.host("java")
    host.start(lambda _: asyncio.Event().wait())
    return await host.run(host.coordination().__aenter__())


async def name_at(session: Coordination, path: str) -> bytes:
    return (await session.get(path))[0]


def test_the_first_is_elected_and_says_so_where_all_tools_look() -> None:
    async def story(world: World, candidates: Candidates) -> None:
        await start(world, candidates, 3)
        await asyncio.sleep(5)
        assert candidates.working == ["b0"]
        session = await other(world)
        names = await session.children(VOTES_PATH)
        assert len(names) == 3
        assert decode_vote(await name_at(session, f"{VOTES_PATH}/{min(names)}")) == "b0"
        assert decode_vote(await name_at(session, VOTES_PATH)) == "b0"
        assert await name_at(session, LEADER_PATH) == encode_leader("b0")

    run(story)


def test_the_next_follows_one_that_leaves_at_once_and_one_that_dies_in_time() -> None:
    async def story(world: World, candidates: Candidates) -> None:
        hosts = await start(world, candidates, 3)
        await hosts[0].stop()
        begun_s = world.loop.time()
        await until(lambda: candidates.working == ["b1"])
        assert world.loop.time() - begun_s < 1
        hosts[1].kill()
        candidates.working.clear()  # what was killed says nothing any more
        await until(lambda: candidates.working == ["b2"])

    run(story)


def test_an_auditor_that_lost_its_session_stops() -> None:
    async def story(world: World, candidates: Candidates) -> None:
        await start(world, candidates, 2)
        (session,) = [each for each in world.zookeeper.sessions() if each.host == "b0"]
        world.zookeeper.expire(session)
        # It is told late; two auditors mark the same ledgers for a moment, which does no harm.
        await until(lambda: candidates.working == ["b1"])

    run(story)


def test_one_in_doubt_stops_before_another_can_be_elected() -> None:
    async def story(world: World, candidates: Candidates) -> None:
        hosts = await start(world, candidates, 2)
        world.partition(hosts[0].name, ZOOKEEPER)
        await until(lambda: candidates.working == [hosts[1].name])
        assert candidates.most == 1
        world.heal(hosts[0].name, ZOOKEEPER)
        await asyncio.sleep(1)
        assert candidates.working == [hosts[1].name]

    for seed in range(10):  # how soon the session ends is chance
        run(story, seed)


def test_a_deleted_vote_is_a_lost_election() -> None:
    async def story(world: World, candidates: Candidates) -> None:
        await start(world, candidates, 2)
        session = await other(world)
        await session.delete(f"{VOTES_PATH}/{min(await session.children(VOTES_PATH))}")
        await until(lambda: candidates.working == ["b1"])

    run(story)


def test_a_java_auditor_of_either_kind_is_waited_for() -> None:
    async def story(world: World, candidates: Candidates) -> None:
        session = await other(world)
        vote = await session.create(
            f"{VOTES_PATH}/{VOTE_PREFIX}",
            encode_vote("java"),
            ephemeral=True,
            sequential=True,
            make_parents=True,
        )
        await session.create(LEADER_PATH, encode_leader("java"), ephemeral=True)
        await world.host("b0").serve(candidates.daemon)
        for path in (vote, LEADER_PATH):
            await asyncio.sleep(100)
            assert candidates.working == []
            await session.delete(path)
        await until(lambda: candidates.working == ["b0"])

    run(story)


@pytest.mark.parametrize("seed", range(10))
def test_under_lost_connections_there_is_never_a_second_and_one_in_the_end(seed: int) -> None:
    async def story() -> None:
        async with World() as world:
            candidates = Candidates()
            chance = world.loop.stream("story")
            for number in range(3):
                world.host(f"b{number}").start(lambda host: keep(candidates, host))
            for _ in range(20):
                await asyncio.sleep(chance.random() / 4)
                sessions = world.zookeeper.sessions()
                if sessions:
                    chance.choice(sessions).cut_link()
            await until(lambda: len(candidates.working) == 1)
            assert candidates.most == 1

    simulate(seed, story)


async def keep(candidates: Candidates, host: Host) -> None:
    async with candidates.daemon(host):
        await asyncio.Event().wait()
