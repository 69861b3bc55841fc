"""Replaying the journal at start: what a crash left only there comes back into the write cache.

Groups are written one after the other, each only when the one before it is durable. That decides
what a bad group means:

- With a good group behind it, or another file, it was durable once. The file is damaged,
  acknowledged entries may be lost, and the bookie does not start.
- At the very end of the last file it was being written when the bookie died. None of its adds was
  answered, so it is cut off, and so are the zeros that were reserved behind it.

A good header with another number than the next one is never the trace of a crash: the groups that
should stand before it were durable when it was written, and they are gone. The bookie does not
start then either.

After replay the journal begins a new file, and from then on the last file is one with another file
behind it. So what it gave back must be on the disk before that, not just in the page cache of a
process that was killed. A sync is not enough: where a sync failed before, the kernel has given up
on those pages, still shows them, and finds nothing to write. So a last file that gave groups back
is written anew, and one without any is removed, because it may be the sync of its header that
failed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
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
    """One group of the journal."""

    # The file it was in, for error messages.
    path: str
    body: bytes
    # The place behind it.
    mark: JournalMark
    # Whether it survives a power cut now. Groups of the last file do only after all of it was given
    # back, when the file is written anew.
    is_durable: bool


class Replay:
    """Reads the journal files on ``disk`` from ``mark`` on; with None, from the first there is."""

    def __init__(self, disk: Disk, mark: JournalMark | None) -> None:
        self._disk = disk
        self._mark = mark
        # The files that exist: known after ``find``, and final when ``groups`` is exhausted.
        self.file_numbers: list[int] = []
        # The number of the next group. Before the first group without a mark it is only a guess:
        # older files, and the groups in them, were trimmed.
        self.next_group = 1 if mark is None else mark.next_group
        self._is_next_group_known = mark is not None

    async def find(self) -> list[int]:
        """Return which files are to be replayed, rising; changes nothing.

        Raises ``JournalFileMissing``, ``OSError``.
        """
        names = await self._disk.list("")
        numbers = (layout.file_number(name) for name in names)
        self.file_numbers = wanted = sorted(number for number in numbers if number is not None)
        # The numbers have no hole, from the mark's file on. With no mark, the first file there is
        # counts as the beginning: whether earlier ones are missing cannot be told.
        mark = self._mark
        if mark is not None:
            # Files before the mark were to be removed; a crash, or the disk, prevented it.
            wanted = [number for number in self.file_numbers if number >= mark.file_number]
            if mark.file_number not in wanted:
                raise JournalFileMissing(layout.file_name(mark.file_number))
        for before, number in pairwise(wanted):
            if number != before + 1:
                raise JournalFileMissing(layout.file_name(before + 1))
        return wanted

    async def groups(self) -> AsyncGenerator[ReplayedGroup, None]:
        """Yield the groups, oldest first; then repair the last file.

        Raises ``CorruptFile``, ``JournalFileMissing``, ``UnknownFormat``, ``OSError``.
        """
        wanted = await self.find()
        for number in wanted:
            path = layout.file_name(number)
            file = await self._disk.open(path)
            try:
                # The groups of a file that has another one behind it are durable: the journal
                # closes a file only after its last group is.
                is_last = number == wanted[-1]
                # A group more was found exactly where this number has changed.
                first_group = self.next_group
                async with aclosing(self._groups_of(number, file, is_last=is_last)) as groups:
                    async for group in groups:
                        yield group
                if is_last and self.next_group != first_group:
                    # Every byte of a copy is known to be on the disk.
                    try:
                        await self._disk.write_file(path, await file.read(0, file.size))
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        # A full disk must not keep the bookie from starting: only a bookie that
                        # runs deletes what fills it.
                        log.warning(
                            "no room to write the last journal file anew", extra={"file": path}
                        )
                        await file.sync()
            finally:
                await file.close()
            # The mark is behind a durable header: a file that it is in stays.
            is_marked = self._mark is not None and self._mark.file_number == number
            if is_last and file.size <= layout.FILE_HEADER_BYTES and not is_marked:
                # The journal then makes a file of the same number anew.
                await self._disk.remove(path)
                self.file_numbers.remove(number)

    async def _groups_of(
        self, number: int, file: DiskFile, *, is_last: bool
    ) -> AsyncGenerator[ReplayedGroup, None]:
        """Yield the groups of one file; cut off a torn end of the last file."""
        path = layout.file_name(number)
        # The header, then group after group from the mark or the beginning, until the end or a bad
        # group.
        header = layout.decode_file_header(path, await file.read(0, layout.FILE_HEADER_BYTES))
        if header is None:
            # The header is made durable before anything is written behind it.
            if not is_last or file.size > layout.FILE_HEADER_BYTES:
                raise CorruptFile(path, 0, "the file's header is not what was written")
            await file.truncate(0)
            return
        offset = layout.FILE_HEADER_BYTES
        # What lies before the mark is in the entry logs. It is not looked at, and may be damaged.
        if self._mark is not None and number == self._mark.file_number:
            offset = self._mark.offset
        if file.size < offset:
            raise CorruptFile(path, file.size, f"{offset - file.size} bytes are missing")
        window = _Window(file, offset)
        while window.offset < file.size:
            body = await self._next_body(path, window, header.seed)
            if body is None:
                await self._cut(file, path, window.offset, header.seed, is_last=is_last)
                return
            # The window has moved on: the mark stands behind the group, with the number of the next
            # one.
            mark = JournalMark(number, window.offset, self.next_group)
            yield ReplayedGroup(path, body, mark, is_durable=not is_last)

    async def _next_body(self, path: str, window: _Window, seed: int) -> bytes | None:
        """The body of the group at the window's offset, which moves on; None if it is bad.

        Raises ``CorruptFile`` for the header of another group than the next one, ``OSError``.
        """
        # The window stays where it is until the group is known to be good: where it is not, its
        # offset is where the file is cut off.
        head = await window.peek(layout.GROUP_HEADER_BYTES)
        header = layout.decode_group_header(seed, head, 0)
        if header is None:
            return None
        # Another number does not end the journal, whether the body behind it is whole or torn: cut
        # off, this group would be lost besides those that are missing before it.
        if self._is_next_group_known and header.number != self.next_group:
            what = f"group {header.number} stands where group {self.next_group} should"
            raise CorruptFile(path, window.offset, what)
        size = layout.GROUP_HEADER_BYTES + header.body_bytes
        group = await window.peek(size)
        body = group[layout.GROUP_HEADER_BYTES :]
        # A torn write may have left the header whole and its body not.
        if len(group) < size or crc32c(body) != header.body_crc:
            return None
        window.offset += size
        self.next_group = header.number + 1
        self._is_next_group_known = True
        return body

    async def _cut(
        self, file: DiskFile, path: str, offset: int, seed: int, *, is_last: bool
    ) -> None:
        """Cut the file off at a bad group; raise ``CorruptFile`` where the group was good once."""
        if not is_last:
            raise CorruptFile(path, offset, "a group is not what was written, and a file follows")
        # The search begins one byte after the bad group's own beginning, because its header may be
        # whole. The tail is at most a journal file and what is reserved behind it.
        tail = await file.read(offset + 1, file.size)
        if layout.find_group_header(seed, tail) >= 0:
            what = "a group is not what was written, and another group follows"
            raise CorruptFile(path, offset, what)
        # Only zeros are what is reserved at each end: nothing to report.
        if tail.count(0) < len(tail):
            log.warning(
                "journal ends in the middle of a group, which was not acknowledged: cut off",
                extra={"file": path, "offset": offset, "cut_bytes": file.size - offset},
            )
        await file.truncate(offset)


@dataclass(slots=True, eq=False)
class _Window:
    """A file read ahead in big pieces, consumed in small ones."""

    file: DiskFile
    # What was consumed ends here; the consumer moves it on.
    offset: int
    _buffer: bytes = field(init=False, default=b"")
    # Where the buffer begins in the file; says nothing while the buffer is empty.
    _start: int = field(init=False, default=0)

    async def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end of the file."""
        position = self.offset - self._start
        if position + size > len(self._buffer):
            self._buffer = await self.file.read(self.offset, max(size, WINDOW_BYTES))
            self._start = self.offset
            position = 0
        return self._buffer[position : position + size]
