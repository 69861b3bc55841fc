"""The entry logs that are open, so that a read need not open its file first.

A bookie has more entry logs than a process should have open files. The one that was read longest
ago is closed to make room for another, but never while it is being read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from geminga_bookie.disks.directories import Directory
from geminga_bookie.entry_logs.log_scan import read_seed
from geminga_bookie.errors import CorruptFile, LogRemoved
from geminga_bookie.formats.entry_log_v1 import file_name
from geminga_runtime.disk import DiskFile


@dataclass(slots=True, eq=False)
class OpenFile:
    """An open file and what is known of it."""

    file: DiskFile
    # Of the block headers' checksums.
    seed: int
    # Reads that are under way, and one more for the file that is appended to. Only an idle file is
    # closed to make room for another.
    readers: int = 0
    # The file is deleted; its last reader closes it.
    is_removed: bool = False


@dataclass(slots=True, eq=False)
class OpenFiles:
    """Open files by the number of their log; about ``files_max``."""

    # In which directory each log is that exists. ``entry_log`` changes it. It is the dict of
    # ``EntryLog`` itself, so that a log that is being removed is gone here at once.
    homes: Mapping[int, Directory]
    files_max: int
    # The one used longest ago first.
    _files: OrderedDict[int, OpenFile] = field(init=False, default_factory=OrderedDict)

    @asynccontextmanager
    async def reading(self, number: int) -> AsyncGenerator[tuple[DiskFile, int], None]:
        """Open a file for reading blocks, with the seed of their headers.

        It can be read to the end of the block of code, also if it is removed meanwhile. Raises
        ``LogRemoved``, ``CorruptFile``, ``UnknownFormat``, ``OSError``.
        """
        open_file = await self.get(number)
        # Nothing is awaited in between: an open file that has a reader is not closed.
        open_file.readers += 1
        try:
            yield open_file.file, open_file.seed
        finally:
            open_file.readers -= 1
            # The last reader closes a file that was deleted meanwhile: on POSIX its bytes are there
            # until then.
            if open_file.is_removed and not open_file.readers:
                await open_file.file.close()

    async def get(self, number: int) -> OpenFile:
        """The file of log ``number``, opened if it is not open. Raises like ``reading``."""
        open_file = self._files.get(number)
        if open_file is not None:
            self._files.move_to_end(number)
            return open_file
        name = file_name(number)
        home = self.homes.get(number)
        if home is None:
            raise LogRemoved(name)
        file = await home.disk.open(name)
        # The stack closes the file on every way out but the one on which it is kept.
        async with AsyncExitStack() as unless_kept:
            unless_kept.push_async_callback(file.close)
            seed = await read_seed(file, home.path_of(name))
            # While the disk was waited for, the file may have been removed (opening it may then
            # have made a new one), or another reader may have opened it.
            if number not in self.homes:
                await home.disk.remove(name)
                raise LogRemoved(name)
            if seed is None:
                raise CorruptFile(home.path_of(name), 0, "its header is not what was written")
            open_file = self._files.get(number)
            if open_file is not None:
                self._files.move_to_end(number)
                return open_file
            unless_kept.pop_all()
        open_file = OpenFile(file, seed)
        await self.keep(number, open_file)
        return open_file

    async def keep(self, number: int, open_file: OpenFile) -> None:
        """Keep a file open; where there are too many, close the idle one used longest ago."""
        self._files[number] = open_file
        if len(self._files) <= self.files_max:
            return
        # At most one file goes for the one that came. Where all are being read, there are more than
        # ``files_max`` for a while.
        for old_number, old in self._files.items():
            if old.readers == 0 and old is not open_file:
                # Taken off the list before the wait: a read that comes meanwhile opens the file
                # anew.
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
