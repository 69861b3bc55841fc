"""What the tests of the proxy stand on: hosts ``client``, ``proxy`` and brokers, and who is there.

A client and a broker here are raw ends of streams that keep what they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from geminga_protocol.framing import FrameReader
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_connected, encode_lookup
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import encode_command, parse_command
from geminga_proxy.addresses.broker_view import BrokerView
from geminga_proxy.addresses.targets import Target
from geminga_proxy.config import ProxyConfig
from geminga_proxy.proxy import Proxy
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.tcp.network import SimulatedNetwork
from geminga_simulation.tcp.stream import Endpoint

PORT = 6650
TOPIC = "persistent://public/default/orders"


class End(asyncio.Protocol):
    """One end of a stream; ``answers`` says what a broker writes for a command."""

    def __init__(self, answers: Callable[[BaseCommand], bytes] | None = None) -> None:
        self.read = b""
        self.commands: list[BaseCommand] = []
        self.is_lost = False
        self.transport: Endpoint
        self._answers: Callable[[BaseCommand], bytes] | None = answers
        self._frames = FrameReader(1 << 20)
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self.transport = cast("Endpoint", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what came; a broker answers it until its client is connected."""
        self.read += data
        answers = self._answers
        if answers is not None:
            buffer, bounds = self._frames.feed(data)
            for start, end in bounds:
                command, _ = parse_command(buffer, start, end)
                self.commands.append(command)
                self.transport.write(answers(command))
                if command.type == BaseCommand.CONNECT and command.connect.proxy_version:
                    self._answers = None  # the rest is the client's to say
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is over."""
        del exc
        self.is_lost = True
        self._changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something has been read, or lost."""
        async with asyncio.timeout(120):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def next(self) -> BaseCommand:
        """The next command that was read, taken out of ``read``."""
        await self.until(lambda: len(self.read) > 4 and len(self.read) >= self._wanted())
        end = self._wanted()
        command, _ = parse_command(self.read, 4, end)
        self.read = self.read[end:]
        return command

    def _wanted(self) -> int:
        return 4 + int.from_bytes(self.read[:4], "big")

    def say(self, kind: BaseCommand.Type.ValueType, **parts: object) -> None:
        """Write a command."""
        self.transport.write(encode_command(BaseCommand(type=kind, **parts)))  # type: ignore[arg-type]  # any part


@dataclass
class Place:
    """A network, with brokers that were started, and how a proxy is made and clients connect."""

    network: SimulatedNetwork
    brokers: dict[str, list[End]] = field(default_factory=dict)
    view: BrokerView = field(default_factory=BrokerView)
    answers: Callable[[BaseCommand], bytes] = lambda command: answer(command)

    async def start_broker(self, host: str) -> list[End]:
        """A broker, and the ends of the connections to it."""
        ends: list[End] = self.brokers.setdefault(host, [])

        def accept() -> End:
            ends.append(End(lambda command: self.answers(command)))
            return ends[-1]

        await self.network.host(host).listen(accept, "0.0.0.0", PORT)
        urls = tuple(f"pulsar://{each}:{PORT}" for each in self.brokers)
        self.view = BrokerView(urls, (), frozenset(Target.parse(url) for url in urls))
        return ends

    def proxy(self, config: ProxyConfig | None = None) -> Proxy:
        """A proxy, to be entered."""
        config = config or ProxyConfig(bind_address="proxy", port=PORT)
        return Proxy(config, brokers=self, network=self.network.host("proxy"))

    async def client(self) -> End:
        """A connection to the proxy."""
        _, end = await self.network.host("client").connect(End, "proxy", PORT)
        return end

    async def asking(self) -> End:
        """A connection that asks for topics."""
        end = await self.client()
        end.say(
            BaseCommand.CONNECT, connect=api.CommandConnect(client_version="c", protocol_version=21)
        )
        assert (await end.next()).type == BaseCommand.CONNECTED
        return end

    async def joined(self, target: str) -> End:
        """A connection that is joined to ``target``."""
        end = await self.client()
        join(end, target)
        assert (await end.next()).type == BaseCommand.CONNECTED
        return end


def join(end: End, target: str) -> None:
    """Name a broker."""
    connect = api.CommandConnect(
        client_version="c",
        protocol_version=19,
        auth_method_name="token",
        auth_data=b"secret",
        proxy_to_broker_url=target,
    )
    end.say(BaseCommand.CONNECT, connect=connect)


def answer(command: BaseCommand) -> bytes:
    """What a broker answers."""
    if command.type == BaseCommand.CONNECT:
        return encode_connected(command.connect.protocol_version, 1 << 20)
    if command.type == BaseCommand.LOOKUP:
        url = f"pulsar://broker-1:{PORT}"
        return encode_lookup(command.lookupTopic.request_id, broker_url=url)
    return b""


@pytest.fixture
async def place() -> Place:
    """A network with a broker ``broker-1``."""
    here = Place(SimulatedNetwork(running_loop()))
    here.network.host("client")
    await here.start_broker("broker-1")
    return here
