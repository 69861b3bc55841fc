"""Data directories: whether one can be used, and the lock that keeps other processes out of it.

The lock is a file ``lock`` in the directory, locked with ``flock``, which holds the id of the
process that took it. Child processes inherit the descriptor, so that the lock is free only when the
last process that works on the data has ended. After a ``kill -9`` of the owner its children die
within milliseconds; a successor that starts earlier waits for them. A process that finds the owner
alive is refused.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from geminga_runtime.clock import Clock
from geminga_server.errors import DirectoryInUse, DirectoryUnusable

LOCK_NAME = "lock"
# How long the children of a dead owner may take to end. The kernel has killed them already; a large
# process needs a moment to give its memory back, and one that syncs a file ends when its disk has
# answered.
ORPHANS_TIMEOUT_S = 20.0
POLL_S = 0.01


class DirectoryLock:
    """Held from construction until ``close`` and the end of every child that inherited it.

    Makes the directory where it is missing, and blocks while the children of a dead owner end.
    Raises ``DirectoryInUse``, ``DirectoryUnusable``.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        require_directory(directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # The file is never deleted: a process that has it open while another deletes and makes
            # it anew would lock a file that the other does not see, and both would own the
            # directory.
            self.descriptor = os.open(directory / LOCK_NAME, flags, 0o644)
        except OSError as error:
            raise DirectoryUnusable(directory, str(error.strerror)) from error
        try:
            self._acquire(directory, clock)
            # Only the owner writes. A process that looks in between finds no id, and waits on.
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:  # a file system without locks, or a full disk
            os.close(self.descriptor)
            raise DirectoryUnusable(directory, str(error.strerror)) from error
        except BaseException:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Release the lock; it is free once no child holds it either."""
        os.close(self.descriptor)

    def _acquire(self, directory: Path, clock: Clock) -> None:
        # What is found, and what follows:
        #
        #     the lock is free       it is ours
        #     its owner lives        refused at once
        #     its owner is dead      its children end: wait, and refuse after ``ORPHANS_TIMEOUT_S``
        #     no owner is named      it is about to write its id: wait as well
        deadline_s = clock.monotonic() + ORPHANS_TIMEOUT_S
        while True:
            # Children share the lock of the descriptor that they inherited: while one of them
            # lives, another process gets ``BlockingIOError``.
            try:
                # ``flock``, not ``lockf``: a POSIX lock belongs to the process, would not pass to
                # children, and would be lost when the process closed any descriptor of the file.
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                return
            # The file names the owner. Our own id there is that of a process in another container,
            # whose ids mean nothing here.
            words = os.pread(self.descriptor, 32, 0).strip()
            owner = int(words) if words.isdigit() else None
            # A living owner is refused at once: it would not end while we wait.
            if owner is not None and owner != os.getpid() and _is_alive(owner):
                raise DirectoryInUse(directory, owner)
            if clock.monotonic() >= deadline_s:
                raise DirectoryInUse(directory, None)
            threading.Event().wait(POLL_S)  # no event loop yet, or nothing else on it


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and belongs to another user
        return True
    return True


def require_directory(path: Path) -> None:
    """Raise ``DirectoryUnusable`` unless ``path`` is a directory that this user can write to, or
    can be made. Writes nothing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # it can perhaps be made, or something above it is a file: see below
    except OSError as error:
        raise DirectoryUnusable(path, str(error.strerror)) from error
    # The directory itself, or the lowest one above it that exists, in which it would be made.
    real = Path(os.path.realpath(path))
    # There is always one: the root directory exists.
    place = next(each for each in (real, *real.parents) if each.exists())
    if not place.is_dir():
        raise DirectoryUnusable(path, f"{place} is no directory")
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        raise DirectoryUnusable(path, f"the file system of {place} is read-only")
    if not os.access(place, os.W_OK | os.X_OK):
        raise DirectoryUnusable(path, f"this user may not write to {place}")
