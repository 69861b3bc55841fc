"""A program that is measured: started, watched, stopped, with all it printed kept in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.performance.rivals.processes import ProcessTree

START_S_MAX = 120.0
STOP_S_MAX = 40.0
POLL_S = 0.01
OUTPUT_NAME = "output.log"
OUTPUT_SHOWN_CHARACTERS = 3000


class ServerFailed(Exception):
    """A server ended, or did not do in time what it was to do; with the end of what it printed."""

    def __init__(self, what: str, output: Path) -> None:
        end = output.read_text(errors="replace")[-OUTPUT_SHOWN_CHARACTERS:]
        super().__init__(f"{what}. The end of its output:\n{end}")


@dataclass(frozen=True, slots=True)
class Program:
    """A process that was started, with its children."""

    process: subprocess.Popen[bytes]
    processes: ProcessTree
    output: Path
    started_at_s: float  # of time.perf_counter

    def check_alive(self) -> None:
        """Raise ``ServerFailed`` if the process ended."""
        if self.process.poll() is not None:
            raise ServerFailed(f"it ended with status {self.process.returncode}", self.output)

    def wait_until(self, is_ready: Callable[[], bool], poll_s: float = POLL_S) -> float:
        """Wait until it is; returns the seconds since the program was started."""
        deadline = self.started_at_s + START_S_MAX
        while not is_ready():
            self.check_alive()
            if time.perf_counter() > deadline:
                raise ServerFailed(f"it was not ready in {START_S_MAX:.0f} s", self.output)
            time.sleep(poll_s)
        return time.perf_counter() - self.started_at_s

    def stop(self) -> float:
        """Ask it to stop as Ctrl-C or an init system would; returns the seconds it took."""
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"it did not stop in {STOP_S_MAX:.0f} s", self.output) from None
        return time.perf_counter() - begun

    def kill(self) -> None:
        """Leave nothing of it running, whatever happened."""
        left = self.processes.pids() if self.process.poll() is None else []
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it followed its parent
        self.process.wait()


@contextmanager
def running(
    command: Sequence[str], directory: Path, environment: Mapping[str, str]
) -> Generator[Program]:
    """Start ``command`` in ``directory`` without waiting for it; at the end it is gone."""
    directory.mkdir(parents=True, exist_ok=True)
    output = directory / OUTPUT_NAME
    with output.open("wb") as stream:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=os.environ | environment,
            start_new_session=True,
        )
    program = Program(process, ProcessTree(process.pid), output, begun)
    try:
        yield program
        if process.poll() is None:
            program.stop()
    finally:
        program.kill()


def forget_pages(directory: Path) -> None:
    """Have the system drop what it keeps in memory of the files below: reads come from the disk.

    Only what is on the disk already can be dropped, so no process may be writing.
    """
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
