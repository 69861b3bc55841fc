"""The entry logs: files of blocks, written by checkpoints, read block by block.

One file is appended to; the others are only read, until garbage collection gives them back. They
lie in any of the ledger directories; their numbers are the bookie's, whichever that is. What stands
in a block is ``formats.entry_log_v1``'s business, where it stands the index's.
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from geminga_bookie.config import BookieConfig
from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.entry_logs.log_lists import LogLists, Loss
from geminga_bookie.entry_logs.log_scan import read_seed
from geminga_bookie.errors import (
    CorruptFile,
    DamagedBlock,
    EntryLogMissing,
    EntryLogTwice,
    LogRemoved,
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


class _OpenFile:
    """An open file, its header's seed, and how many reads are under way; removed ones end soon."""

    __slots__ = ("file", "is_removed", "readers", "seed")

    def __init__(self, file: DiskFile, seed: int) -> None:
        self.file = file
        self.seed = seed
        self.readers = 0
        self.is_removed = False


class EntryLog:
    """All entry logs of a bookie. ``find`` or ``open`` it before anything else."""

    def __init__(
        self,
        directories: Directories,
        clock: Clock,
        *,
        file_bytes_max: int,
        config: BookieConfig = DEFAULTS,
    ) -> None:
        self.batch_bytes = config.entry_log_batch_bytes
        self._open_files_max = config.entry_logs_open_max
        self._directories = directories
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._homes: dict[int, Directory] = {}
        self._lists = LogLists(directories)
        # What each log that is not written to any more has at least.
        self._sizes: dict[int, int] = {}
        self._open_files: OrderedDict[int, _OpenFile] = OrderedDict()
        self._current: _OpenFile | None = None
        self._current_number = 0
        # Where damage was found, each said once: log number, offset.
        self._damaged: set[tuple[int, int]] = set()
        self.written_bytes = self.read_bytes = self.damaged_blocks = 0

    async def find(self) -> list[int]:
        """Look which files there are; their numbers, rising. Raises ``EntryLogTwice``."""
        self._homes = {}
        for directory in self._directories:
            for name in await directory.disk.list(""):
                number = layout.file_number(name)
                if number is None:
                    continue
                if number in self._homes:
                    raise EntryLogTwice(name, self._homes[number].path, directory.path)
                self._homes[number] = directory
        return self.numbers

    async def open(self, end: LogEnd | None, logs: Mapping[int, LogUsage]) -> None:
        """Go on where the last checkpoint ended: what a crash left behind it is cut off.

        ``logs`` are those with anything that the index knows; others are leftovers of a checkpoint
        or a removal that a crash cut short. ``end`` is None where no checkpoint was ever finished:
        then whatever is there is a leftover; the journal has it.

        Raises ``EntryLogMissing``, and ``CorruptFile`` where a file is shorter than the index knows
        it.
        """
        await self.find()
        self._current_number = max(self._homes, default=0)
        kept: list[int] = []
        if end is not None:
            await self._check_files(logs)
            self._current_number = max(self._current_number, end.log_number)
            kept = [each for each in self.numbers if each <= end.log_number and each in logs]
        self._sizes = {number: logs[number].end for number in kept}
        await self._remove_all(set(self.numbers) - set(kept))
        if end is None or end.log_number not in kept:  # it was lost, and the loss accepted
            return
        last = await self._open_file(end.log_number)
        if last.file.size > end.offset:
            await last.file.truncate(end.offset)
        self._set_current(end.log_number, last)

    async def losses(self) -> list[Loss]:
        """What is missing of the files, by the lists of them in their directories."""
        return await self._lists.losses(self._homes)

    async def size_of(self, number: int) -> int | None:
        """The bytes of a file; None where it does not exist. Raises ``OSError``."""
        if number not in self._homes:
            return None
        async with self.opened(number) as file:
            return file.size

    async def _check_files(self, logs: Mapping[int, LogUsage]) -> None:
        """Raise unless all that the index knows can be there."""
        for number, usage in logs.items():
            path = self.path(number)
            if number not in self._homes:
                raise EntryLogMissing(path, self._directories.paths)
            size = (await self._open_file(number)).file.size
            if size < usage.end:
                raise CorruptFile(path, size, f"{usage.end - size} bytes are missing")

    async def close(self) -> None:
        """Close every file. Nothing must be reading."""
        for open_file in self._open_files.values():
            await open_file.file.close()
        self._open_files.clear()
        self._current = None

    @property
    def numbers(self) -> list[int]:
        """The numbers of the files that exist, rising."""
        return sorted(self._homes)

    def path(self, number: int) -> str:
        """What a file is called, for people."""
        home = self._homes.get(number)
        name = layout.file_name(number)
        return name if home is None or not home.path else f"{home.path}/{name}"

    @property
    def end(self) -> LogEnd | None:
        """Where the next block will be written; None before the first."""
        if self._current is None:
            return None
        return LogEnd(self._current_number, self._current.file.size)

    @property
    def free_bytes(self) -> int:
        """What is free on the disk that the next block goes to. Raises ``OSError``."""
        if self._current is None:
            return self._directories.for_new_file().disk.free_bytes()
        return self._homes[self._current_number].disk.free_bytes()

    def begin_anew(self) -> None:
        """Write the next block to a new file; the last one can then be removed."""
        if self._current is not None:
            self._sizes[self._current_number] = self._current.file.size
            self._set_current(self._current_number, None)

    async def drop_after(self, end: LogEnd | None) -> None:
        """Give back, as far as it goes, what a checkpoint that failed wrote after ``end``; the
        caller keeps others from appending."""
        number, offset = (0, 0) if end is None else (end.log_number, end.offset)
        if self._current_number > number:
            self.begin_anew()
        with suppress(OSError):
            await self._remove_all({each for each in self.numbers if each > number})
        with suppress(OSError):
            if number in self._homes and (await self._open_file(number)).file.size > offset:
                self.begin_anew()
                self._sizes[number] = offset
                await (await self._open_file(number)).file.truncate(offset)

    async def append(self, blocks: Iterable[tuple[layout.Block, bytes]]) -> list[BlockLocation]:
        """Write blocks, each with its ledger's master key; durable on return.

        Raises ``OSError``; then some of the blocks may be in the file, and no reader knows them.
        """
        locations: list[BlockLocation] = []
        batch: list[tuple[layout.Block, bytes]] = []
        size = 0
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

    async def read(self, location: BlockLocation) -> dict[int, bytes]:
        """The entries of a block, checked.

        Raises ``DamagedBlock``, which has some of them; ``CorruptFile``, ``LogRemoved``,
        ``OSError``.
        """
        header, block = await self._read_block(location)
        if header is not None:
            entries = layout.decode_entries(header, block, layout.BLOCK_HEADER_BYTES)
            if entries is not None:
                return entries
        raise self._found_damaged(location, header, block)

    async def read_whole(self, location: BlockLocation) -> tuple[layout.Block, bytes | None]:
        """A block as ``append`` takes it, with its ledger's master key, where it says that.

        A damaged one comes as it is, with the checksum that does not fit it: wherever it is
        written, it is still known to be damaged. Raises ``CorruptFile`` where bytes are missing,
        ``LogRemoved``, ``OSError``.
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
        header = header or _presumed(location, block)
        return layout.block_of(header, content, location.last_entry), master_key

    def _found_damaged(
        self, at: BlockLocation, header: layout.BlockHeader | None, block: bytes
    ) -> DamagedBlock:
        """Keep what can be kept of a damaged block; count it and say so the first time."""
        entries: dict[int, bytes] = {}
        if len(block) > layout.BLOCK_HEADER_BYTES:
            header = header or _presumed(at, block)
            entries = salvage_entries(header, block[layout.BLOCK_HEADER_BYTES :])
        held = f"of ledger {at.ledger_id} from {at.first_entry} to {at.last_entry}"
        damage = DamagedBlock(self.path(at.log_number), at.offset, held, at.entries, entries)
        if (at.log_number, at.offset) not in self._damaged:
            self._damaged.add((at.log_number, at.offset))
            self.damaged_blocks += 1
            log.error("damaged block", extra={"error": str(damage)})
        return damage

    async def _read_block(self, location: BlockLocation) -> tuple[layout.BlockHeader | None, bytes]:
        """A block, and its header if that is what the index says it is."""
        async with self.reading(location.log_number) as (file, seed):
            block = await file.read(location.offset, location.size)
        self.read_bytes += len(block)
        header = layout.decode_block_header(seed, block, 0)
        if header is not None and header.ledger_id != location.ledger_id:
            header = None
        return header, block

    @asynccontextmanager
    async def opened(self, number: int) -> AsyncGenerator[DiskFile, None]:
        """A file as it is, also where it is no entry log that can be read."""
        file = await self._homes[number].disk.open(layout.file_name(number))
        try:
            yield file
        finally:
            await file.close()

    @asynccontextmanager
    async def reading(self, number: int) -> AsyncGenerator[tuple[DiskFile, int], None]:
        """A file and the seed of its headers; it stays open meanwhile, removed or not.

        Raises ``LogRemoved``, ``CorruptFile``, ``OSError``.
        """
        open_file = await self._open_file(number)
        open_file.readers += 1
        try:
            yield open_file.file, open_file.seed
        finally:
            open_file.readers -= 1
            if open_file.is_removed and not open_file.readers:
                await open_file.file.close()

    async def remove(self, number: int) -> None:
        """Delete a file that is not written to any more; who reads it now reads to the end."""
        assert self._current is None or number != self._current_number
        await self._remove_all({number})

    async def _remove_all(self, numbers: Collection[int]) -> None:
        homes = {number: self._homes.pop(number) for number in sorted(numbers)}
        self._damaged = {each for each in self._damaged if each[0] not in homes}
        for number in homes:
            self._sizes.pop(number, None)
            open_file = self._open_files.pop(number, None)
            if open_file is not None:
                open_file.is_removed = True
                if not open_file.readers:
                    await open_file.file.close()
        # A full disk does not take the list, and must get the room of the files all the same.
        with suppress(OSError):
            await self._lists.write(self._homes, self._sizes)
        for number, home in homes.items():
            await home.disk.remove(layout.file_name(number))
        await self._lists.write(self._homes, self._sizes)

    async def read_ids(self, location: BlockLocation) -> Sequence[int]:
        """Which entries are in a block, rising, by what the index says of it, or by its table.

        Raises ``CorruptFile``, ``LogRemoved``, ``OSError``.
        """
        if _is_dense(location):
            return range(location.first_entry, location.last_entry + 1)
        async with self.reading(location.log_number) as (file, seed):
            peeked = min(location.size, layout.BLOCK_HEADER_BYTES + TABLE_PEEK_BYTES)
            block = await file.read(location.offset, peeked)
            header = layout.decode_block_header(seed, block, 0)
            needed = 0
            if header is not None:
                needed = layout.BLOCK_HEADER_BYTES + layout.table_bytes(header)
                if len(block) < needed <= location.size:
                    block = await file.read(location.offset, needed)
        if header is not None and header.ledger_id == location.ledger_id and len(block) >= needed:
            return layout.decode_ids(header, block[layout.BLOCK_HEADER_BYTES :])
        try:
            return sorted(await self.read(location))
        except DamagedBlock as damage:
            return sorted(damage.entries)

    async def _append_batch(
        self, batch: Sequence[tuple[layout.Block, bytes]]
    ) -> list[BlockLocation]:
        current = await self._writable_file()
        chunks: list[bytes] = []
        for block, master_key in batch:
            chunks.append(layout.encode_block_header(current.seed, block, master_key))
            chunks += block.pieces
        offset = await self._append_and_sync(current, chunks)
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

    async def _append_and_sync(self, current: _OpenFile, chunks: Sequence[bytes]) -> int:
        known_bytes = current.file.size
        try:
            offset = await current.file.append_and_sync(chunks)
        except OSError as error:
            self._sizes[self._current_number] = known_bytes
            # What a failed sync left in the file nobody can tell: write on in a new one.
            home = self._homes[self._current_number]
            home.has_failed = home.has_failed or error.errno != errno.ENOSPC
            self._set_current(self._current_number, None)
            error.filename = error.filename or self.path(self._current_number)
            raise
        self.written_bytes += current.file.size - offset
        return offset

    async def _writable_file(self) -> _OpenFile:
        current = self._current
        if current is not None and current.file.size < self._file_bytes_max:
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
            error.filename = error.filename or f"{home.path}/{path}"
            raise
        seed = layout.decode_file_header(path, header)
        assert seed is not None
        current = _OpenFile(file, seed)
        self._homes[number] = home
        self._set_current(number, current)
        await self._remember(number, current)
        return current

    async def _create(self, home: Directory, number: int, header: bytes) -> DiskFile:
        path = layout.file_name(number)
        file = await home.disk.open(path)
        try:
            if file.size:  # a crash, or a failed attempt, left a part of it
                await file.truncate(0)
            await file.append_and_sync([header])
            await self._lists.write({**self._homes, number: home}, self._sizes)
        except OSError:
            await file.close()
            if len(self._directories) > 1:  # the next attempt may be made elsewhere
                with suppress(OSError):
                    await home.disk.remove(path)
            raise
        return file

    def _set_current(self, number: int, current: _OpenFile | None) -> None:
        """Write to ``current`` from now on: it counts as being read, so that it stays open."""
        if self._current is not None:
            self._current.readers -= 1
        if current is not None:
            current.readers += 1
        self._current_number = number
        self._current = current

    async def _open_file(self, number: int) -> _OpenFile:
        open_file = self._open_files.get(number)
        if open_file is not None:
            self._open_files.move_to_end(number)
            return open_file
        home = self._homes.get(number)
        if home is None:
            raise LogRemoved(layout.file_name(number))
        path = self.path(number)
        file = await home.disk.open(layout.file_name(number))
        async with AsyncExitStack() as unless_kept:
            unless_kept.push_async_callback(file.close)
            seed = await read_seed(file, path)
            if number not in self._homes:  # removed meanwhile; opening it may have made a new one
                await home.disk.remove(layout.file_name(number))
                raise LogRemoved(layout.file_name(number))
            if seed is None:
                raise CorruptFile(path, 0, "its header is not what was written")
            opened_meanwhile = self._open_files.get(number)
            if opened_meanwhile is not None:
                return opened_meanwhile
            unless_kept.pop_all()
        open_file = _OpenFile(file, seed)
        await self._remember(number, open_file)
        return open_file

    async def _remember(self, number: int, open_file: _OpenFile) -> None:
        """Keep a file open, and close the one that was used longest ago and is idle."""
        self._open_files[number] = open_file
        if len(self._open_files) <= self._open_files_max:
            return
        for old_number, old in self._open_files.items():
            if old.readers == 0 and old is not open_file:
                del self._open_files[old_number]
                await old.file.close()
                return


def _is_dense(at: BlockLocation) -> bool:
    """Whether the block holds every entry that it spans."""
    return at.last_entry - at.first_entry == at.entries - 1


def _presumed(at: BlockLocation, block: bytes) -> layout.BlockHeader:
    return presumed_header(block, at.ledger_id, at.first_entry, at.last_entry, at.entries, at.size)
