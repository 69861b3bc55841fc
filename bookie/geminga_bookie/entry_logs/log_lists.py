"""Keeps in each ledger directory a list of its entry logs, and tells which of them are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.errors import CorruptFile
from geminga_bookie.formats import log_list_v1 as layout
from geminga_bookie.formats.entry_log_v1 import FILE_HEADER_BYTES, file_name


@dataclass(frozen=True, slots=True)
class Loss:
    """A file, and what it lacks, in words."""

    path: str
    what: str


class LogLists:
    """The lists of all ledger directories.

    A log is listed before anything in it counts, and unlisted before it is removed: a crash leaves
    files that are not listed, never the other way round.
    """

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._written: dict[Directory, bytes] = {}

    async def write(self, homes: Mapping[int, Directory], sizes: Mapping[int, int]) -> None:
        """From now on these are the logs, each with so many bytes at least. Raises ``OSError``."""
        for directory in self._directories:
            listed = {
                number: sizes.get(number, FILE_HEADER_BYTES)
                for number, home in homes.items()
                if home is directory
            }
            content = layout.encode(listed)
            if self._written.get(directory) != content:
                await directory.disk.write_file(layout.NAME, content)
                self._written[directory] = content

    async def losses(self, homes: Mapping[int, Directory]) -> list[Loss]:
        """What is missing, by the lists, of the logs that were found. Raises ``OSError``."""
        losses: list[Loss] = []
        for directory in self._directories:
            content = await directory.disk.read_file(layout.NAME)
            if content is None:  # there is none yet, or it was written by a version without lists
                continue
            path = _path(directory, layout.NAME)
            try:
                listed = layout.decode(path, content)
            except CorruptFile:
                losses.append(Loss(path, "it does not tell which entry logs there were"))
                continue
            for number, size in sorted(listed.items()):
                home = homes.get(number)
                found = -1 if home is None else await _size_of(home, number)
                if found < size:
                    what = "it is missing" if home is None else f"{size - found} bytes are missing"
                    losses.append(Loss(_path(home or directory, file_name(number)), what))
        return losses


async def _size_of(home: Directory, number: int) -> int:
    file = await home.disk.open(file_name(number))
    try:
        return file.size
    finally:
        await file.close()


def _path(directory: Directory, name: str) -> str:
    return f"{directory.path}/{name}" if directory.path else name
