"""One child process, which dies with the supervisor; and the file of its log.

A child is a process group of its own, so that Ctrl-C in a terminal reaches the supervisor alone,
which then stops the parts in order. The kernel kills a child whose parent is gone
(PR_SET_PDEATHSIG), Java included, which knows nothing of us. On systems without that call, a part
notices the end of its control channel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
# A longer log is put aside. ZooKeeper logs warnings only: this is years of them. Of a busy broker
# it is some days.
LOG_FILE_BYTES_MAX = 10 * 1024 * 1024
# How much of a log is read to show its end: more lines than a terminal keeps.
TAIL_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    """What a child runs."""

    words: Sequence[str]
    environment: Mapping[str, str]
    # Its output is appended to this file; None: it goes where ours goes.
    log_file: Path | None = None


class Process:
    """A running child. ``inherited`` are descriptors that it keeps, such as the data's lock.

    Raises ``OSError`` where it cannot be started.
    """

    def __init__(self, command: Command, inherited: Sequence[int] = ()) -> None:
        output: int | None = None
        if command.log_file is not None:
            # Stage 1: the file of its log. Here nothing writes to it, so it can be renamed; while
            # the process runs, ``shorten_log`` has to copy it.
            with suppress(FileNotFoundError):
                if command.log_file.stat().st_size > LOG_FILE_BYTES_MAX:
                    # In place of the one that was put aside before.
                    old = command.log_file.with_name(command.log_file.name + ".old")
                    command.log_file.rename(old)
            # O_APPEND, because ``shorten_log`` empties the file under the child.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            output = os.open(command.log_file, flags, 0o644)
        # Stage 2: the process itself.
        try:
            # The descriptors in ``inherited`` stay open in the child under the same numbers, and
            # all others are closed there (``close_fds``).
            self._popen = subprocess.Popen(  # noqa: S603 - our own words only
                command.words,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                # A part's standard output is log, too: on ours, programs read READY.
                stdout=output if output is not None else sys.stderr.fileno(),
                stderr=output if output is not None else sys.stderr.fileno(),
                pass_fds=tuple(inherited),
                # A group of its own, led by the child: Ctrl-C goes to the group in the foreground,
                # which is ours.
                process_group=0,
                # Safe because the supervisor has no threads: none holds a lock at the fork.
                preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509
            )
        finally:
            if output is not None:
                # The child has its own copy.
                os.close(output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def poll(self) -> int | None:
        """None while it runs, then its exit code, or minus the signal that ended it."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended already."""
        self._popen.send_signal(number)


def exit_words(returncode: int) -> str:
    """How a process ended, in words: ``exit code 1``, ``killed by SIGKILL``."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        # A real-time signal, which Python has no name for.
        return f"killed by signal {-returncode}"


def shorten_log(path: Path) -> bool:
    """Put a long log aside while its process keeps writing to it; returns whether it was long.

    The process keeps its descriptor, so the content is copied and the file is emptied. The process
    appends, so its next line is the first of the emptied file. What it writes between the two is
    lost. The copy replaces the one that was made before. Raises ``OSError``.
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
    """The last lines of a log file; none if nothing was logged yet."""
    try:
        with path.open("rb") as log:
            # The first line may be cut: it is one of many more than are shown.
            log.seek(max(0, path.stat().st_size - TAIL_BYTES_MAX))
            text = log.read().decode(errors="backslashreplace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]


def _die_with_parent(parent_pid: int) -> Callable[[], None] | None:
    """What the child does between fork and exec, so that the kernel kills it when we die.

    None where the system has no such call.
    """
    if sys.platform != "linux":
        return None
    # Loaded before the fork: the child should do as little as possible.
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The kernel signals the death of a parent once, and not to children that ask too late.
        if os.getppid() != parent_pid:  # the parent died before the call
            os._exit(1)

    return arrange
