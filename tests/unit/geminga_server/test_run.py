"""A part runs on uvloop, ends when asked, in bounded time, with the right exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from geminga_runtime.errors import GemingaError
from geminga_server import run
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE
from geminga_server.errors import ServerStartError
from geminga_server.run import ExitCode, StopRequest, is_uvloop_running, run_part, stop_signals

OPEN_FILES = 65_536

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")


@pytest.fixture(autouse=True)
def open_files(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits that parts ask for: what this machine allows is no matter of these tests."""
    asked: list[int] = []

    def raise_limit() -> int:
        asked.append(OPEN_FILES)
        return OPEN_FILES

    monkeypatch.setattr(run, "raise_limit", raise_limit)
    monkeypatch.delenv(CONTROL_SOCKET_VARIABLE, raising=False)
    return asked


def test_a_part_raises_its_limit_on_open_files_first(open_files: list[int]) -> None:
    seen: list[int] = []

    async def main(_stop: StopRequest) -> None:
        seen.extend(open_files)

    assert run_part(main) is ExitCode.OK
    assert seen == [OPEN_FILES]


def test_a_low_limit_is_said_with_what_would_be_right(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "raise_limit", lambda: 1_024)
    run.prepare_open_files()
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.__dict__["open_files"] == 1_024
    assert "LimitNOFILE=65536" in line.__dict__["how"]


def test_a_low_limit_is_said_by_the_supervisor_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "raise_limit", lambda: 1_024)
    monkeypatch.setenv(CONTROL_SOCKET_VARIABLE, "/control.sock")
    run.prepare_open_files()
    assert not caplog.records


def test_a_part_runs_on_uvloop_and_ends_well() -> None:
    seen: list[bool] = []

    async def main(_stop: StopRequest) -> None:
        seen.append(is_uvloop_running())

    assert run_part(main) is ExitCode.OK
    assert seen == [True]


def test_another_loop_is_told_apart() -> None:
    async def ask() -> bool:
        return is_uvloop_running()

    assert not asyncio.run(ask())


def test_without_uvloop_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(_stop: StopRequest) -> None:
        raise AssertionError("never runs")

    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_part(main) is ExitCode.REFUSED
    assert "geminga[server]" in caplog.records[0].__dict__["reason"]
    with pytest.raises(ServerStartError):
        run.uvloop_factory()


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_what_is_open(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []

    async def main(_stop: StopRequest) -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    with caplog.at_level(logging.INFO):
        assert run_part(main) is ExitCode.OK
    assert events == ["closed"]
    assert caplog.records[0].__dict__["reason"] == f"signal {number.name}"


@pytest.mark.usefixtures("ignored")
def test_a_signal_that_is_to_be_ignored_stays_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_stop: StopRequest) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.get_running_loop().create_future()

    assert stop_signals(signal.SIGHUP) == [signal.SIGTERM]
    with caplog.at_level(logging.INFO):
        assert run_part(main) is ExitCode.OK
    assert caplog.records[0].__dict__["reason"] == "signal SIGTERM"


@pytest.mark.usefixtures("heeded")
def test_otherwise_every_way_to_stop_is_listened_to() -> None:
    wanted = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    assert stop_signals(signal.SIGHUP) == wanted


def test_the_first_reason_to_stop_is_the_one_that_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def main(stop: StopRequest) -> None:
        stop.ask("the supervisor said so")
        stop.ask("again")
        await asyncio.get_running_loop().create_future()

    with caplog.at_level(logging.INFO):
        assert run_part(main) is ExitCode.OK
    assert caplog.records[0].__dict__["reason"] == "the supervisor said so"


@pytest.mark.usefixtures("heeded")
def test_callbacks_are_called_before_any_service_closes() -> None:
    events: list[str] = []

    async def main(stop: StopRequest) -> None:
        stop.callbacks.append(lambda: events.append("asked"))
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.get_running_loop().create_future()
        finally:
            events.append("closed")
            stop.ask("again")

    assert run_part(main) is ExitCode.OK
    assert events == ["asked", "closed"]


def test_an_error_we_have_a_name_for_is_said_without_a_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(_stop: StopRequest) -> None:
        raise GemingaError("no ZooKeeper answered")

    assert run_part(main) is ExitCode.REFUSED
    assert caplog.records[0].__dict__["reason"] == "no ZooKeeper answered"
    assert caplog.records[0].exc_info is None


def test_an_unexpected_error_is_logged_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(_stop: StopRequest) -> None:
        raise ZeroDivisionError

    assert run_part(main) is ExitCode.FAILED
    assert caplog.records[0].exc_info is not None


def test_an_error_while_closing_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def main(stop: StopRequest) -> None:
        stop.ask("test")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise ZeroDivisionError

    assert run_part(main) is ExitCode.FAILED
    assert caplog.records[-1].getMessage() == "part failed"


def python(source: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_close_that_hangs_is_cut_off_and_its_tasks_are_named() -> None:
    process = python(
        """
        import asyncio, logging, sys
        from geminga_server.run import run_part
        logging.basicConfig(format="%(message)s %(tasks)s", level=logging.ERROR)
        async def main(stop):
            stop.ask("test")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(1000)
        sys.exit(run_part(main, close_timeout_s=0.05))
        """
    )
    _, errors = process.communicate(timeout=30)
    assert process.returncode == ExitCode.STUCK
    assert "part did not close in time" in errors
    assert "'part'" in errors
