"""A client's network whose streams break at chosen commands, sent or received.

What a stream loses with a break differs with its moment: just before a command leaves, the broker
never gets it; just after, the broker carries it out and the client never hears the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from tests.histories.listening import SIZE_BYTES, frames

from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import parse_command
from geminga_runtime.network import Listener, Network, ProtocolT

# So long after a command left, which arrives meanwhile, its stream breaks.
BREAK_S = 0.1


class Way(Enum):
    """Seen from the client."""

    SENT = "sent"
    RECEIVED = "received"


class Moment(Enum):
    """When a stream breaks."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream breaks at the ``occurrence``-th command of this kind that goes this way."""

    way: Way
    kind: int
    moment: Moment
    occurrence: int = 1

    @property
    def name(self) -> str:
        """What the command is called."""
        return name_of(self.kind)


def name_of(kind: int) -> str:
    """What commands of this kind are called."""
    return BaseCommand.Type.Name(cast(BaseCommand.Type.ValueType, kind))


class CuttingNetwork:
    """``network``, for one client. ``cut`` is what is still to happen; it happens once.

    ``seen`` counts the commands, by way and kind, that got through.
    """

    def __init__(self, network: Network, cut: Cut | None = None) -> None:
        self.cut = cut
        self.seen: Counter[tuple[Way, int]] = Counter()
        self._network = network
        self._passed = 0

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """As ``Network.connect``."""
        made: list[ProtocolT] = []

        def link() -> _Link:
            made.append(factory())
            return _Link(self, cast(asyncio.Protocol, made[0]))

        _, watched = await self._network.connect(link, host, port)
        assert watched.outgoing is not None
        return watched.outgoing, made[0]

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """As ``Network.listen``."""
        return await self._network.listen(factory, host, port)

    def moment_of(self, way: Way, frame: bytes) -> Moment | None:
        """Note a command; when its stream is to break for it, if it is."""
        kind = parse_command(frame, SIZE_BYTES, len(frame))[0].type
        self.seen[way, kind] += 1
        cut = self.cut
        if cut is None or (cut.way, cut.kind) != (way, kind):
            return None
        self._passed += 1
        if self._passed < cut.occurrence:
            return None
        self._passed, self.cut = 0, None
        return cut.moment


class _Link(asyncio.Protocol):
    """One stream: between the transport of the simulated network and the client's protocol."""

    def __init__(self, network: CuttingNetwork, protocol: asyncio.Protocol) -> None:
        self.outgoing: _Outgoing | None = None
        self.is_broken = False
        self._network = network
        self._protocol = protocol
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outgoing = _Outgoing(self, self._network, cast(asyncio.Transport, transport))
        self._protocol.connection_made(self.outgoing)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_broken = True
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        for frame in frames(self._rest):
            if self.is_broken:
                return
            self._rest = self._rest[len(frame) :]
            moment = self._network.moment_of(Way.RECEIVED, frame)
            if moment is not Moment.BEFORE:
                self._protocol.data_received(frame)
            if moment is not None:
                self.break_off()

    def break_off(self) -> None:
        """Break the stream: nothing that arrives is heard any more."""
        self.is_broken = True
        assert self.outgoing is not None
        self.outgoing.abort()


class _Outgoing(asyncio.Transport):
    """What the client writes to."""

    def __init__(self, link: _Link, network: CuttingNetwork, transport: asyncio.Transport) -> None:
        super().__init__()
        self._link = link
        self._network = network
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for frame in frames(bytes(data)):
            if self._link.is_broken:
                return
            moment = self._network.moment_of(Way.SENT, frame)
            if moment is Moment.BEFORE:
                self._link.break_off()
                return
            self._transport.write(frame)
            if moment is Moment.AFTER:
                self._link.is_broken = True
                asyncio.get_running_loop().call_later(BREAK_S, self.abort)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
