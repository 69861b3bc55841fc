"""A part whose ZooKeeper is gone ends in time, and one that finds none at its start says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.relay import Wire

from geminga_server.run import ExitCode

WAIT_S = 60
NO_SERVER = "127.0.0.1:1"


@asynccontextmanager
async def part(
    name: str, *options: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A part, and what it logs; killed at the end, if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "geminga_cli", name, *options), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        yield process, process.stderr
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def words_come(log: asyncio.StreamReader, words: str) -> str:
    """The first line of a log that has these words."""
    async with asyncio.timeout(WAIT_S):
        while line := (await log.readline()).decode():
            if words in line:
                return line
    raise AssertionError(f"the log ended without: {words}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster of its own: what dies here is named in its ZooKeeper for some seconds more."""
    running = StandaloneProcess.start(tmp_path_factory.mktemp("cluster") / "data")
    yield running
    running.stop()


@pytest.mark.parametrize("is_silent", [False, True], ids=["gone", "silent"])
@pytest.mark.parametrize("name", ["broker", "bookie", "autorecovery"])
async def test_a_part_that_ends_without_zookeeper_ends_in_order(
    cluster: StandaloneProcess, tmp_path: Path, name: str, *, is_silent: bool
) -> None:
    # Before it serves, a broker stores a message: it owns a bundle and writes to a ledger.
    options = {
        "broker": ("--cluster", "standalone", "--port", "0", "--web-port", "0"),
        "bookie": ("--data-directory", str(tmp_path), "--port", "0", "--http-port", "0"),
        "autorecovery": ("--http-port", "0"),
    }
    async with (
        Wire(str(cluster.endpoints["zookeeper"]["address"])) as wire,
        part(name, "--zookeeper", wire.address, *options[name]) as (process, log),
    ):
        await words_come(log, "serves")
        if is_silent:
            wire.is_deaf = True
        else:
            wire.refuses = True
            wire.cut()
            await words_come(log, "zookeeper connection lost")
        process.terminate()
        async with asyncio.timeout(WAIT_S):
            _, rest = await process.communicate()
    assert process.returncode == ExitCode.OK, rest.decode()


@pytest.mark.parametrize("name", ["broker", "bookie", "autorecovery"])
async def test_a_part_that_finds_no_zookeeper_says_what_it_waits_for_and_then_gives_up(
    tmp_path: Path, name: str
) -> None:
    options = {
        "broker": ("--port", "0", "--web-port", "0"),
        "bookie": ("--data-directory", str(tmp_path), "--port", "0", "--http-port", "0"),
        "autorecovery": ("--http-port", "0"),
    }
    where = ("--zookeeper", NO_SERVER, "--zookeeper-connect-timeout-s", "1.5")
    async with part(name, *where, *options[name]) as (process, log):
        waiting = await words_come(log, "waiting for zookeeper")
        assert f"hosts={NO_SERVER}" in waiting
        assert "Connection refused" in waiting
        rest = (await log.read()).decode().splitlines()
        assert await process.wait() == ExitCode.REFUSED
    (last,) = rest
    assert f"no ZooKeeper answered at {NO_SERVER} within 1.5 s" in last
