"""Byte streams in memory: what one end writes, the other receives in a later turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from geminga_runtime.network import Listener

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


class FakeTransport(asyncio.Transport):
    """One end of a stream. ``writes`` are the pieces that were written."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.peer: FakeTransport | None = None
        self.writes: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._is_open = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        if self.peer is not None:
            self._loop.call_soon(self.peer.receive, bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def is_closing(self) -> bool:
        return not self._is_open

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        for end in (self, self.peer):
            if end is not None and end._is_open:
                end._is_open = False
                self._loop.call_soon(end.protocol.connection_lost, None)

    def receive(self, chunk: bytes) -> None:
        if self._is_open:
            self.protocol.data_received(chunk)


class FakeNetwork:
    """Ports and who accepts there. A port that is ``silent`` never answers to connecting."""

    def __init__(self) -> None:
        self.acceptors: dict[int, Callable[[], asyncio.Protocol]] = {}
        self.silent: set[int] = set()
        self.connects: list[tuple[str, int]] = []

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        self.connects.append((host, port))
        await asyncio.sleep(0)
        if port in self.silent:
            await asyncio.get_running_loop().create_future()
        acceptor = self.acceptors.get(port)
        if acceptor is None:
            raise ConnectionRefusedError(f"no process listens on {host}:{port}")
        protocol = factory()
        assert isinstance(protocol, asyncio.Protocol)
        server = acceptor()
        near, far = FakeTransport(protocol), FakeTransport(server)
        near.peer, far.peer = far, near
        server.connection_made(far)
        protocol.connection_made(near)
        return near, protocol

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        raise NotImplementedError
