"""The directories as the settings name them: each another one, and each a directory.

Looks at the file system and changes nothing, so that a bookie that could not start again is refused
at its first start, with nothing written. What is in the directories is ``identity``'s business.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from geminga_bookie.errors import DirectoriesClash
from geminga_server.directories import require_directory

# What a directory is known by: its device and inode, which all its links and mounts share; one that
# does not exist yet by its path without links.
_Key = tuple[int, int] | Path


def require_usable(journals: Sequence[Path], ledgers: Sequence[Path], index: Path) -> None:
    """Raise unless a bookie can start on these directories again and again.

    A directory may hold a journal and entry logs at once: their files have other names. Two of one
    kind may not be the same, and none may lie in RocksDB's, which removes what it does not know.
    Raises ``DirectoryUnusable``, ``DirectoriesClash``.
    """
    for path in (*journals, *ledgers, index):
        require_directory(path)
    for kind, paths in (("journal", journals), ("ledger", ledgers)):
        for one, other in combinations(paths, 2):
            if _key(one) == _key(other):
                raise DirectoriesClash(kind, one, f"is the same as {other}")
        for path in paths:
            if any(_key(each) == _key(index) for each in _and_above(path)):
                raise DirectoriesClash(kind, path, f"lies in that of the index, {index}")


def _and_above(path: Path) -> tuple[Path, ...]:
    real = Path(os.path.realpath(path))
    return (real, *real.parents)


def _key(path: Path) -> _Key:
    real = Path(os.path.realpath(path))
    try:
        status = real.stat()
    except FileNotFoundError:
        return real
    return status.st_dev, status.st_ino
