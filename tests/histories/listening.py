"""A client's network that lets a listener hear every command that the client sends and receives.

It changes nothing. What is heard is what passed the wire, so it is true whatever the client makes
of it: simulated clients and real ones of our library are listened to in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from geminga_runtime.network import Listener, Network, ProtocolT

SIZE_BYTES = 4


class Ear(Protocol):
    """Hears one stream: whole frames, with their size in front."""

    def sent(self, frame: bytes) -> None:
        """The client writes it."""
        ...

    def received(self, frame: bytes) -> None:
        """The client is about to get it."""
        ...


class ListeningNetwork:
    """``network``, for one client; ``listen_to(host, port)`` gives each new stream its ear."""

    def __init__(self, network: Network, listen_to: Callable[[str, int], Ear]) -> None:
        self._network = network
        self._listen_to = listen_to

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """As ``Network.connect``."""
        made: list[ProtocolT] = []

        def link() -> _Link:
            made.append(factory())
            return _Link(self._listen_to(host, port), cast(asyncio.Protocol, made[0]))

        _, heard = await self._network.connect(link, host, port)
        assert heard.outgoing is not None
        return heard.outgoing, made[0]

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """As ``Network.listen``."""
        return await self._network.listen(factory, host, port)


class _Link(asyncio.Protocol):
    """One stream: between the transport and the client's protocol."""

    def __init__(self, ear: Ear, protocol: asyncio.Protocol) -> None:
        self.outgoing: _Outgoing | None = None
        self._ear = ear
        self._protocol = protocol
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outgoing = _Outgoing(self._ear, cast(asyncio.Transport, transport))
        self._protocol.connection_made(self.outgoing)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        for frame in frames(self._rest):
            self._ear.received(frame)
            self._rest = self._rest[len(frame) :]
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class _Outgoing(asyncio.Transport):
    """What the client writes to."""

    def __init__(self, ear: Ear, transport: asyncio.Transport) -> None:
        super().__init__()
        self._ear = ear
        self._transport = transport
        self._rest = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._rest += bytes(data)
        for frame in frames(self._rest):
            self._ear.sent(frame)
            self._rest = self._rest[len(frame) :]
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def frames(stream: bytes) -> Iterator[bytes]:
    """The whole frames at the beginning of a stream."""
    start = 0
    while len(stream) - start >= SIZE_BYTES:
        end = start + SIZE_BYTES + int.from_bytes(stream[start : start + SIZE_BYTES], "big")
        if end > len(stream):
            return
        yield stream[start:end]
        start = end
