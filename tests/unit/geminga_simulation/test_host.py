"""Hosts: a process that is killed, crashed, paused or left never acts out of its life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.geminga_simulation.recording import Recording

from geminga_simulation.errors import HostCrashed, SimulationError
from geminga_simulation.host import Host
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


def runs(host: Host) -> bool:
    """Whether it has a process now (a type checker takes two looks at a property for one)."""
    return host.is_running


async def hold(host: Host) -> None:
    """A process that waits for ever."""
    assert runs(host)
    await asyncio.Event().wait()


async def test_a_process_runs_until_its_main_ends(world: World) -> None:
    async def main(host: Host) -> None:
        await asyncio.sleep(5)
        assert runs(host)

    host = world.host("host")
    assert not runs(host)
    host.start(main)
    with pytest.raises(SimulationError, match="already"):
        host.start(main)
    await asyncio.sleep(10)
    assert not runs(host)
    assert host.failures == []
    host.restart()
    assert runs(host)
    assert host.lives == 2


async def test_a_process_that_fails_is_remembered(world: World) -> None:
    async def main(host: Host) -> None:
        raise ValueError(f"{host.name} has had enough")

    host = world.host("host")
    host.start(main)
    await asyncio.sleep(1)
    assert [str(error) for error in host.failures] == ["host has had enough"]
    assert not runs(host)


async def test_a_host_that_never_ran_cannot_be_restarted(world: World) -> None:
    with pytest.raises(SimulationError, match="never ran"):
        world.host("host").restart()


async def test_a_crashed_life_never_acts_again(world: World) -> None:
    acts: list[str] = []
    loop = world.loop

    async def main(host: Host) -> None:
        disk = host.disk("journal")
        file = await disk.open("journal")
        session = host.coordination()
        _, peer = await host.network.connect(Recording, "other", 80)
        loop.call_later(2, acts.append, "timer")

        async def every_second() -> None:
            while True:
                await asyncio.sleep(1)
                acts.append("tick")

        ticking = asyncio.create_task(every_second())
        try:
            await asyncio.Event().wait()
        finally:
            # What a careful process does on its way out. The dead do nothing of it.
            peer.transport.write(b"goodbye")
            peer.transport.close()
            loop.call_soon(acts.append, "callback")
            ticking.cancel()
            try:
                await file.append_and_sync([b"goodbye"])
            finally:
                try:
                    await session.create("/goodbye")
                finally:
                    await host.network.connect(Recording, "other", 80)

    accepted: list[Recording] = []

    def accept() -> Recording:
        accepted.append(Recording())
        return accepted[-1]

    await world.host("other").network.listen(accept, "other", 80)
    host = world.host("host")
    host.start(main)
    await asyncio.sleep(1.5)
    assert acts == ["tick"]
    host.crash()
    await asyncio.sleep(60)
    loop.bury()
    await asyncio.sleep(60)
    assert acts == ["tick"]
    assert len(accepted) == 1
    assert accepted[0].received == b""
    assert accepted[0].lost.is_set()
    assert host.device("journal").files["journal"].content == b""
    assert world.zookeeper.tree.exists("/goodbye") is None
    assert loop.failures == []


async def test_objects_of_a_dead_life_do_nothing_when_called_from_outside(world: World) -> None:
    listener: list[Recording] = []

    def accept() -> Recording:
        listener.append(Recording())
        return listener[-1]

    await world.host("other").network.listen(accept, "other", 80)
    host = world.host("host")
    host.start(hold)
    transport, _ = await host.run(host.network.connect(Recording, "other", 80))
    file = await host.run(host.disk("journal").open("journal"))
    host.kill()
    transport.write(b"ghost")
    transport.abort()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(file.append([b"ghost"]), 10)
    assert listener[0].received == b""
    assert listener[0].events == ["made", "end", "lost"]


async def test_killing_keeps_unsynced_bytes_and_crashing_may_not(world: World) -> None:
    kept: list[int] = []
    for number in range(20):
        host = world.host(f"host-{number}")
        host.start(hold)
        file = await host.run(host.disk("journal").open("journal"))
        await host.run(file.append_and_sync([b"safe"]))
        await host.run(file.append([b"x" * 1000]))
        if number % 2:
            host.kill()
        else:
            host.crash()
        content = await host.disk("journal").read_file("journal")
        assert content is not None
        assert content.startswith(b"safe")
        kept.append(len(content) - 4)
    assert set(kept[1::2]) == {1000}
    assert set(kept[::2]) != {1000}


async def test_work_given_to_a_host_ends_with_it(world: World) -> None:
    host = world.host("host")
    with pytest.raises(HostCrashed):
        await host.run(asyncio.sleep(1))
    host.start(hold)
    assert await host.run(asyncio.sleep(1, "done")) == "done"
    waiting = host.run(asyncio.sleep(100))
    await asyncio.sleep(1)
    host.crash()
    with pytest.raises(HostCrashed, match="host crashed"):
        await waiting
    host.restart()
    with pytest.raises(ZeroDivisionError):
        await host.run(fail())


async def fail() -> float:
    return 1 / 0


async def test_cancelling_work_given_to_a_host_cancels_it_there(world: World) -> None:
    host = world.host("host")
    host.start(hold)
    cancelled: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(host.run(work()), 1)
    await asyncio.sleep(1)
    assert cancelled == [True]


class Served:
    """A service that remembers how far it got."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.is_closed = False


def test_a_service_is_opened_kept_and_closed() -> None:
    async def main() -> None:
        async with World() as world:

            @asynccontextmanager
            async def serve(host: Host) -> AsyncGenerator[Served]:
                await asyncio.sleep(1)
                service = Served(host)
                try:
                    yield service
                finally:
                    await asyncio.sleep(1)
                    service.is_closed = True

            host = world.host("host")
            service = await host.serve(serve)
            assert (service.host, service.is_closed) == (host, False)
            await host.stop()
            assert service.is_closed
            assert not runs(host)
            await host.stop()
            host.restart()
            await asyncio.sleep(5)
            assert runs(host)
            host.kill()
            opening = asyncio.ensure_future(host.serve(serve))
            await asyncio.sleep(0.5)
            host.crash()
            with pytest.raises(HostCrashed):
                await opening

    simulate(1, main)


async def test_a_service_that_cannot_open_says_why(world: World) -> None:
    @asynccontextmanager
    async def serve(host: Host) -> AsyncGenerator[int]:
        yield int(host.name)

    host = world.host("host")
    with pytest.raises(ValueError, match="invalid literal"):
        await host.serve(serve)
    await asyncio.sleep(1)
    assert not runs(host)


async def test_a_paused_host_stands_still_and_its_peers_do_not(world: World) -> None:
    ticks: list[float] = []

    async def tick(host: Host) -> None:
        while True:
            ticks.append(host.clock.monotonic())
            await asyncio.sleep(1)

    host = world.host("host")
    host.pause(1)  # there is no process to pause
    host.start(tick)
    await asyncio.sleep(1.5)
    host.pause(10)
    await asyncio.sleep(9)
    assert len(ticks) == 2
    await asyncio.sleep(2)
    assert len(ticks) == 3
    assert ticks[2] == pytest.approx(11.5, abs=0.01)


async def test_each_life_has_a_random_stream_of_its_own(world: World) -> None:
    drawn: list[float] = []

    async def draw(host: Host) -> None:
        drawn.append(host.random.random())

    for name in ("one", "one", "two"):
        world.host(name).start(draw)
        await asyncio.sleep(1)
    assert len(set(drawn)) == 3


async def test_a_silent_crash_leaves_peers_in_the_dark_until_the_restart(world: World) -> None:
    async def listen(host: Host) -> None:
        await host.network.listen(Recording, host.name, 80)
        await hold(host)

    host = world.host("host")
    host.start(listen)
    await asyncio.sleep(1)
    _, client = await world.host("client").network.connect(Recording, "host", 80)
    host.crash(is_silent=True)
    client.transport.write(b"anybody?")
    await asyncio.sleep(10)
    assert client.events == ["made"]
    host.restart()
    await client.lost.wait()
    assert isinstance(client.error, ConnectionResetError)


async def test_a_process_that_waits_to_be_stopped_ends_in_order(world: World) -> None:
    ended: list[int] = []

    async def main(host: Host) -> None:
        await host.until_stopped()
        assert host.is_stopping
        await asyncio.sleep(1)  # what it has to write
        ended.append(int(asyncio.get_running_loop().time()))

    host = world.host("host")
    host.start(main)
    await asyncio.sleep(5)
    assert runs(host)
    await host.stop()
    assert ended == [6]
    assert not runs(host)
    host.restart()
    await asyncio.sleep(1)
    assert runs(host), "the next life was not asked to end"
    assert not host.is_stopping
