"""Stand-ins for what a whole broker stands on: a network whose clients are in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.sessions.connection import Connection
from geminga_runtime.network import Listener


class MemoryNetwork:
    """Listens for clients of which the first is there before ``listen`` returns."""

    def __init__(self) -> None:
        self.clients: list[FrameClient] = []
        self.is_listening = False
        self.port = 0

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        del host
        self.port = port
        self.is_listening = True
        self._factory = factory
        self.come()
        await asyncio.sleep(0)
        return cast(Listener, self)

    def come(self) -> FrameClient:
        """One more client connects."""
        connection = self._factory()
        assert isinstance(connection, Connection)
        self.clients.append(FrameClient(connection))
        return self.clients[-1].connected()

    async def close(self) -> None:
        self.is_listening = False
