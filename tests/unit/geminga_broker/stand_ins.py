"""Stand-ins for what a whole broker stands on: a network whose clients are in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.sessions.connection import Connection
from geminga_runtime.network import Listener


class MemoryNetwork:
    """Listens for clients, of which one is there on each port before ``listen`` returns."""

    def __init__(self) -> None:
        self.clients: list[FrameClient] = []
        self._factories: dict[int, Callable[[], asyncio.BaseProtocol]] = {}

    @property
    def is_listening(self) -> bool:
        """Whether clients can still come, on any port."""
        return bool(self._factories)

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        del host
        self._factories[port] = factory
        self.come(port)
        await asyncio.sleep(0)
        return cast(Listener, MemoryPort(self._factories, port))

    def come(self, port: int) -> FrameClient:
        """One more client connects."""
        connection = self._factories[port]()
        assert isinstance(connection, Connection)
        self.clients.append(FrameClient(connection))
        return self.clients[-1].connected()


@dataclass
class MemoryPort:
    """A port of a ``MemoryNetwork``."""

    factories: dict[int, Callable[[], asyncio.BaseProtocol]]
    port: int

    async def close(self) -> None:
        del self.factories[self.port]
