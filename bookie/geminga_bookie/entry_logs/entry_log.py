"""The entry logs: files of blocks, appended to by checkpoints and compaction, read block by block.

One file is appended to; the others are only read, until garbage collection removes them. They lie
in any of the ledger directories and share one sequence of numbers.

The order of events when a block is written:

1. A new file gets its header, and is listed in its directory's list of logs (``log_lists``).
2. The block is appended and synced. It is durable, but no reader knows it yet.
3. The caller commits the block's place to the index. From then on reads find it.

What a crash leaves after 1 or 2 lies behind the end that the index knows (``LogEnd``): ``open``
cuts it off and removes later files. Nothing is lost with it. A checkpoint's entries are still in
the journal, a compaction's still in the old log.

What stands in a block is drawn in ``formats.entry_log_v1``.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from geminga_bookie.config import BookieConfig
from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.entry_logs.log_lists import LogLists, Loss
from geminga_bookie.entry_logs.open_files import OpenFile, OpenFiles
from geminga_bookie.errors import (
    CorruptFile,
    DamagedBlock,
    EntryLogMissing,
    EntryLogTwice,
)
from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.index_v2 import BlockLocation, LogEnd, LogUsage
from geminga_bookie.formats.salvage_v1 import presumed_header, salvage_entries
from geminga_runtime.clock import Clock
from geminga_runtime.disk import DiskFile

log = logging.getLogger(__name__)
DEFAULTS = BookieConfig()

# Read together with a block's header: the table of most blocks.
TABLE_PEEK_BYTES = 16 * 1024


class EntryLog:
    """All entry logs of a bookie. Call ``find`` or ``open`` before anything else.

    Appending is not protected here: what appends or removes must hold ``Checkpointer.lock``.
    """

    def __init__(
        self,
        directories: Directories,
        clock: Clock,
        *,
        file_bytes_max: int,
        config: BookieConfig = DEFAULTS,
    ) -> None:
        self.batch_bytes = config.entry_log_batch_bytes
        self._directories = directories
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        # The files that exist, by number, and in which directory each is. ``open_files`` looks here
        # whether a file was removed. The dict is filled and emptied in place, never replaced.
        self._homes: dict[int, Directory] = {}
        self._lists = LogLists(directories)
        # The bytes that a log has at least: what was durable when it was given up, or what the
        # index knew at the start. The lists in the directories promise so much. Of a current log
        # that was begun since the start only the header is promised.
        self._sizes: dict[int, int] = {}
        # The file that is appended to is among them.
        self.open_files = OpenFiles(self._homes, config.entry_logs_open_max)
        # The file that is appended to; None where the next block begins a new one. It counts as a
        # reader of its own, so that it is not closed to make room.
        self._current: OpenFile | None = None
        # The highest number that was used: also of files that are gone, so that none is used twice.
        self._current_number = 0
        # Where damage was found, so that each is reported once: log number, offset.
        self._damaged: set[tuple[int, int]] = set()
        # Counted since the start.
        self.written_bytes = self.read_bytes = self.damaged_blocks = 0

    # Opening.

    async def find(self) -> list[int]:
        """Look which files exist; return their numbers, rising. Raises ``EntryLogTwice``."""
        self._homes.clear()
        for directory in self._directories:
            for name in await directory.disk.list(""):
                number = layout.file_number(name)
                if number is None:  # a cookie, a list of logs, a journal
                    continue
                # Two files of one number may be different ones: which of them the index means
                # cannot be told.
                if number in self._homes:
                    raise EntryLogTwice(name, self._homes[number].path, directory.path)
                self._homes[number] = directory
        return self.numbers

    async def open(self, end: LogEnd | None, logs: Mapping[int, LogUsage]) -> None:
        """Go on where the last checkpoint ended; cut off what a crash left behind that.

        ``logs`` are those of which the index knows anything. Other files are leftovers of a
        checkpoint, or of a removal, that a crash cut short. ``end`` is None where no checkpoint has
        ever finished: then every file is a leftover, and the journal has what is in it.

        Checks that everything the index knows can be there before it changes a file. Raises
        ``EntryLogMissing``, ``CorruptFile`` where a file is too short, ``OSError``.
        """
        await self.find()
        # Leftovers count too, though they are removed below: a number is never used twice, so that
        # a read that comes late does not find other blocks under a number that it knows.
        self._current_number = max(self._homes, default=0)
        kept: list[int] = []
        if end is not None:
            for number, usage in logs.items():
                path = self.path(number)
                if number not in self._homes:
                    raise EntryLogMissing(path, self._directories.paths)
                # Only the sizes are checked here; blocks are checked when they are read.
                size = (await self.open_files.get(number)).file.size
                if size < usage.end:
                    raise CorruptFile(path, size, f"{usage.end - size} bytes are missing")
            self._current_number = max(self._current_number, end.log_number)
            kept = [each for each in self.numbers if each <= end.log_number and each in logs]
        self._sizes = {number: logs[number].end for number in kept}
        # Leftovers: files behind the end, and files of which nothing is in use.
        await self.remove(*set(self.numbers).difference(kept))
        if end is None or end.log_number not in kept:  # it was lost, and the loss accepted
            return
        # The last file goes on where the index knows it to end. What is behind that may be whole
        # blocks, but no reader was ever sent to them.
        last = await self.open_files.get(end.log_number)
        if last.file.size > end.offset:
            await last.file.truncate(end.offset)
        self._set_current(end.log_number, last)

    async def close(self) -> None:
        """Close every file. No read may be under way."""
        await self.open_files.close()
        self._current = None

    # What there is.

    @property
    def numbers(self) -> list[int]:
        """The numbers of the files that exist, rising."""
        return sorted(self._homes)

    def path(self, number: int) -> str:
        """What a file is called in messages."""
        home = self._homes.get(number)
        name = layout.file_name(number)
        return name if home is None else home.path_of(name)

    async def losses(self) -> list[Loss]:
        """What is missing of the files that ``find`` found, by the lists in their directories."""
        return await self._lists.losses(self._homes)

    @property
    def end(self) -> LogEnd | None:
        """Where the next block will be written; None where it begins a new file."""
        if self._current is None:
            return None
        return LogEnd(self._current_number, self._current.file.size)

    @property
    def free_bytes(self) -> int:
        """What is free on the disk that the next block goes to. Raises ``OSError``."""
        if self._current is None:
            return self._directories.for_new_file().disk.free_bytes()
        return self._homes[self._current_number].disk.free_bytes()

    # Appending.

    async def append(self, blocks: Iterable[tuple[layout.Block, bytes]]) -> list[BlockLocation]:
        """Write blocks, each with its ledger's master key; durable on return.

        Raises ``OSError``; then some of the blocks may be in the file, and no reader knows them.
        """
        locations: list[BlockLocation] = []
        batch: list[tuple[layout.Block, bytes]] = []
        size = 0
        # Blocks are made while they are consumed: at most a batch of them is in memory besides the
        # entries, and there is one sync for each batch.
        for block, master_key in blocks:
            batch.append((block, master_key))
            size += block.content_bytes
            if size >= self.batch_bytes:
                locations += await self._append_batch(batch)
                batch, size = [], 0
        if batch:
            locations += await self._append_batch(batch)
        return locations

    async def append_ledgers(self, records: Sequence[layout.LedgerRecord]) -> None:
        """Write ledger records, from which a lost index is rebuilt; durable on return."""
        current = await self._writable_file()
        await self._append_and_sync(current, [layout.encode_ledgers(current.seed, records)])

    def begin_anew(self) -> None:
        """Write the next block to a new file; the current one can then be removed."""
        if self._current is not None:
            self._sizes[self._current_number] = self._current.file.size
            self._set_current(self._current_number, None)

    async def drop_after(self, end: LogEnd | None) -> None:
        """Give back what an append that failed left behind ``end``, as far as that is possible.

        On a full disk the next attempt needs the room.
        """
        # Log numbers begin with 1: without an end, every file is a leftover.
        number, offset = (0, 0) if end is None else (end.log_number, end.offset)
        # Leftovers are of two kinds: whole files behind the end, and bytes behind it in its own
        # file.
        if self._current_number > number:
            self.begin_anew()
        # The failure that led here is what is reported. What cannot be given back now is, at the
        # latest, by the next start.
        with suppress(OSError):
            await self.remove(*(each for each in self.numbers if each > number))
        with suppress(OSError):
            if number in self._homes and (await self.open_files.get(number)).file.size > offset:
                # Cut off, and not appended to any more: after a failed sync, what the kernel still
                # has of the file is not to be trusted.
                self.begin_anew()
                self._sizes[number] = offset
                await (await self.open_files.get(number)).file.truncate(offset)

    async def _append_batch(
        self, batch: Sequence[tuple[layout.Block, bytes]]
    ) -> list[BlockLocation]:
        current = await self._writable_file()
        chunks: list[bytes] = []
        for block, master_key in batch:
            chunks.append(layout.encode_block_header(current.seed, block, master_key))
            chunks += block.pieces
        offset = await self._append_and_sync(current, chunks)
        # Blocks lie one behind the other from where the append began.
        locations: list[BlockLocation] = []
        for block, _ in batch:
            size = layout.BLOCK_HEADER_BYTES + block.content_bytes
            locations.append(
                BlockLocation(
                    block.ledger_id,
                    block.first_entry,
                    block.last_entry,
                    self._current_number,
                    offset,
                    size,
                    block.count,
                )
            )
            offset += size
        return locations

    async def _append_and_sync(self, current: OpenFile, chunks: Sequence[bytes]) -> int:
        """Append to the current file; return where that begins."""
        # What is durable before this append, whatever becomes of it.
        known_bytes = current.file.size
        try:
            offset = await current.file.append_and_sync(chunks)
        except OSError as error:
            self._sizes[self._current_number] = known_bytes
            # What a failed sync left in the file cannot be known: the next block begins a new one.
            # A full disk has not failed: it takes files again once something was deleted.
            home = self._homes[self._current_number]
            home.has_failed = home.has_failed or error.errno != errno.ENOSPC
            self._set_current(self._current_number, None)
            error.filename = error.filename or self.path(self._current_number)
            raise
        self.written_bytes += current.file.size - offset
        return offset

    async def _writable_file(self) -> OpenFile:
        """The file that the next block goes to: the current one, or a new one in its place."""
        current = self._current
        # The limit is looked at once for each batch, so that a file may pass it by a batch.
        if current is not None and current.file.size < self._file_bytes_max:
            # A file in a directory that became full is given up early, if another one takes files.
            is_well_placed = self._homes[self._current_number].is_preferred
            if is_well_placed or not self._directories.writable_count:
                return current
        if current is not None:
            self._sizes[self._current_number] = current.file.size
        number = self._current_number + 1
        home = self._directories.for_new_file()
        path = layout.file_name(number)
        header = layout.encode_file_header(number, self._clock.wall_ms())
        try:
            file = await self._create(home, number, header)
        except OSError as error:
            home.has_failed = home.has_failed or error.errno != errno.ENOSPC
            error.filename = error.filename or home.path_of(path)
            raise
        seed = layout.decode_file_header(path, header)
        assert seed is not None
        current = OpenFile(file, seed)
        # From here on the file counts as existing: it is listed and its header is durable.
        self._homes[number] = home
        self._set_current(number, current)
        await self.open_files.keep(number, current)
        return current

    async def _create(self, home: Directory, number: int, header: bytes) -> DiskFile:
        """Make a file with a durable header, and list it, before any block is written to it."""
        path = layout.file_name(number)
        file = await home.disk.open(path)
        try:
            if file.size:  # a crash, or a failed attempt, left a part of it
                await file.truncate(0)
            await file.append_and_sync([header])
            # The list promises the header alone, as nothing more is durable yet. Once the log is
            # given up, the next list promises all of it.
            await self._lists.write({**self._homes, number: home}, self._sizes)
        except OSError:
            await file.close()
            if len(self._directories) > 1:
                # The next attempt may be made in another directory: no number may exist twice.
                with suppress(OSError):
                    await home.disk.remove(path)
            raise
        return file

    def _set_current(self, number: int, current: OpenFile | None) -> None:
        """Append to ``current`` from now on; it counts as being read, so that it stays open."""
        if self._current is not None:
            self._current.readers -= 1
        if current is not None:
            current.readers += 1
        self._current_number = number
        self._current = current

    # Reading.

    async def read(self, location: BlockLocation) -> dict[int, bytes]:
        """Read the entries of a block, checked.

        Raises ``DamagedBlock``, which has some of them; ``CorruptFile``, ``UnknownFormat``,
        ``LogRemoved``, ``OSError``.
        """
        header, block = await self._read_block(location)
        # The header's checksum says that it is a header of this file, the content's that nothing in
        # it has changed since it was written.
        if header is not None:
            entries = layout.decode_entries(header, block, layout.BLOCK_HEADER_BYTES)
            if entries is not None:
                return entries
        raise self._found_damaged(location, header, block)

    async def read_whole(self, location: BlockLocation) -> tuple[layout.Block, bytes | None]:
        """Read a block as ``append`` takes it, and its ledger's master key, where it says that.

        A damaged block comes as it is, with the checksum that does not fit it: wherever it is
        written, it is still known to be damaged. Raises ``CorruptFile`` where bytes are missing,
        ``UnknownFormat``, ``LogRemoved``, ``OSError``.
        """
        header, block = await self._read_block(location)
        content = block[layout.BLOCK_HEADER_BYTES :]
        if len(block) < location.size:
            missing = location.size - len(block)
            path = self.path(location.log_number)
            raise CorruptFile(path, location.offset, f"{missing} bytes are missing")
        if header is None or not layout.is_content(header, content):
            self._found_damaged(location, header, block)
        master_key = None if header is None else header.master_key
        header = header or presumed_header(location, block)
        block_of_entries = layout.Block(
            *(header.ledger_id, header.first_entry, location.last_entry, header.count),
            pieces=(content,),
            content_bytes=len(content),
            is_dense=header.kind == layout.BlockKind.DENSE_ENTRIES,
            content_crc=header.content_crc,
        )
        return block_of_entries, master_key

    async def read_ids(self, location: BlockLocation) -> Sequence[int]:
        """Which entries are in a block, rising, by what the index says of it, or by its table.

        Raises ``CorruptFile``, ``UnknownFormat``, ``LogRemoved``, ``OSError``.
        """
        if location.is_dense:
            return range(location.first_entry, location.last_entry + 1)
        async with self.open_files.reading(location.log_number) as (file, seed):
            peeked = min(location.size, layout.BLOCK_HEADER_BYTES + TABLE_PEEK_BYTES)
            # The table is read without the entries, which make up most of a block.
            block = await file.read(location.offset, peeked)
            path = self.path(location.log_number)
            header = layout.decode_block_header(path, seed, block, 0)
            needed = 0
            if header is not None:
                needed = layout.BLOCK_HEADER_BYTES + layout.table_bytes(header)
                if len(block) < needed <= location.size:
                    block = await file.read(location.offset, needed)
        # The table has no checksum of its own; the header's says that this is the right block.
        if header is not None and header.ledger_id == location.ledger_id and len(block) >= needed:
            return layout.decode_ids(header, block[layout.BLOCK_HEADER_BYTES :])
        # The table cannot be believed: only entries that say themselves which they are count.
        try:
            return sorted(await self.read(location))
        except DamagedBlock as damage:
            return sorted(damage.entries)

    async def _read_block(self, location: BlockLocation) -> tuple[layout.BlockHeader | None, bytes]:
        """Read a block, and its header; None for a header that is not what the index says."""
        async with self.open_files.reading(location.log_number) as (file, seed):
            block = await file.read(location.offset, location.size)
        self.read_bytes += len(block)
        header = layout.decode_block_header(self.path(location.log_number), seed, block, 0)
        # A good header of another ledger: the index is wrong, and its entries must not be given out
        # as this ledger's.
        if header is not None and header.ledger_id != location.ledger_id:
            header = None
        return header, block

    def _found_damaged(
        self, at: BlockLocation, header: layout.BlockHeader | None, block: bytes
    ) -> DamagedBlock:
        """Keep what can be kept of a damaged block; count and log it the first time."""
        # A block that was cut off within its header says nothing at all.
        entries: dict[int, bytes] = {}
        if len(block) > layout.BLOCK_HEADER_BYTES:
            header = header or presumed_header(at, block)
            entries = salvage_entries(header, block[layout.BLOCK_HEADER_BYTES :])
        held = f"of ledger {at.ledger_id} from {at.first_entry} to {at.last_entry}"
        damage = DamagedBlock(self.path(at.log_number), at.offset, held, at.entries, entries)
        if (at.log_number, at.offset) not in self._damaged:
            self._damaged.add((at.log_number, at.offset))
            self.damaged_blocks += 1
            log.error("damaged block", extra={"error": str(damage)})
        return damage

    @asynccontextmanager
    async def opened(self, number: int) -> AsyncGenerator[DiskFile, None]:
        """Open a file as it is, also one that is too damaged to be read as an entry log."""
        file = await self._homes[number].disk.open(layout.file_name(number))
        try:
            yield file
        finally:
            await file.close()

    # Removing.

    async def remove(self, *numbers: int) -> None:
        """Delete files that are not appended to any more; reads of them that began can finish."""
        assert self._current is None or self._current_number not in numbers
        # First of all, before anything is awaited: no read opens them any more.
        homes = {number: self._homes.pop(number) for number in sorted(numbers)}
        # A copy of a damaged block stands at another place, and is reported anew.
        self._damaged = {each for each in self._damaged if each[0] not in homes}
        for number in homes:
            self._sizes.pop(number, None)
            await self.open_files.drop(number)
        # Unlisted before they are removed. A full disk takes no new list, and must get the room of
        # the files all the same: then the list is written once they are gone.
        with suppress(OSError):
            await self._lists.write(self._homes, self._sizes)
        for number, home in homes.items():
            await home.disk.remove(layout.file_name(number))
        await self._lists.write(self._homes, self._sizes)
