"""Byte streams in memory: what one end writes, the other receives in a later turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from geminga_runtime.network import Listener

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


class FakeTransport(asyncio.Transport):
    """One end of a stream. What was written before ``close`` still arrives."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.peer: FakeTransport | None = None
        self.writes: list[bytes] = []
        self.is_stuck = False  # what was written never leaves, so closing never ends
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._is_lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self.writes.append(bytes(data))
        if self.peer is not None:
            self._loop.call_soon(self.peer.receive, bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        if not self.is_stuck:
            self.abort()

    def abort(self) -> None:
        self._is_closing = True
        for end in (self, self.peer):
            if end is not None:
                self._loop.call_soon(end.lose)

    def receive(self, chunk: bytes) -> None:
        if not self._is_lost and not self._is_closing:
            self.protocol.data_received(chunk)

    def lose(self) -> None:
        self._is_closing = True
        if not self._is_lost:
            self._is_lost = True
            self.protocol.connection_lost(None)


class FakeNetwork:
    """Hosts and who accepts there. A host that is ``silent`` never answers to connecting."""

    def __init__(self) -> None:
        self.acceptors: dict[tuple[str, int], Callable[[], asyncio.Protocol]] = {}
        self.silent: set[str] = set()
        self.connects: list[str] = []

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        self.connects.append(host)
        await asyncio.sleep(0)
        if host in self.silent:
            await asyncio.get_running_loop().create_future()
        acceptor = self.acceptors.get((host, port))
        if acceptor is None:
            raise ConnectionRefusedError(f"nothing listens on {host}:{port}")
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
