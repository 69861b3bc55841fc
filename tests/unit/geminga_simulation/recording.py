"""A protocol that writes down what it is told, for tests of streams."""

from __future__ import annotations

import asyncio


class Recording(asyncio.Protocol):
    """Remembers bytes and events; ``keeps_open`` keeps writing possible after the peer's end."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.events: list[str] = []
        self.received = bytearray()
        self.chunks: list[bytes] = []
        self.error: BaseException | None = None
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport
        self._keeps_open = keeps_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert not self.events
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.lost.is_set()
        self.received += data
        self.chunks.append(data)

    def eof_received(self) -> bool:
        self.events.append("end")
        return self._keeps_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.lost.is_set()
        self.error = exc
        self.events.append("lost")
        self.lost.set()
