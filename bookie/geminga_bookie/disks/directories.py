"""The bookie's directories: what each is called, the disk behind it, and whether it takes more.

Which directory a new file goes to is decided here, from facts that others note down: how full a
disk is (``space``), and whether it failed (``entry_log``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from geminga_bookie.disks.space import usage_of
from geminga_runtime.disk import Disk


class Directory:
    """A directory as it was configured, and its disk.

    ``capacity_bytes`` and ``free_bytes`` are what the disk said when it was asked last.
    ``is_full``: no new file is begun here while another directory takes it. ``has_failed``: the
    same, since a write or sync failed other than for want of space; until the bookie starts again.
    """

    __slots__ = ("capacity_bytes", "disk", "free_bytes", "has_failed", "is_full", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.capacity_bytes = 0
        self.free_bytes = 0
        self.is_full = False
        self.has_failed = False

    @property
    def is_preferred(self) -> bool:
        """Whether a new file should rather go here than to one that is not preferred."""
        return not self.is_full and not self.has_failed

    def measure(self) -> None:
        """Ask how full the disk is. Raises ``OSError``."""
        self.capacity_bytes = self.disk.total_bytes()
        self.free_bytes = self.disk.free_bytes()

    @property
    def usage(self) -> float:
        """The used part of the disk, 0 to 1."""
        return usage_of(self.capacity_bytes, self.free_bytes)


class Directories:
    """Directories of one kind, in the order of configuration; at least one."""

    def __init__(self, directories: Iterable[tuple[str, Disk]]) -> None:
        self._directories = [Directory(path, disk) for path, disk in directories]
        assert self._directories

    def __iter__(self) -> Iterator[Directory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    @property
    def paths(self) -> tuple[str, ...]:
        """What the directories are called."""
        return tuple(directory.path for directory in self._directories)

    @property
    def writable_count(self) -> int:
        """How many take new files."""
        return sum(directory.is_preferred for directory in self._directories)

    def for_new_file(self) -> Directory:
        """Where the next file goes: to the preferred directory with the most free space.

        Where none is preferred, to the one with the most free space all the same: what is in
        memory must go somewhere, also when the bookie takes no more. Raises ``OSError``.
        """
        if len(self._directories) == 1:
            return self._directories[0]
        return choose(self._directories)


def choose(directories: Sequence[Directory]) -> Directory:
    """The first of those with the most free space, preferred ones before others."""
    return max(directories, key=lambda each: (each.is_preferred, each.disk.free_bytes()))
