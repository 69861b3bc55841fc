"""Proves that `geminga test-server` ends with the suite that uses it, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import is_running
from tests.integration.rest import rest
from tests.integration.waiting import eventually

import geminga

END_TIMEOUT_S = 200.0


@contextmanager
def running_server(
    folder: Path, *arguments: str, stdin: int = subprocess.PIPE
) -> Generator[subprocess.Popen[str]]:
    """A running one, whose temporary files are in ``folder``; it is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "geminga_cli", "test-server", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(folder)},
        text=True,
    ) as server:
        yield server
        server.kill()


def first_line(server: subprocess.Popen[str]) -> list[str]:
    assert server.stdout is not None
    return server.stdout.readline().split()


def processes_of(folder: Path) -> list[int]:
    """The processes that name the folder in their command lines: supervisor, parts, Java."""
    running = (each for each in Path("/proc").iterdir() if each.name.isdecimal())
    named = (int(each.name) for each in running if str(folder) in command_line(each))
    return list(filter(is_running, named))


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


async def test_it_says_where_it_is_and_ends_with_its_input(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        ready, service_url, web_url = first_line(server)
        assert ready == "READY"
        assert rest(web_url, "GET", "/admin/v2/tenants") == (200, ["public", "pulsar"])
        async with (
            geminga.connect(service_url) as client,
            client.consumer("orders", "test") as consumer,
            client.producer("orders") as producer,
        ):
            await producer.send(b"coffee")
            assert (await consumer.receive()).data == b"coffee"
        assert processes_of(tmp_path) != []
        assert server.stdin is not None
        server.stdin.write("what is written to it is dropped\n")
        server.stdin.close()
        assert server.wait(END_TIMEOUT_S) == 0
        assert processes_of(tmp_path) == []
        assert left_in(tmp_path) == []


@pytest.mark.parametrize("is_ready", [True, False])
def test_without_a_pipe_it_runs_until_a_signal_comes(tmp_path: Path, *, is_ready: bool) -> None:
    """A shell gives ``/dev/null`` as standard input to what it runs in the background."""
    with running_server(tmp_path, stdin=subprocess.DEVNULL) as server:
        if is_ready:
            assert first_line(server)[0] == "READY"
        else:
            eventually(lambda: processes_of(tmp_path), lambda found: len(found) > 1)
        server.send_signal(signal.SIGTERM)
        returncode = server.wait(END_TIMEOUT_S)
        assert returncode in ({0} if is_ready else {0, 128 + signal.SIGTERM})
        assert processes_of(tmp_path) == []
        assert left_in(tmp_path) == []


def test_a_killed_one_leaves_no_process(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        first_line(server)
        server.kill()
        eventually(lambda: processes_of(tmp_path), [].__eq__)


def test_it_keeps_no_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running_server(tmp_path, "--data-dir", str(tmp_path / "mine")) as server:
        assert server.wait(END_TIMEOUT_S) == 2
    assert "geminga standalone --data-dir" in capfd.readouterr().err
    assert left_in(tmp_path) == []
