"""One supervisor for each data directory: the lock that says so, and whose it is.

The children inherit the lock, so that it is free only when the last process that works on the
data is gone. After a ``kill -9`` of the supervisor its children die within milliseconds; a new
supervisor that comes sooner waits for them. One that finds its predecessor alive is refused.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from geminga_cli.errors import DataDirectoryInUse
from geminga_runtime.clock import Clock

LOCK_NAME = "lock"
# How long the children of a dead supervisor may take to be gone. The kernel has killed them
# already; a large process needs a moment to give its memory back, and one that syncs a file is gone
# when its disk has answered.
ORPHANS_TIMEOUT_S = 20.0
POLL_S = 0.01


class DataDirectoryLock:
    """Held from construction until ``close`` and the end of every child that inherited it.

    Makes the directory where it is missing. Raises ``DataDirectoryInUse``.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.descriptor = os.open(directory / LOCK_NAME, flags, 0o644)
        try:
            self._acquire()
        except BaseException:
            os.close(self.descriptor)
            raise
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let go of our hold on the lock."""
        os.close(self.descriptor)

    def _acquire(self) -> None:
        deadline_s = self._clock.monotonic() + ORPHANS_TIMEOUT_S
        while not self._try():
            owner = self._owner()
            if owner is not None and _is_alive(owner):
                raise DataDirectoryInUse(self._directory, owner)
            if self._clock.monotonic() >= deadline_s:
                raise DataDirectoryInUse(self._directory, None)
            threading.Event().wait(POLL_S)  # no event loop yet

    def _try(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _owner(self) -> int | None:
        """The supervisor that took the lock, as it wrote into the file."""
        words = os.pread(self.descriptor, 32, 0).strip()
        return int(words) if words.isdigit() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
