"""Replaying the journal at start: what a crash left only there comes back into the write cache.

Decides what a damaged place means. Groups are written one after the other, each only when the one
before is durable. So a bad group with a good one (or another file) behind it was good once: the
file is damaged, and we stop. A bad group at the very end was being written when the bookie died,
and nobody was told of it: it is cut off, and so are the zeros that were reserved behind it.

What a killed process left may be in the page cache only. Another file will follow, and then it
must not be lost with the power. To sync the last file is not enough: where a sync failed before,
the kernel has given up on those pages, shows them, and finds nothing to write. So a file that gave
groups back is written anew, and one without any is removed, because the sync of its header may be
what failed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise

from crc32c import crc32c

from geminga_bookie.errors import CorruptFile, JournalFileMissing
from geminga_bookie.formats import journal_v1 as layout
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_runtime.disk import Disk, DiskFile

log = logging.getLogger(__name__)

# Read at once; a group larger than this is read as a whole.
WINDOW_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReplayedGroup:
    """One group: its body, the file it was in, and the mark behind it.

    ``is_durable``: power may fail, and the group is there. One of the last file is when all of that
    was given out, since it is written anew then.
    """

    path: str
    body: bytes
    mark: JournalMark
    is_durable: bool


class Replay:
    """Reads the journal files on ``disk`` from ``mark`` on (None: from the first there is).

    After ``groups`` is exhausted, ``file_numbers`` are the files that exist and ``next_group`` is
    the number the next group gets.
    """

    def __init__(self, disk: Disk, mark: JournalMark | None) -> None:
        self._disk = disk
        self._mark = mark
        self.file_numbers: list[int] = []
        self.next_group = 1 if mark is None else mark.next_group
        self._is_first_group_known = mark is not None

    async def groups(self) -> AsyncGenerator[ReplayedGroup, None]:
        """The groups, oldest first. Cuts a torn tail off.

        Raises ``CorruptFile``, ``JournalFileMissing``, ``UnknownFormat``, ``OSError``.
        """
        wanted = await self.find()
        for number in wanted:
            file = await self._disk.open(layout.file_name(number))
            try:
                is_last = number == wanted[-1]
                first_group = self.next_group
                async with aclosing(self._groups_of(number, file, is_last=is_last)) as groups:
                    async for group in groups:
                        yield group
                if is_last and self.next_group != first_group:
                    await self._write_anew(file, layout.file_name(number))
            finally:
                await file.close()
            if is_last and file.size <= layout.FILE_HEADER_BYTES and not self._is_marked(number):
                await self._disk.remove(layout.file_name(number))
                self.file_numbers.remove(number)

    async def _write_anew(self, file: DiskFile, path: str) -> None:
        """Put a copy in the file's place: every byte of it is then known to be on the disk."""
        try:
            await self._disk.write_file(path, await file.read(0, file.size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            log.warning("no room to write the last journal file anew", extra={"file": path})
            await file.sync()

    def _is_marked(self, number: int) -> bool:
        """Whether the mark is in this file, which then had a durable header."""
        return self._mark is not None and self._mark.file_number == number

    async def find(self) -> list[int]:
        """Which files are to be replayed, rising. Raises ``JournalFileMissing``, ``OSError``."""
        names = await self._disk.list("")
        numbers = (layout.file_number(name) for name in names)
        self.file_numbers = sorted(number for number in numbers if number is not None)
        return self._wanted_numbers()

    def _wanted_numbers(self) -> list[int]:
        mark = self._mark
        if mark is None:
            wanted = self.file_numbers
        else:
            wanted = [number for number in self.file_numbers if number >= mark.file_number]
            if mark.file_number not in wanted:
                raise JournalFileMissing(layout.file_name(mark.file_number))
        for before, number in pairwise(wanted):
            if number != before + 1:
                raise JournalFileMissing(layout.file_name(before + 1))
        return wanted

    async def _groups_of(
        self, number: int, file: DiskFile, *, is_last: bool
    ) -> AsyncGenerator[ReplayedGroup, None]:
        path = layout.file_name(number)
        header = layout.decode_file_header(path, await file.read(0, layout.FILE_HEADER_BYTES))
        if header is None:
            # The header is made durable before anything is written behind it.
            if not is_last or file.size > layout.FILE_HEADER_BYTES:
                raise CorruptFile(path, 0, "the file's header is not what was written")
            await file.truncate(0)
            return
        offset = layout.FILE_HEADER_BYTES
        if self._mark is not None and number == self._mark.file_number:
            offset = self._mark.offset
        if file.size < offset:
            raise CorruptFile(path, file.size, f"{offset - file.size} bytes are missing")
        window = _Window(file, offset)
        while window.offset < file.size:
            body = await self._next_body(window, header.seed)
            if body is None:
                await self._cut(file, path, window.offset, header.seed, is_last=is_last)
                return
            mark = JournalMark(number, window.offset, self.next_group)
            yield ReplayedGroup(path, body, mark, is_durable=not is_last)

    async def _next_body(self, window: _Window, seed: int) -> bytes | None:
        """The body of the group at the window's offset, which moves on; None if it is bad."""
        head = await window.peek(layout.GROUP_HEADER_BYTES)
        header = layout.decode_group_header(seed, head, 0)
        if header is None:
            return None
        if self._is_first_group_known and header.number != self.next_group:
            return None
        size = layout.GROUP_HEADER_BYTES + header.body_bytes
        group = await window.peek(size)
        body = group[layout.GROUP_HEADER_BYTES :]
        if len(group) < size or crc32c(body) != header.body_crc:
            return None
        window.skip(size)
        self.next_group = header.number + 1
        self._is_first_group_known = True
        return body

    async def _cut(
        self, file: DiskFile, path: str, offset: int, seed: int, *, is_last: bool
    ) -> None:
        """Cut the file at a bad group; raise where it was a good one once."""
        if not is_last:
            raise CorruptFile(path, offset, "a group is not what was written, and a file follows")
        tail = await file.read(offset + 1, file.size)
        if layout.find_group_header(seed, tail) >= 0:
            what = "a group is not what was written, and another group follows"
            raise CorruptFile(path, offset, what)
        if tail.count(0) < len(tail):
            log.warning(
                "journal ends in the middle of a group, which nobody was told of: cut off",
                extra={"file": path, "offset": offset, "cut_bytes": file.size - offset},
            )
        await file.truncate(offset)


class _Window:
    """A file read ahead in big pieces, consumed in small ones."""

    def __init__(self, file: DiskFile, offset: int) -> None:
        self._file = file
        self._buffer = b""
        self._start = offset
        self.offset = offset

    async def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end of the file."""
        position = self.offset - self._start
        if position + size > len(self._buffer):
            self._buffer = await self._file.read(self.offset, max(size, WINDOW_BYTES))
            self._start = self.offset
            position = 0
        return self._buffer[position : position + size]

    def skip(self, size: int) -> None:
        self.offset += size
