"""A channel carries messages over a socket of any path, and cuts off who misbehaves."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from geminga_runtime.control_codec import CONTROL, Drained, Ready, SetLogLevel
from geminga_server.control import channel
from geminga_server.control.channel import Channel
from geminga_server.errors import ControlError


class End:
    """One end, with what it got."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[object] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.channel = Channel(self._note, lambda _channel: self.lost.set())

    def _note(self, _channel: Channel, message: object) -> None:
        if message == SetLogLevel("refuse me"):
            raise ControlError("no business here")
        self.messages.put_nowait(message)


class Pair:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.accepted: asyncio.Queue[End] = asyncio.Queue()

    def accept(self) -> Channel:
        end = End()
        self.accepted.put_nowait(end)
        return end.channel

    async def connect(self) -> tuple[End, End]:
        near = End()
        await channel.connect(self.path, lambda: near.channel)
        return near, await self.accepted.get()


@pytest.fixture
async def make_pair(tmp_path: Path) -> AsyncIterator[Callable[[str], asyncio.Future[Pair]]]:
    servers: list[asyncio.Server] = []

    async def make(name: str) -> Pair:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pair = Pair(path)
        servers.append(await channel.listen(path, pair.accept))
        return pair

    yield lambda name: asyncio.ensure_future(make(name))
    for server in servers:
        server.close()


MakePair = Callable[[str], "asyncio.Future[Pair]"]


@pytest.mark.parametrize("name", ["control", "/".join(["d" * 50] * 4) + "/control"])
async def test_messages_go_both_ways_however_long_the_path(make_pair: MakePair, name: str) -> None:
    near, far = await (await make_pair(name)).connect()
    near.channel.send(Ready({"web": "http://x"}))
    assert await far.messages.get() == Ready({"web": "http://x"})
    far.channel.send(Drained())
    assert await near.messages.get() == Drained()
    near.channel.close()
    await far.lost.wait()
    assert not far.channel.is_open
    far.channel.send(Drained())
    far.channel.close()


async def test_only_its_owner_may_open_the_socket(make_pair: MakePair) -> None:
    pair = await make_pair("control")
    assert stat.S_IMODE(pair.path.stat().st_mode) == 0o600


async def test_a_socket_left_by_an_earlier_life_is_replaced(make_pair: MakePair) -> None:
    await make_pair("control")
    near, far = await (await make_pair("control")).connect()
    near.channel.send(Drained())
    assert await far.messages.get() == Drained()
    near.channel.close()
    await far.lost.wait()


async def test_a_path_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await channel.listen(tmp_path / "missing" / "control", lambda: End().channel)
    with pytest.raises(OSError, match="No such file"):
        await channel.connect(tmp_path / "control", lambda: End().channel)


@pytest.mark.parametrize("garbage", [b"\xff" * 8, b"\x00\x00\x00\x02\x01\xc1"])
async def test_garbage_ends_the_channel(
    make_pair: MakePair, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pair = await make_pair("control")
    reader, writer = await asyncio.open_unix_connection(str(pair.path))
    far = await pair.accepted.get()
    writer.write(garbage + CONTROL.encode(Drained()))
    await far.lost.wait()
    assert far.messages.empty()
    assert caplog.records[0].getMessage() == "control peer misunderstood"
    writer.close()
    await asyncio.gather(reader.read(), return_exceptions=True)


async def test_a_message_that_is_refused_ends_the_channel(make_pair: MakePair) -> None:
    near, far = await (await make_pair("control")).connect()
    near.channel.send(SetLogLevel("refuse me"))
    near.channel.send(Drained())
    await far.lost.wait()
    await near.lost.wait()
    assert far.messages.empty()


async def test_a_kind_of_a_newer_peer_is_ignored(
    make_pair: MakePair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pair = await make_pair("control")
    _, writer = await asyncio.open_unix_connection(str(pair.path))
    far = await pair.accepted.get()
    frame = CONTROL.encode(Drained())
    writer.write(frame.replace(b"Drained", b"Drowned") + frame)
    assert await far.messages.get() == Drained()
    assert caplog.records[0].__dict__["kind"] == "Drowned"
    writer.close()
    await far.lost.wait()


async def test_a_peer_that_takes_nothing_is_cut_off(make_pair: MakePair) -> None:
    pair = await make_pair("control")
    reader, writer = await asyncio.open_unix_connection(str(pair.path))
    far = await pair.accepted.get()
    writer.write(CONTROL.encode(Drained()))
    await far.messages.get()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    message = SetLogLevel("x" * 60_000)
    for _ in range(100):
        far.channel.send(message)
    await far.lost.wait()
    writer.transport.abort()


async def test_a_channel_closed_before_it_began_never_begins(make_pair: MakePair) -> None:
    pair = await make_pair("control")
    near = End()
    near.channel.close()
    await channel.connect(pair.path, lambda: near.channel)
    far = await pair.accepted.get()
    await near.lost.wait()
    await far.lost.wait()
    assert not near.channel.is_open
