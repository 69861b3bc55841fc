"""A whole part as its own process: says hello, serves, obeys, and never outlives its supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from geminga_runtime.control_codec import SetLogLevel
from geminga_server.control.server import ControlServer, PartSession
from geminga_server.run import ExitCode

pytestmark = pytest.mark.integration

WAIT_S = 60

PART = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from geminga_runtime.control_codec import Ready
    from geminga_server.authorization import Resource
    from geminga_server.control.client import ControlClient, PartCommands
    from geminga_server.http.server import HttpServer
    from geminga_server.logging import configure_logging
    from geminga_server.metrics import LoopLag, PartMetrics, part_app
    from geminga_server.run import is_uvloop_running, run_part

    async def healthy():
        pass

    async def main(stop):
        assert is_uvloop_running()
        metrics = PartMetrics("bookie")
        app = part_app(metrics, check_health=healthy, resource=Resource("cluster", "standalone"))
        commands = PartCommands(shutdown=stop.ask, check_health=healthy)
        async with (
            ControlClient(Path(sys.argv[1]), "bookie", "0.1.0", commands) as control,
            LoopLag(metrics),
            HttpServer(app, "127.0.0.1", 0) as http,
        ):
            control.send(Ready({"metrics": f"http://127.0.0.1:{http.port}"}))
            await asyncio.get_running_loop().create_future()

    configure_logging("bookie", is_json=True)
    sys.exit(run_part(main))
    """
)


@asynccontextmanager
async def running_part(
    path: Path,
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, PartSession]]:
    """A supervisor's control socket, and a part that said hello there."""
    sessions: asyncio.Queue[PartSession] = asyncio.Queue()
    async with ControlServer(path, sessions.put_nowait), part_process(path) as process:
        async with asyncio.timeout(WAIT_S):
            yield process, await sessions.get()


@asynccontextmanager
async def part_process(path: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", PART, str(path)], stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, list[dict[str, object]]]:
    """The exit code and the logged events."""
    async with asyncio.timeout(WAIT_S):
        _, errors = await process.communicate()
    return process.returncode, [json.loads(line) for line in errors.splitlines()]


async def test_a_part_serves_and_ends_when_it_is_told(tmp_path: Path) -> None:
    async with running_part(tmp_path / "control") as (process, session):
        addresses = await session.wait_ready()
        async with httpx.AsyncClient(base_url=addresses["metrics"], follow_redirects=True) as web:
            metrics = (await web.get("/metrics")).text
            assert (await web.get("/health")).json() == {"status": "ok"}
        assert "process_cpu_seconds_total" in metrics
        assert "geminga_bookie_event_loop_lag_seconds" in metrics
        assert (await session.check_health(10)).is_healthy
        session.channel.send(SetLogLevel("WARNING"))
        assert (await session.check_health(10)).is_healthy
        session.channel.send(SetLogLevel("INFO"))
        process.terminate()
        code, events = await ended(process)
    assert code == ExitCode.OK
    said = [(event["event"], event.get("path"), event.get("reason")) for event in events]
    assert said == [
        ("part stops", None, "signal SIGTERM"),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_part_ends_in_order_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    async with running_part(tmp_path / "control") as (process, session):
        await session.wait_ready()
        process.send_signal(number)
        code, _ = await ended(process)
        await session.lost
    assert code == ExitCode.OK


async def test_a_part_ends_when_the_channel_does(tmp_path: Path) -> None:
    async with running_part(tmp_path / "control") as (process, session):
        await session.wait_ready()
        session.channel.close()
        code, events = await ended(process)
    assert code == ExitCode.OK
    assert events[-1]["reason"] == "the supervisor is gone"


SUPERVISOR = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from geminga_server.control.server import ControlServer

    async def main():
        path = Path(sys.argv[1])
        sessions = asyncio.Queue()
        async with ControlServer(path, sessions.put_nowait):
            part = await asyncio.create_subprocess_exec(
                sys.executable, "-c", sys.argv[2], str(path)
            )
            session = await sessions.get()
            await session.wait_ready()
            print(part.pid, flush=True)
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())
    """
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
async def test_a_supervisor_that_is_killed_leaves_no_orphan(tmp_path: Path) -> None:
    supervisor = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", SUPERVISOR, str(tmp_path / "control"), PART],
        stdout=asyncio.subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            part_pid = int(await supervisor.stdout.readline())
        descriptor = os.pidfd_open(part_pid)
    finally:
        supervisor.kill()
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, gone.set)
    async with asyncio.timeout(WAIT_S):
        await supervisor.communicate()
        await gone.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)
