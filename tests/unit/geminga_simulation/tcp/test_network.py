"""The network: connecting, refusing, and every way in which a link can fail."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.geminga_simulation.recording import Recording

from geminga_runtime.network import Listener, Network
from geminga_simulation.conditions import NetworkConditions
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.simulate import simulate
from geminga_simulation.tcp.network import SimulatedNetwork


class Pair:
    """A network with a listening server and a way to connect to it."""

    def __init__(self, conditions: NetworkConditions | None = None) -> None:
        loop = running_loop()
        self.loop = loop
        self.network = SimulatedNetwork(loop, conditions)
        self.accepted: list[Recording] = []
        self.is_listening = False

    def accept(self) -> Recording:
        self.accepted.append(Recording())
        return self.accepted[-1]

    async def listen(self) -> Listener:
        self.is_listening = True
        return await self.network.host("server").listen(self.accept, "0.0.0.0", 6650)

    async def connect(self) -> tuple[Recording, Recording]:
        if not self.is_listening:
            await self.listen()
        _, client = await self.network.host("client").connect(Recording, "server", 6650)
        await asyncio.sleep(0.1)
        return client, self.accepted[-1]


async def test_a_host_is_a_network_with_its_own_loopback() -> None:
    pair = Pair()
    host: Network = pair.network.host("server")
    listener = await host.listen(pair.accept, "127.0.0.1", 0)
    assert listener.port > 0
    await host.connect(Recording, "localhost", listener.port)
    with pytest.raises(ConnectionRefusedError):
        await pair.network.host("client").connect(Recording, "localhost", listener.port)


async def test_ports_are_taken_freed_and_refuse_when_closed() -> None:
    pair = Pair()
    listener = await pair.listen()
    assert listener.port == 6650
    with pytest.raises(OSError, match="taken") as caught:
        await pair.listen()
    assert caught.value.errno == errno.EADDRINUSE
    client, _ = await pair.connect()
    await listener.close()
    await listener.close()
    with pytest.raises(ConnectionRefusedError):
        await pair.network.host("client").connect(Recording, "server", 6650)
    client.transport.write(b"open streams stay")
    await asyncio.sleep(1)
    assert pair.accepted[0].received == b"open streams stay"
    await pair.listen()


async def test_an_unknown_name_is_an_error_at_once() -> None:
    with pytest.raises(OSError, match="nowhere"):
        await Pair().network.host("client").connect(Recording, "nowhere", 1)


async def test_a_partition_lets_nothing_through_until_it_heals() -> None:
    pair = Pair()
    client, server = await pair.connect()
    pair.network.cut("client", "server")
    client.transport.write(b"held")
    server.transport.write(b"back")
    await asyncio.sleep(30)
    assert server.received == client.received == b""
    pair.network.heal("server", "client")
    await asyncio.sleep(5)
    assert server.received == b"held"
    assert client.received == b"back"


async def test_a_one_way_partition_lets_the_other_way_through() -> None:
    pair = Pair()
    client, server = await pair.connect()
    pair.network.cut("client", "server", is_one_way=True)
    client.transport.write(b"held")
    server.transport.write(b"through")
    await asyncio.sleep(5)
    assert server.received == b""
    assert client.received == b"through"


async def test_a_long_partition_breaks_the_sender_and_leaves_the_receiver_half_open() -> None:
    pair = Pair()
    client, server = await pair.connect()
    pair.network.cut("client", "server")
    client.transport.write(b"never")
    await client.lost.wait()
    assert isinstance(client.error, TimeoutError)
    pair.network.heal("client", "server")
    await asyncio.sleep(100)
    assert server.events == ["made"]
    server.transport.write(b"anybody there?")
    await server.lost.wait()
    assert isinstance(server.error, ConnectionResetError)


async def test_connecting_through_a_partition_times_out_or_succeeds_once_healed() -> None:
    pair = Pair()
    await pair.listen()
    pair.network.cut("client", "server")
    with pytest.raises(TimeoutError):
        await pair.network.host("client").connect(Recording, "server", 6650)
    assert pair.loop.time() == pytest.approx(20, abs=1)
    connecting = asyncio.ensure_future(
        pair.network.host("client").connect(Recording, "server", 6650)
    )
    await asyncio.sleep(2)
    pair.network.heal("client", "server")
    await connecting


def test_a_reset_breaks_both_ends_and_may_lose_what_is_on_the_way() -> None:
    async def main() -> bytes:
        pair = Pair()
        client, server = await pair.connect()
        for _ in range(10):
            client.transport.write(b"x")
            await asyncio.sleep(0.000_1)
        (stream,) = pair.network.streams("server")
        pair.network.reset(stream)
        await asyncio.gather(client.lost.wait(), server.lost.wait())
        assert isinstance(client.error, ConnectionResetError)
        assert isinstance(server.error, ConnectionResetError)
        assert pair.network.streams() == []
        return bytes(server.received)

    received = {simulate(seed, main).result for seed in range(30)}
    assert len(received) > 3


async def test_a_dark_stream_looks_well_and_carries_nothing() -> None:
    pair = Pair()
    client, server = await pair.connect()
    pair.network.darken(pair.network.streams()[0])
    server.transport.close()
    await asyncio.sleep(1000)
    assert client.events == ["made"]
    client.transport.write(b"hello?")
    await client.lost.wait()
    assert isinstance(client.error, TimeoutError)


async def test_a_dark_machine_answers_nothing_and_resets_when_it_is_back() -> None:
    pair = Pair()
    client, server = await connected_to_a_dark_machine(pair)
    client.transport.write(b"are you there?")
    await asyncio.sleep(5)
    assert client.events == ["made"]
    pair.network.power_on("server")
    await client.lost.wait()
    assert isinstance(client.error, ConnectionResetError)
    assert server.events == ["made"]


async def connected_to_a_dark_machine(pair: Pair) -> tuple[Recording, Recording]:
    """A stream whose server's process and machine died without a word."""
    server_life = pair.loop.incarnate("server")
    context = server_life.context.copy()
    await pair.loop.create_task(pair.listen(), context=context)
    _, client = await pair.network.host("client").connect(Recording, "server", 6650)
    await asyncio.sleep(0.1)
    server = pair.accepted[-1]
    pair.loop.kill(server_life)
    pair.network.dark_hosts.add("server")
    pair.network.kill(server_life, is_silent=True)
    return client, server


@pytest.mark.parametrize("has_unread", [True, False])
async def test_a_killed_process_is_heard_of_at_its_peers(
    has_unread: bool,  # noqa: FBT001 -- pytest's parameter
) -> None:
    pair = Pair()
    life = pair.loop.incarnate("server")
    await pair.loop.create_task(pair.listen(), context=life.context.copy())
    _, client = await pair.network.host("client").connect(Recording, "server", 6650)
    await asyncio.sleep(0.1)
    server = pair.accepted[0]
    if has_unread:
        client.transport.write(b"unread")
    pair.loop.kill(life)
    pair.network.kill(life)
    server.transport.write(b"from the dead")
    server.transport.close()
    await client.lost.wait()
    assert client.received == b""
    assert ("end" in client.events) is not has_unread
    assert isinstance(client.error, ConnectionResetError) is has_unread
    assert server.events == ["made"]
    with pytest.raises(ConnectionRefusedError):
        await pair.network.host("client").connect(Recording, "server", 6650)


async def test_what_a_killed_process_had_sent_still_arrives() -> None:
    pair = Pair()
    life = pair.loop.incarnate("server")
    await pair.loop.create_task(pair.listen(), context=life.context.copy())
    _, client = await pair.network.host("client").connect(Recording, "server", 6650)
    await asyncio.sleep(0.1)
    pair.accepted[0].transport.write(b"last words")
    pair.loop.kill(life)
    pair.network.kill(life)
    await client.lost.wait()
    assert client.received == b"last words"


async def test_giving_up_connecting_leaves_no_stream() -> None:
    pair = Pair()
    await pair.listen()
    for patience_s in (0.000_01, 0.000_4, 0.000_8):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                pair.network.host("client").connect(Recording, "server", 6650), patience_s / 10
            )
    await asyncio.sleep(1)
    assert pair.network.streams() == []


async def test_a_factory_that_fails_closes_the_stream_at_either_end() -> None:
    pair = Pair()
    await pair.listen()

    def fail() -> Recording:
        raise ValueError("no protocol today")

    with pytest.raises(ValueError, match="today"):
        await pair.network.host("client").connect(fail, "server", 6650)
    await asyncio.sleep(1)
    assert pair.network.streams() == []


async def test_a_leaky_network_loses_bytes_in_silence() -> None:
    pair = Pair()
    client, server = await pair.connect()
    pair.network.is_leaky = True
    for _ in range(1000):
        client.transport.write(b"x")
        await asyncio.sleep(0.001)
    assert 900 < len(server.received) < 1000
