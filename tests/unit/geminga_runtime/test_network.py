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


def resolve_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Have names resolved to these addresses, one answer after the other; lists what was asked."""
    asked: list[str] = []
    left = list(answers)

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        found = left.pop(0)
        kinds = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in found]
        return [
            (kind, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (each, port))
            for kind, each in zip(kinds, found, strict=True)
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    return asked


async def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    network = AsyncioNetwork()
    listener = await network.listen(Echo, "127.0.0.3", 0)
    asked = resolve_to(monkeypatch, ["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    transport, _ = await network.connect(Collector, "broker.example", listener.port)
    assert transport.get_extra_info("peername")[0] == "127.0.0.3"
    assert asked == ["broker.example"]
    transport.close()
    await listener.close()


async def test_a_name_is_resolved_anew_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    network = AsyncioNetwork()
    listener = await network.listen(Echo, "127.0.0.2", 0)
    asked = resolve_to(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    with pytest.raises(ConnectionRefusedError):
        await network.connect(Collector, "broker.example", listener.port)
    transport, _ = await network.connect(Collector, "broker.example", listener.port)
    assert asked == ["broker.example"] * 2
    transport.close()
    await listener.close()


async def test_a_silent_address_does_not_keep_others_from_being_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = AsyncioNetwork()
    listener = await network.listen(Echo, "127.0.0.2", 0)
    resolve_to(monkeypatch, ["127.0.0.1", "127.0.0.2"])
    loop = asyncio.get_running_loop()
    dial = loop.sock_connect

    async def silent_first(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "127.0.0.1":
            await loop.create_future()
        await dial(sock, address)

    monkeypatch.setattr(loop, "sock_connect", silent_first)
    monkeypatch.setattr("geminga_runtime.network.ADDRESS_TIMEOUT_S", 0.01)
    transport, _ = await network.connect(Collector, "broker.example", listener.port)
    assert transport.get_extra_info("peername")[0] == "127.0.0.2"
    transport.close()
    await listener.close()


async def test_a_name_none_of_whose_addresses_answers_names_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve_to(monkeypatch, ["127.0.0.1", "127.0.0.2"])
    with pytest.raises(OSError, match=r"none of its 2 addresses.*127\.0\.0\.1.*127\.0\.0\.2"):
        await AsyncioNetwork().connect(Collector, "broker.example", 1)
