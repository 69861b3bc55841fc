"""A list in each ledger directory of its entry logs, by which lost ones are missed.

The index knows every log too. The lists are for the day on which the index is lost as well: without
them a rebuild could not tell a log that was lost from one that never was.

A log is listed before any block is written to it, and unlisted before its file is removed. So a
crash leaves files that are not listed, never a list of files that were removed on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.errors import CorruptFile
from geminga_bookie.formats import log_list_v1 as layout
from geminga_bookie.formats.entry_log_v1 import FILE_HEADER_BYTES, file_name


@dataclass(frozen=True, slots=True)
class Loss:
    """A file that is missing or too short, and what it lacks, in words."""

    path: str
    what: str


@dataclass(slots=True, eq=False)
class LogLists:
    """The lists of all ledger directories."""

    directories: Directories
    # What was written last, so that lists that stay the same are not written again. Empty after a
    # start, so that the first change writes every list once.
    _written: dict[Directory, bytes] = field(init=False, default_factory=dict)

    async def write(self, homes: Mapping[int, Directory], sizes: Mapping[int, int]) -> None:
        """List these logs, each with the bytes that it has at least. Raises ``OSError``.

        A log without a size is being written to: only its header is promised.
        """
        # A list is replaced as a whole, durably. Most are the same as before, and not written.
        for directory in self.directories:
            listed = {
                number: sizes.get(number, FILE_HEADER_BYTES)
                for number, home in homes.items()
                if home is directory
            }
            content = layout.encode(listed)
            # ``_written`` changes after the write: a list that could not be written is tried again
            # with the next change.
            if self._written.get(directory) != content:
                await directory.disk.write_file(layout.NAME, content)
                self._written[directory] = content

    async def losses(self, homes: Mapping[int, Directory]) -> list[Loss]:
        """Compare the lists with the logs that were found, in ``homes``. Raises ``OSError``."""
        losses: list[Loss] = []
        for directory in self.directories:
            content = await directory.disk.read_file(layout.NAME)
            if content is None:  # there is none yet, or it was written by a version without lists
                continue
            path = directory.path_of(layout.NAME)
            try:
                listed = layout.decode(path, content)
            # A list of another version (``UnknownFormat``) is no loss, and stops the start.
            except CorruptFile:
                losses.append(Loss(path, "it does not tell which entry logs there were"))
                continue
            for number, size in sorted(listed.items()):
                # A log may have been moved to another directory: only that it is there counts.
                home = homes.get(number)
                if home is None:
                    losses.append(Loss(directory.path_of(file_name(number)), "it is missing"))
                    continue
                file = await home.disk.open(file_name(number))
                try:
                    missing = size - file.size
                finally:
                    await file.close()
                # A longer file is no loss: the list says what a log has at least.
                if missing > 0:
                    path = home.path_of(file_name(number))
                    losses.append(Loss(path, f"{missing} bytes are missing"))
        return losses
