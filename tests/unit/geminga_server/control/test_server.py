"""Supervisor and part understand each other, and each notices when the other is gone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_runtime.control_codec import (
    CONTROL,
    Drained,
    Fault,
    HealthRequest,
    Hello,
    Ping,
    Ready,
    SetLogLevel,
)
from geminga_runtime.errors import GemingaError
from geminga_server.control import client as client_module
from geminga_server.control import server as server_module
from geminga_server.control.client import ControlClient, PartCommands, obeying_supervisor
from geminga_server.control.server import ControlServer, PartSession
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE, PART_NAME_VARIABLE
from geminga_server.errors import ControlError


class Part:
    """A part whose commands are noted."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[object] = asyncio.Queue()
        self.trouble = ""
        self.may_drain = asyncio.Event()
        self.commands = PartCommands(
            shutdown=self.told.put_nowait,
            check_health=self._check_health,
            drain=self._drain,
            set_log_level=self.told.put_nowait,
            inject=self.told.put_nowait,
        )

    async def _check_health(self) -> None:
        if self.trouble == "hang":
            await asyncio.Event().wait()
        if self.trouble:
            raise GemingaError(self.trouble)

    async def _drain(self, deadline_s: float) -> None:
        self.told.put_nowait(deadline_s)
        await self.may_drain.wait()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control"


class Supervisor(ControlServer):
    """Notes the sessions it hears of."""

    def __init__(self, path: Path) -> None:
        self.sessions: asyncio.Queue[PartSession] = asyncio.Queue()
        super().__init__(path, self.sessions.put_nowait)


@pytest.fixture
async def server(path: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor(path) as server:
        yield server


@pytest.fixture
async def part() -> Part:
    return Part()


@asynccontextmanager
async def connected(
    server: Supervisor, path: Path, part: Part, name: str = "broker"
) -> AsyncGenerator[tuple[PartSession, ControlClient]]:
    async with ControlClient(path, name, "0.1.0", part.commands) as client:
        yield await server.sessions.get(), client


async def test_a_part_sends_its_name_and_then_its_addresses(
    server: Supervisor, path: Path, part: Part
) -> None:
    async with connected(server, path, part) as (session, client):
        assert (session.part, session.pid, session.version) == ("broker", os.getpid(), "0.1.0")
        assert server.session("broker") is session
        assert server.session("bookie") is None
        client.send(Ready({"pulsar": "pulsar://127.0.0.1:6650"}))
        assert await session.wait_ready() == {"pulsar": "pulsar://127.0.0.1:6650"}
        client.send(Ready({"pulsar": "again"}))
        assert (await session.check_health(10)).is_healthy
        assert await session.wait_ready() == {"pulsar": "pulsar://127.0.0.1:6650"}
        assert session.is_open


async def test_a_part_that_a_supervisor_started_says_where_it_serves_and_obeys(
    server: Supervisor, path: Path, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTROL_SOCKET_VARIABLE, str(path))
    monkeypatch.setenv(PART_NAME_VARIABLE, "broker-2")
    async with obeying_supervisor("broker", "0.1.0", part.commands, {"web": "http://h:1"}):
        session = await server.sessions.get()
        assert (session.part, session.version) == ("broker-2", "0.1.0")
        assert await session.wait_ready() == {"web": "http://h:1"}
        session.channel.send(SetLogLevel("DEBUG"))
        assert await part.told.get() == "DEBUG"


async def test_a_part_without_a_supervisor_gets_no_orders(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONTROL_SOCKET_VARIABLE, raising=False)
    async with obeying_supervisor("broker", "0.1.0", part.commands, {}):
        assert part.told.empty()


async def test_the_supervisor_hears_of_every_session(path: Path, part: Part) -> None:
    async with (
        Supervisor(path) as server,
        connected(server, path, part) as (first, _),
        connected(server, path, part, "bookie") as (second, _),
    ):
        assert (first.part, second.part) == ("broker", "bookie")
    assert list(path.parent.iterdir()) == [], "the socket is gone"


async def test_health_is_asked_and_answered(server: Supervisor, path: Path, part: Part) -> None:
    async with connected(server, path, part) as (session, _):
        assert (await session.check_health(10)).is_healthy
        part.trouble = "no bookie answers"
        answer = await session.check_health(10)
        assert (answer.is_healthy, answer.reason) == (False, "no bookie answers")
        part.trouble = "hang"
        answer = await session.check_health(0.01)
        assert answer.reason == "no answer from the broker within 0.01 s"


async def test_a_part_is_silent_from_a_ping_until_its_loop_turned(
    server: Supervisor, path: Path, part: Part
) -> None:
    part.trouble = "hang"  # no health answer is on its way: what is heard is the pong
    async with connected(server, path, part) as (session, _):
        silences = [session.is_silent]
        session.ping()
        silences.append(session.is_silent)
        while session.is_silent:
            assert not (await session.check_health(0.01)).is_healthy
    assert silences == [False, True]


async def test_health_checks_that_hang_do_not_pile_up(
    server: Supervisor, path: Path, part: Part
) -> None:
    part.trouble = "hang"
    async with connected(server, path, part) as (session, _):
        for _ in range(client_module.HEALTH_CHECKS_MAX):
            await session.check_health(0.01)
        answer = await session.check_health(10)
        assert answer.reason == f"{client_module.HEALTH_CHECKS_MAX} health checks hang already"


async def test_a_part_that_goes_is_not_healthy(server: Supervisor, path: Path, part: Part) -> None:
    part.trouble = "hang"
    async with connected(server, path, part) as (session, _):
        asking = asyncio.ensure_future(session.check_health(10))
        await asyncio.sleep(0)
    assert (await asking).reason == "the broker ended"
    await session.lost
    assert not session.is_open
    with pytest.raises(ControlError, match="the broker ended"):
        await session.wait_ready()
    assert server.session("broker") is None


async def test_a_part_drains_in_time_or_not(server: Supervisor, path: Path, part: Part) -> None:
    async with connected(server, path, part) as (session, _):
        with pytest.raises(ControlError, match=r"did not drain in 0\.01 s"):
            await session.drain(0.01)
        assert await part.told.get() == 0.01
        part.may_drain.set()
        await session.drain(10)


async def test_a_part_obeys(server: Supervisor, path: Path, part: Part) -> None:
    async with connected(server, path, part) as (session, _):
        session.channel.send(SetLogLevel("DEBUG"))
        session.channel.send(Fault("slow_disk", {"ms": "10"}))
        assert [await part.told.get() for _ in range(2)] == [
            "DEBUG",
            Fault("slow_disk", {"ms": "10"}),
        ]


async def test_without_commands_of_its_own_a_part_does_the_usual(
    server: Supervisor, path: Path, part: Part, caplog: pytest.LogCaptureFixture
) -> None:
    level = logging.getLogger().level
    part.commands = PartCommands(shutdown=part.told.put_nowait)
    async with connected(server, path, part) as (session, _):
        session.channel.send(SetLogLevel("LOUD"))
        session.channel.send(SetLogLevel("ERROR"))
        session.channel.send(Fault("slow_disk"))
        await session.drain(10)
        assert (await session.check_health(10)).is_healthy
        assert logging.getLogger().level == logging.ERROR
    logging.getLogger().setLevel(level)
    assert "log level not changed" in caplog.messages


async def test_a_part_shuts_down_when_the_supervisor_dies(path: Path, part: Part) -> None:
    async with Supervisor(path) as server:
        client = ControlClient(path, "broker", "0.1.0", part.commands)
        await client.__aenter__()
        await server.sessions.get()
    assert await part.told.get() == "the supervisor is gone"
    await client.__aexit__(None, None, None)


async def test_a_part_that_closes_is_not_told_that_the_supervisor_died(
    server: Supervisor, path: Path, part: Part
) -> None:
    async with connected(server, path, part) as (session, _):
        pass
    await session.lost
    assert part.told.empty()


async def test_without_a_supervisor_a_part_does_not_open(path: Path, part: Part) -> None:
    with pytest.raises(ControlError, match=f"no supervisor answers at {path}"):
        await ControlClient(path, "broker", "0.1.0", part.commands).__aenter__()


async def test_a_second_part_of_the_name_takes_the_place_of_the_first(
    server: Supervisor, path: Path, part: Part
) -> None:
    other = Part()
    async with connected(server, path, part) as (first, _):
        client = ControlClient(path, "broker", "0.2.0", other.commands)
        async with client:
            assert await part.told.get() == "the supervisor is gone"
            await first.lost
            second = await server.sessions.get()
            assert server.session("broker") is second
            assert second.version == "0.2.0"
            assert (await second.check_health(10)).is_healthy


async def raw(path: Path, *messages: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    for message in messages:
        writer.write(CONTROL.encode(message))
    return reader, writer


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "messages", [[Drained()], [Hello("broker", 1, ""), Ping()], [Hello("b", 1, "")] * 2]
)
async def test_what_parts_do_not_say_ends_the_session(
    server: Supervisor, path: Path, messages: list[object]
) -> None:
    reader, writer = await raw(path, *messages)
    assert await is_cut_off(reader)
    writer.close()
    assert server.session("broker") is None


async def test_what_supervisors_do_not_say_ends_the_part(path: Path, part: Part) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CONTROL.encode(HealthRequest(1)) + CONTROL.encode(Drained()))
        writer.close()

    listening = await asyncio.start_unix_server(talk, path)
    async with ControlClient(path, "broker", "0.1.0", part.commands):
        assert await part.told.get() == "the supervisor is gone"
    listening.close()


async def test_who_does_not_say_hello_is_cut_off(
    server: Supervisor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HELLO_TIMEOUT_S", 0.01)
    reader, writer = await raw(path)
    assert await is_cut_off(reader)
    writer.close()
    assert server.session("broker") is None


async def test_more_channels_than_there_can_be_parts_are_cut_off(
    server: Supervisor, path: Path, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CHANNELS_MAX", 1)
    async with connected(server, path, part) as (session, _):
        reader, writer = await raw(path)
        assert await is_cut_off(reader)
        writer.close()
        assert (await session.check_health(10)).is_healthy


async def test_closing_cuts_off_peers_that_said_no_hello_yet(path: Path, part: Part) -> None:
    async with Supervisor(path) as server:
        reader, writer = await raw(path)
        async with connected(server, path, part):
            pass
    assert await is_cut_off(reader)
    writer.close()


def test_commands_are_values(caplog: pytest.LogCaptureFixture) -> None:
    commands = PartCommands(shutdown=lambda _reason: None)
    assert replace(commands) == commands
    commands.inject(Fault("x"))
    assert caplog.messages == ["fault not supported"]
