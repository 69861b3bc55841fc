"""One child process: started so that it dies with us, and watched without waiting for it.

A child is its own process group, so that Ctrl-C in a terminal reaches the supervisor alone and it
can stop the parts in order. The kernel kills a child whose parent is gone (PR_SET_PDEATHSIG), also
one that is Java and knows nothing of us. On systems without that call a part notices the end of
its control channel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
# ZooKeeper only logs warnings: this is years of them. Of a busy broker it is some days.
LOG_FILE_BYTES_MAX = 10 * 1024 * 1024
# How much of a log is looked at from its end: more lines than a terminal keeps.
TAIL_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: words, environment, and where its output goes (None: where ours goes)."""

    words: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path | None = None


class Process:
    """A running child. ``inherited`` are descriptors that it keeps, such as the data's lock."""

    def __init__(self, command: Command, inherited: Sequence[int] = ()) -> None:
        output = _open_log(command.log_file) if command.log_file else None
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own words only
                command.words,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                # A part's standard output is log too: ours carries READY and nothing else.
                stdout=output if output is not None else sys.stderr.fileno(),
                stderr=output if output is not None else sys.stderr.fileno(),
                pass_fds=tuple(inherited),
                process_group=0,
                # Safe because the supervisor has no threads: nobody else holds a lock at the fork.
                preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509
            )
        finally:
            if output is not None:
                os.close(output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def poll(self) -> int | None:
        """None while it runs, then its exit code, or minus the signal that ended it."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it is gone already."""
        self._popen.send_signal(number)


def exit_words(returncode: int) -> str:
    """How a process ended, in words: ``exit code 1``, ``killed by SIGKILL``."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _open_log(path: Path) -> int:
    """Append to the log file; a long one is put aside first, in the place of the last such."""
    try:
        if path.stat().st_size > LOG_FILE_BYTES_MAX:
            path.rename(path.with_name(path.name + ".old"))
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def shorten_log(path: Path) -> bool:
    """Put a long log aside while its process goes on writing to it; whether it was long.

    The process keeps its descriptor, so the content is copied and the file emptied; it appends, so
    its next line is the first of the emptied file. What it writes between the two is lost, and the
    copy takes the place of the last such. Raises ``OSError``.
    """
    try:
        if path.stat().st_size <= LOG_FILE_BYTES_MAX:
            return False
    except FileNotFoundError:
        return False
    shutil.copyfile(path, path.with_name(path.name + ".old"))
    os.truncate(path, 0)
    return True


def log_tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log file; none where nothing was logged yet."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL_BYTES_MAX))
            text = log.read().decode(errors="backslashreplace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]


def _die_with_parent(parent_pid: int) -> Callable[[], None] | None:
    """What the child does between fork and exec, where the system can do it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it died before we could ask
            os._exit(1)

    return arrange
