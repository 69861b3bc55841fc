"""The entry logs that are open, so that a read need not open its file first.

A bookie has more entry logs than a process should have open files. The one that was read longest
ago is closed to make room for another, but never while it is being read.
"""

from __future__ import annotations

from collections import OrderedDict

from geminga_runtime.disk import DiskFile


class OpenFile:
    """An open file and what is known of it."""

    __slots__ = ("file", "is_removed", "readers", "seed")

    def __init__(self, file: DiskFile, seed: int) -> None:
        self.file = file
        # Of the block headers' checksums.
        self.seed = seed
        # Reads that are under way, and one more for the file that is appended to. Only an idle file
        # is closed to make room for another.
        self.readers = 0
        # The file is deleted; its last reader closes it.
        self.is_removed = False


class OpenFiles:
    """Open files by the number of their log; about ``files_max``."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        # The one used longest ago first.
        self._files: OrderedDict[int, OpenFile] = OrderedDict()

    def find(self, number: int) -> OpenFile | None:
        """The open file of log ``number``, which is used now; None where it is not open."""
        open_file = self._files.get(number)
        if open_file is not None:
            self._files.move_to_end(number)
        return open_file

    async def keep(self, number: int, open_file: OpenFile) -> None:
        """Keep a file open; where there are too many, close the idle one used longest ago."""
        self._files[number] = open_file
        if len(self._files) <= self._files_max:
            return
        for old_number, old in self._files.items():
            if old.readers == 0 and old is not open_file:
                del self._files[old_number]
                await old.file.close()
                return

    async def drop(self, number: int) -> None:
        """Forget a file that is being deleted; close it now, or after its last reader."""
        open_file = self._files.pop(number, None)
        if open_file is not None:
            open_file.is_removed = True
            if not open_file.readers:
                await open_file.file.close()

    async def close(self) -> None:
        """Close every file. No read may be under way."""
        for open_file in self._files.values():
            await open_file.file.close()
        self._files.clear()
