"""The bookie's directories: whether they can be used, and which of them a new file goes to.

The decision is made from facts that others note down on a ``Directory``: how full its disk is
(``space_watch``), and whether it failed (``entry_log``). What is in the directories is the business
of ``identity``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from geminga_bookie.decisions.disk_space import usage_of
from geminga_bookie.errors import DirectoriesClash
from geminga_runtime.disk import Disk
from geminga_server.directories import require_directory

# What identifies a directory: its device and inode, which all its links and mounts share; the path
# without links of one that does not exist yet.
_DirectoryKey = tuple[int, int] | Path


@dataclass(slots=True, eq=False)
class Directory:
    """A directory as the settings name it, and the disk behind it."""

    path: str
    disk: Disk
    # What the disk said when ``space_watch`` measured it last. 0 before the first measure, and
    # where the disk did not answer: ``usage`` is 1 then.
    capacity_bytes: int = 0
    free_bytes: int = 0
    # No new file is begun here while another directory takes it.
    is_full: bool = False
    # The same, since a write or sync failed for another reason than want of space. Only a restart
    # resets it: nothing shows that the disk is well again.
    has_failed: bool = False

    @property
    def is_preferred(self) -> bool:
        """Whether a new file should rather go here than to a directory that is not preferred."""
        return not self.is_full and not self.has_failed

    def path_of(self, name: str) -> str:
        """What a file in it is called in messages."""
        return f"{self.path}/{name}" if self.path else name

    @property
    def usage(self) -> float:
        """The used part of the disk, 0 to 1."""
        return usage_of(self.capacity_bytes, self.free_bytes)


class Directories:
    """The directories of one kind, journal or ledger, in the settings' order; at least one."""

    def __init__(self, directories: Iterable[tuple[str, Disk]]) -> None:
        # These objects stay the same as long as the bookie lives: what is noted on one of them, all
        # see.
        self._directories = [Directory(path, disk) for path, disk in directories]
        assert self._directories
        # As the settings name them.
        self.paths = tuple(directory.path for directory in self._directories)

    def __iter__(self) -> Iterator[Directory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    @property
    def writable_count(self) -> int:
        """How many directories take new files."""
        return sum(directory.is_preferred for directory in self._directories)

    def for_new_file(self) -> Directory:
        """The directory that the next file goes to: the preferred one with the most free space.

        Where none is preferred, it is the one with the most free space all the same: a checkpoint
        of what is in memory must go somewhere, also when the bookie takes no more adds. Raises
        ``OSError``.
        """
        if len(self._directories) == 1:
            return self._directories[0]
        # Asked now: what was measured a few seconds ago may have been used up since.
        return max(self._directories, key=lambda each: (each.is_preferred, each.disk.free_bytes()))


def require_usable(journals: Sequence[Path], ledgers: Sequence[Path], index: Path) -> None:
    """Raise unless a bookie can start on these directories again and again.

    Looks at the file system and changes nothing, so that a bookie that could not start a second
    time is refused at its first start, before it has written anything.

    A directory may hold a journal and entry logs at once: their files have other names. Two of one
    kind may not be the same, and none may lie in RocksDB's, which removes what it does not know.
    Raises ``DirectoryUnusable``, ``DirectoriesClash``.
    """
    # Each by itself: a directory, or none yet in a place where one can be made.
    for path in (*journals, *ledgers, index):
        require_directory(path)
    for kind, paths in (("journal", journals), ("ledger", ledgers)):
        for one, other in combinations(paths, 2):
            if _key(one) == _key(other):
                raise DirectoriesClash(kind, one, f"is the same as {other}")
        # Below the index counts as in it, however many links lead there.
        for path in paths:
            real = Path(os.path.realpath(path))
            if any(_key(each) == _key(index) for each in (real, *real.parents)):
                raise DirectoriesClash(kind, path, f"lies in that of the index, {index}")


def _key(path: Path) -> _DirectoryKey:
    real = Path(os.path.realpath(path))
    try:
        status = real.stat()
    except FileNotFoundError:
        return real
    return status.st_dev, status.st_ino
