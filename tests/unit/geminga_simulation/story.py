"""A small world with everything in it, run in processes of their own by ``test_simulate``."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU
from geminga_simulation.host import Host
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def serve(host: Host) -> None:
    disk = host.disk("journal")
    journal = await disk.open("journal")
    await host.network.listen(Echo, host.name, 7)
    async with host.coordination() as coordination:
        for number in range(1_000):
            await journal.append_and_sync([f"{host.name} {number}".encode()])
            await coordination.create("/n-", ephemeral=True, sequential=True)
            await asyncio.sleep(host.random.random())


async def ask(host: Host, peer: str) -> None:
    while True:
        try:
            transport, _ = await host.network.connect(asyncio.Protocol, peer, 7)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        for number in range(100):
            transport.write(b"%d" % number)
            await asyncio.sleep(0.01)
        transport.close()


async def story() -> list[tuple[float, str]]:
    async with World() as world:
        servers = [world.host(f"server-{number}") for number in range(3)]
        for server in servers:
            server.start(serve)
        for number in range(3):
            world.host(f"client-{number}").start(partial(ask, peer=f"server-{number}"))
        async with FaultInjector(world, FULL_MENU, servers):
            await asyncio.sleep(20)
        await asyncio.sleep(5)
        return world.events


if __name__ == "__main__":
    outcome = simulate(int(sys.argv[1]), story)
    sys.stdout.write(f"{outcome}\n")
