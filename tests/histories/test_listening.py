"""Proves that a stream that is listened to carries the same bytes, and that whole commands are
heard, however the bytes come."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.histories.listening import Ear, ListeningNetwork, frames

from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

FRAMES = [b"\0\0\0\1a", b"\0\0\0\0", b"\0\0\0\3xyz"]
EVERYTHING = b"".join(FRAMES)


@dataclass
class Heard:
    """An ear that remembers."""

    sent_frames: list[bytes] = field(default_factory=list[bytes])
    received_frames: list[bytes] = field(default_factory=list[bytes])

    def sent(self, frame: bytes) -> None:
        self.sent_frames.append(frame)

    def received(self, frame: bytes) -> None:
        self.received_frames.append(frame)


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Taker(asyncio.Protocol):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.taken = b""

    def data_received(self, data: bytes) -> None:
        self.taken += data


def test_what_passes_a_stream_is_heard_and_not_changed() -> None:
    heard = Heard()

    def listen_to(host: str, port: int) -> Ear:
        assert (host, port) == ("server", 7)
        return heard

    async def talk() -> bytes:
        async with World() as world:
            server = world.host("server").network
            await server.listen(Echo, "server", 7)
            network = ListeningNetwork(world.host("client").network, listen_to)
            transport, taker = await network.connect(Taker, "server", 7)
            for part in (EVERYTHING[:2], EVERYTHING[2:8], EVERYTHING[8:]):
                transport.write(part)
                await asyncio.sleep(1)
            return taker.taken

    assert simulate(0, talk).result == EVERYTHING
    assert heard.sent_frames == heard.received_frames == FRAMES


@given(st.lists(st.binary(max_size=5)), st.data())
def test_frames_are_those_that_are_whole(contents: list[bytes], data: st.DataObject) -> None:
    whole = [len(each).to_bytes(4, "big") + each for each in contents]
    stream = b"".join(whole)
    cut = data.draw(st.integers(0, len(stream)))
    found = list(frames(stream[:cut]))
    assert found == whole[: len(found)]
    assert len(found) == len(whole) or len(b"".join(whole[: len(found) + 1])) > cut
