"""TCP through the running loop: connect, listen on any free port, refuse clearly."""

from __future__ import annotations

import asyncio
import socket

import pytest

from geminga_runtime.network import AsyncioListener, AsyncioNetwork

pytestmark = pytest.mark.real_loop  # real sockets


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Collector(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.arrived = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived.set()


async def test_bytes_go_there_and_back() -> None:
    network = AsyncioNetwork()
    listener = await network.listen(Echo, "127.0.0.1", 0)
    transport, collector = await network.connect(Collector, "127.0.0.1", listener.port)
    transport.write(b"hello")
    await asyncio.wait_for(collector.arrived.wait(), 60)
    assert collector.received == b"hello"
    transport.close()
    await listener.close()


async def test_small_writes_leave_at_once_on_both_ends() -> None:
    network = AsyncioNetwork()
    accepted: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport)

    listener = await network.listen(Noting, "127.0.0.1", 0)
    transport, _ = await network.connect(Collector, "127.0.0.1", listener.port)
    for end in (transport, await accepted):
        sock = end.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        end.close()
    await listener.close()


async def test_a_closed_listener_leaves_open_connections_alone() -> None:
    network = AsyncioNetwork()
    listener = await network.listen(Echo, "127.0.0.1", 0)
    transport, collector = await network.connect(Collector, "127.0.0.1", listener.port)
    transport.write(b"1")
    await asyncio.wait_for(collector.arrived.wait(), 60)
    await listener.close()
    collector.arrived.clear()
    transport.write(b"2")
    await asyncio.wait_for(collector.arrived.wait(), 60)
    with pytest.raises(OSError, match=r".*"):
        await network.connect(Collector, "127.0.0.1", listener.port)
    transport.close()


async def test_a_taken_port_is_refused() -> None:
    network = AsyncioNetwork()
    listener = await network.listen(Echo, "127.0.0.1", 0)
    with pytest.raises(OSError, match=r".*"):
        await network.listen(Echo, "127.0.0.1", listener.port)
    await listener.close()


async def test_every_address_of_a_name_gets_the_same_port() -> None:
    """``localhost`` is 127.0.0.1 and, where the machine has IPv6, ::1."""
    listener = await AsyncioNetwork().listen(Echo, "localhost", 0)
    assert isinstance(listener, AsyncioListener)
    assert listener.is_one_port
    await listener.close()
