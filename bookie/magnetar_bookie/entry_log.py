"""The entry logs: files of blocks, written by checkpoints, read block by block.

One file is appended to; the others are only read, until garbage collection gives them back. What
stands in a block is ``formats.entry_log_v1``'s business, where it stands the index's.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from magnetar_bookie.errors import CorruptFile
from magnetar_bookie.formats import entry_log_v1 as layout
from magnetar_bookie.index import BlockLocation, LogEnd
from magnetar_runtime.clock import Clock
from magnetar_runtime.disk import Disk, DiskFile

log = logging.getLogger(__name__)

# Written and synced in one go. The journal shares the disk: its syncs must not wait behind a big
# one of ours.
BATCH_BYTES = 1024 * 1024
# Files kept open for reading.
OPEN_FILES_MAX = 64
# Read together with a block's header: the table of most blocks.
TABLE_PEEK_BYTES = 16 * 1024


class _OpenFile:
    """An open file, its header's seed, and how many reads are under way."""

    __slots__ = ("file", "readers", "seed")

    def __init__(self, file: DiskFile, seed: int) -> None:
        self.file = file
        self.seed = seed
        self.readers = 0


class EntryLog:
    """All entry logs of a ledger directory."""

    def __init__(self, disk: Disk, clock: Clock, *, file_bytes_max: int) -> None:
        self._disk = disk
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._open_files: OrderedDict[int, _OpenFile] = OrderedDict()
        self._current: _OpenFile | None = None
        self._current_number = 0
        self.written_bytes = 0
        self.read_bytes = 0

    async def open(self, end: LogEnd | None) -> None:
        """Go on where the last checkpoint ended: what a crash left behind it is cut off.

        None: no checkpoint was ever finished, so whatever is there is a leftover; the journal has
        it.

        Raises ``CorruptFile`` where a file is shorter than the index knows it.
        """
        numbers = await self.numbers()
        self._current_number = max(numbers, default=0)
        for number in numbers:
            if end is None or number > end.log_number:
                await self._disk.remove(layout.file_name(number))
        if end is None:
            return
        last = await self._open_file(end.log_number)
        size = last.file.size
        if size < end.offset:
            raise CorruptFile(
                layout.file_name(end.log_number), size, f"{end.offset - size} bytes are missing"
            )
        if size > end.offset:
            await last.file.truncate(end.offset)
        self._set_current(end.log_number, last)

    async def close(self) -> None:
        """Close every file. Nothing must be reading."""
        for open_file in self._open_files.values():
            await open_file.file.close()
        self._open_files.clear()
        self._current = None

    async def numbers(self) -> list[int]:
        """The numbers of the files that exist, rising."""
        names = await self._disk.list("")
        numbers = (layout.file_number(name) for name in names)
        return sorted(number for number in numbers if number is not None)

    @property
    def end(self) -> LogEnd | None:
        """Where the next block will be written; None before the first."""
        if self._current is None:
            return None
        return LogEnd(self._current_number, self._current.file.size)

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
            if size >= BATCH_BYTES:
                locations += await self._append_batch(batch)
                batch = []
                size = 0
        if batch:
            locations += await self._append_batch(batch)
        return locations

    async def append_ledgers(self, records: Sequence[layout.LedgerRecord]) -> None:
        """Write ledger records, from which a lost index is rebuilt; durable on return."""
        current = await self._writable_file()
        await self._append_and_sync(current, [layout.encode_ledgers(current.seed, records)])

    async def read(self, location: BlockLocation) -> dict[int, bytes]:
        """The entries of a block, checked. Raises ``CorruptFile``, ``OSError``."""
        open_file = await self._open_file(location.log_number)
        open_file.readers += 1
        try:
            block = await open_file.file.read(location.offset, location.size)
        finally:
            open_file.readers -= 1
        self.read_bytes += len(block)
        header = layout.decode_block_header(open_file.seed, block, 0)
        if header is not None and header.ledger_id == location.ledger_id:
            entries = layout.decode_entries(header, block, layout.BLOCK_HEADER_BYTES)
            if entries is not None:
                return entries
        path = layout.file_name(location.log_number)
        raise CorruptFile(path, location.offset, "a block is not what was written")

    async def read_ids(self, location: BlockLocation) -> Sequence[int]:
        """Which entries are in a block, rising, from its table alone.

        Raises ``CorruptFile``, ``OSError``.
        """
        open_file = await self._open_file(location.log_number)
        open_file.readers += 1
        try:
            peeked = min(location.size, layout.BLOCK_HEADER_BYTES + TABLE_PEEK_BYTES)
            block = await open_file.file.read(location.offset, peeked)
            header = layout.decode_block_header(open_file.seed, block, 0)
            needed = 0
            if header is not None:
                needed = layout.BLOCK_HEADER_BYTES + layout.table_bytes(header)
                if len(block) < needed <= location.size:
                    block = await open_file.file.read(location.offset, needed)
        finally:
            open_file.readers -= 1
        if header is not None and header.ledger_id == location.ledger_id and len(block) >= needed:
            return layout.decode_ids(header, block[layout.BLOCK_HEADER_BYTES :])
        path = layout.file_name(location.log_number)
        raise CorruptFile(path, location.offset, "a block is not what was written")

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
                )
            )
            offset += size
        return locations

    async def _append_and_sync(self, current: _OpenFile, chunks: Sequence[bytes]) -> int:
        try:
            offset = await current.file.append_and_sync(chunks)
        except OSError:
            # What a failed sync left in the file nobody can tell: write on in a new one.
            self._set_current(self._current_number, None)
            raise
        self.written_bytes += current.file.size - offset
        return offset

    async def _writable_file(self) -> _OpenFile:
        current = self._current
        if current is not None and current.file.size < self._file_bytes_max:
            return current
        number = self._current_number + 1
        path = layout.file_name(number)
        file = await self._disk.open(path)
        try:
            if file.size:  # a crash, or a failed attempt, left a part of it
                await file.truncate(0)
            header = layout.encode_file_header(number, self._clock.wall_ms())
            await file.append_and_sync([header])
        except OSError:
            await file.close()
            raise
        seed = layout.decode_file_header(path, header)
        assert seed is not None
        current = _OpenFile(file, seed)
        self._set_current(number, current)
        await self._remember(number, current)
        log.info("entry log opened", extra={"file": path})
        return current

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
        path = layout.file_name(number)
        file = await self._disk.open(path)
        seed = layout.decode_file_header(path, await file.read(0, layout.FILE_HEADER_BYTES))
        opened_meanwhile = self._open_files.get(number)
        if opened_meanwhile is not None:
            await file.close()
            return opened_meanwhile
        if seed is None:
            await file.close()
            raise CorruptFile(path, 0, "its header is not what was written")
        open_file = _OpenFile(file, seed)
        await self._remember(number, open_file)
        return open_file

    async def _remember(self, number: int, open_file: _OpenFile) -> None:
        """Keep a file open, and close the one that was used longest ago and is idle."""
        self._open_files[number] = open_file
        if len(self._open_files) <= OPEN_FILES_MAX:
            return
        for old_number, old in self._open_files.items():
            if old.readers == 0 and old is not open_file:
                del self._open_files[old_number]
                await old.file.close()
                return
