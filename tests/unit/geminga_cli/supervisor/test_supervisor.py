"""Proves that the supervisor does what the fleet decides, with small real processes as parts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from geminga_cli.gate import Gate
from geminga_cli.supervisor import supervisor as supervisor_module
from geminga_cli.supervisor.endpoints import PartEndpoints
from geminga_cli.supervisor.lifecycle.fleet import HANGS, Fleet
from geminga_cli.supervisor.lifecycle.orders import PartRules, Start
from geminga_cli.supervisor.process import Command, Process
from geminga_cli.supervisor.supervisor import Launched, Supervisor
from geminga_runtime.clock import SystemClock
from geminga_runtime.network import AsyncioNetwork
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE

CLOCK = SystemClock()
WAIT_S = 60

# A part in a few lines: waits at the gate, says that it is ready, and notes what happens to it.
PART = """
import asyncio, os, signal, sys
from pathlib import Path
from geminga_cli.gate import pass_gate
from geminga_runtime.control_codec import Ready
from geminga_server.control.client import ControlClient, PartCommands

name, notes, manner = sys.argv[1:]

def note(word):
    with open(notes, "a") as file:
        file.write(f"{name} {word}\\n")

def obey(level):
    note(f"logs {level}")
    os._exit(0)

async def main():
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if manner == "deaf":
        loop.add_signal_handler(signal.SIGTERM, lambda: note("ignores"))
    else:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    commands = PartCommands(shutdown=lambda reason: stop.set(), set_log_level=obey)
    path = Path(os.environ["GEMINGA_CONTROL_SOCKET"])
    async with ControlClient(path, name, "1", commands) as client:
        note("serves")
        if manner != "slow":
            client.send(Ready({"pulsar": f"pulsar://{name}"}))
        await stop.wait()
    note("stops")

note("starts")
if not pass_gate(os.environ, []):
    note("is left alone")
    sys.exit(0)
if manner == "broken":
    sys.exit(2)
asyncio.run(main())
"""


class SmallPart:
    """A part that runs ``PART``."""

    def __init__(
        self, directory: Path, name: str, *, needs: tuple[str, ...] = (), manner: str = "good"
    ) -> None:
        stop_deadline_s = 0.5 if manner == "deaf" else WAIT_S
        self.rules = PartRules(name, stop_deadline_s, needs=needs)
        self.log_file: Path | None = None
        self._directory = directory
        self._manner = manner
        self._gate: Gate | None = None

    def launch(self) -> Process:
        self._gate = gate = Gate()
        notes = str(self._directory / "notes")
        command = Command(
            [sys.executable, "-c", PART, self.rules.name, notes, self._manner],
            {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                CONTROL_SOCKET_VARIABLE: str(self._directory / "control.sock"),
                **gate.variables(),
            },
        )
        try:
            return Process(command, [gate.entrance])
        finally:
            gate.give_entrance_away()

    def release(self) -> None:
        assert self._gate is not None
        self._gate.open()
        self._gate.close()


class FlakyPart(SmallPart):
    """A part whose next ``refusals`` launches find a full disk."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory, name)
        self.refusals = 0
        self.refused = asyncio.Event()

    def launch(self) -> Process:
        if self.refusals:
            self.refusals -= 1
            self.refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().launch()


class Stage:
    """A supervisor with parts, and everything that was heard of them."""

    def __init__(self, directory: Path, *parts: SmallPart, hang_limit_s: float = 0.0) -> None:
        self.directory = directory
        self.parts = {part.rules.name: part for part in parts}
        self.hang_limit_s = hang_limit_s
        self.heard: asyncio.Queue[Mapping[str, PartEndpoints]] = asyncio.Queue()
        self.supervisor: Supervisor | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Supervisor, None]:
        fleet = Fleet([part.rules for part in self.parts.values()])
        orders = fleet.begin(CLOCK.monotonic())
        processes = {
            order.part: self.parts[order.part].launch()
            for order in orders
            if isinstance(order, Start)
        }
        rest = [order for order in orders if not isinstance(order, Start)]
        supervisor = Supervisor(
            fleet,
            self.parts,
            Launched(processes, rest),
            control_socket=self.directory / "control.sock",
            network=AsyncioNetwork(),
            clock=CLOCK,
            on_ready=lambda endpoints: self.heard.put_nowait(dict(endpoints)),
            add_part=self.add_part,
            hang_limit_s=self.hang_limit_s,
        )
        async with asyncio.timeout(WAIT_S), supervisor:
            try:
                yield supervisor
            finally:  # a failed test leaves no process to the next one
                if not supervisor.finished.done():
                    supervisor.stop()
                    await supervisor.finished

    def add_part(self, kind: str) -> SmallPart:
        part = self.parts[kind] = SmallPart(self.directory, kind)
        return part

    def notes(self) -> list[str]:
        return (self.directory / "notes").read_text().splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(
        tmp_path, SmallPart(tmp_path, "first"), SmallPart(tmp_path, "second", needs=("first",))
    )


async def test_parts_start_in_the_order_of_their_needs_and_stop_the_other_way(stage: Stage) -> None:
    async with stage.running() as supervisor:
        endpoints = await stage.heard.get()
        assert {name: part.addresses for name, part in endpoints.items()} == {
            "first": {"pulsar": "pulsar://first"},
            "second": {"pulsar": "pulsar://second"},
        }
        supervisor.stop()
        assert await supervisor.finished is None
    notes = [note for note in stage.notes() if not note.endswith("starts")]
    assert notes == ["first serves", "second serves", "second stops", "first stops"]


def kill(part: PartEndpoints) -> None:
    assert part.pid is not None
    os.kill(part.pid, signal.SIGKILL)


async def test_a_killed_part_is_started_again_and_announced_again(stage: Stage) -> None:
    async with stage.running():
        before = await stage.heard.get()
        pid = before["first"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        after = await stage.heard.get()
        assert after["first"].pid not in (None, pid)
        assert after["second"].pid == before["second"].pid


async def test_a_part_that_could_not_be_launched_is_tried_again_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    part = FlakyPart(tmp_path, "first")
    stage = Stage(tmp_path, part, SmallPart(tmp_path, "second"))
    async with stage.running():
        before = await stage.heard.get()
        part.refusals = 2
        kill(before["first"])
        after = await stage.heard.get()
        assert after["first"].pid not in (None, before["first"].pid)
    said = [one for one in caplog.records if one.message == "part could not be launched"]
    assert [one.__dict__["child"] for one in said] == ["first", "first"]
    assert "No space left on device" in said[0].__dict__["reason"]


async def test_a_part_that_cannot_be_launched_does_not_keep_the_others_from_stopping(
    tmp_path: Path,
) -> None:
    part = FlakyPart(tmp_path, "second")
    stage = Stage(tmp_path, SmallPart(tmp_path, "first"), part)
    async with stage.running() as supervisor:
        before = await stage.heard.get()
        part.refusals = 1_000_000
        kill(before["second"])
        await part.refused.wait()
        supervisor.stop()
        assert await supervisor.finished is None
    assert stage.notes()[-1] == "first stops"


async def test_a_part_that_gives_no_sign_of_life_is_killed_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [SmallPart(tmp_path, "first"), SmallPart(tmp_path, "second")]
    stage = Stage(tmp_path, *parts, hang_limit_s=3.0)
    async with stage.running():
        before = await stage.heard.get()
        pid = before["first"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        after = await stage.heard.get()
        assert after["first"].pid not in (None, pid)
        assert after["second"].pid == before["second"].pid
    assert HANGS in {record.__dict__.get("reason") for record in caplog.records}


async def test_a_part_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SmallPart(tmp_path, "first", manner="deaf"))
    async with stage.running() as supervisor:
        await stage.heard.get()
        supervisor.stop()
        assert await supervisor.finished is None
    assert stage.notes()[-1] == "first ignores"


async def test_a_part_that_cannot_run_ends_everything_and_is_named(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, SmallPart(tmp_path, "first"), SmallPart(tmp_path, "second", manner="broken")
    )
    async with stage.running() as supervisor:
        assert await supervisor.finished == "second"
    assert stage.heard.empty()


@pytest.mark.usefixtures("ignored")
async def test_a_signal_that_was_ignored_from_the_start_stays_so(stage: Stage) -> None:
    async with stage.running() as supervisor:
        await stage.heard.get()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)
        supervisor.stop()
        assert await supervisor.finished is None, (
            "asked once, in order: a second would be impatience"
        )
        assert supervisor.returncodes["second"] == 0


@pytest.fixture
def log_level() -> Generator[None]:
    """Gives the level of this process back."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.mark.usefixtures("log_level")
async def test_a_signal_makes_all_parts_log_more_and_the_next_less(tmp_path: Path) -> None:
    """The part ends when it is told a level: each new process shows that its level was told."""
    stage = Stage(tmp_path, SmallPart(tmp_path, "first"))
    async with stage.running() as supervisor:
        await stage.heard.get()
        os.kill(os.getpid(), signal.SIGUSR1)
        await stage.heard.get()
        await stage.heard.get()
        assert logging.getLogger().level == logging.DEBUG
        supervisor.change_log_level()
        assert logging.getLogger().level == logging.INFO
    assert stage.notes().count("first logs DEBUG") >= 2


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_stops_everything(stage: Stage, number: signal.Signals) -> None:
    async with stage.running() as supervisor:
        await stage.heard.get()
        os.kill(os.getpid(), number)
        assert await supervisor.finished is None
        assert supervisor.returncodes["first"] == 0
    assert stage.notes()[-2:] == ["second stops", "first stops"]


async def test_a_stranger_on_the_control_channel_is_not_believed(stage: Stage) -> None:
    async with stage.running() as supervisor:
        before = await stage.heard.get()
        stranger = SmallPart(stage.directory, "first")
        process = stranger.launch()
        stranger.release()
        await ended(process)
        assert stage.heard.empty()
        supervisor.stop()
        await supervisor.finished
    assert before["first"].pid != process.pid


async def ended(process: Process) -> None:
    """Wait for a process that no supervisor watches."""
    over = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, over.set)
    await over.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)
    process.poll()


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As on a system whose kernel does not tell when a process ends."""
    return lambda: monkeypatch.delattr(os, "pidfd_open")


async def test_the_end_of_a_part_is_noticed_without_the_kernels_help(
    stage: Stage, polled: Callable[[], None]
) -> None:
    polled()
    async with stage.running():
        before = await stage.heard.get()
        pid = before["second"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert (await stage.heard.get())["second"].pid != pid


async def test_logs_are_looked_at_again_and_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: asyncio.Queue[Path] = asyncio.Queue()

    def look(path: Path) -> bool:
        looked.put_nowait(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor_module, "LOG_LOOK_S", 0.01)
    monkeypatch.setattr(supervisor_module, "shorten_log", look)
    log = stage.parts["first"].log_file = stage.directory / "first.log"
    async with stage.running():
        assert [await looked.get(), await looked.get()] == [log, log]


async def test_restarts_are_counted_on_the_metrics_page(stage: Stage) -> None:
    async with stage.running() as supervisor:
        before = await stage.heard.get()
        pid = before["second"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await stage.heard.get()
        text = await supervisor.render_metrics()
    assert 'geminga_supervisor_restarts_total{part="first"} 0\n' in text
    assert 'geminga_supervisor_restarts_total{part="second"} 1\n' in text
