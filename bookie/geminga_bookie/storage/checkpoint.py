"""Checkpoints: carry the write cache to the entry log and the index, then trim the journal.

The order makes it safe to die anywhere: entries first, then the index that names them together with
the place the journal must be replayed from, and only then the journal's files.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from geminga_bookie.config import BookieConfig
from geminga_bookie.formats.entry_log_v1 import Block, LedgerRecord, cut_blocks
from geminga_bookie.formats.index_v2 import Counts
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_bookie.index.index import Change
from geminga_bookie.storage.ledgers import Ledger
from geminga_bookie.storage.storage import Storage
from geminga_bookie.storage.write_cache import Entries
from geminga_runtime.service import Service

log = logging.getLogger(__name__)


# Why the bookie is read-only while the ledger disk does not take what is in memory.
READ_ONLY_REASON = "checkpoint failed"
# What a disk says that has no room: none at all, or none for this user.
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True)
class _Sealed:
    """What one checkpoint carries: entries by ledger, the ledgers, and what it reaches.

    ``records`` are the ledgers' once the index was told of everything: it must not be told twice,
    however often it fails to make that durable.
    """

    entries: dict[int, Entries]
    ledgers: dict[int, Ledger]
    marks: Sequence[JournalMark]
    records: Sequence[LedgerRecord] | None = None


class Checkpointer(Service):
    """Makes checkpoints in the background: when half the write cache is full, and now and then.

    ``marks`` tells the end of what is in each journal and in the write cache, at any moment;
    ``trim`` removes the journals before such marks; ``on_done`` is called after each checkpoint.
    Closing makes a last one. Whoever else writes to entry logs and index holds ``lock``.
    """

    def __init__(
        self,
        config: BookieConfig,
        storage: Storage,
        *,
        marks: Callable[[], Sequence[JournalMark]],
        trim: Callable[[Sequence[JournalMark]], Awaitable[None]],
        on_done: Callable[[], None],
    ) -> None:
        super().__init__()
        self._config = config
        self._storage = storage
        self._marks = marks
        self._trim = trim
        self._on_done = on_done
        self._is_wanted = asyncio.Event()
        # Guards _sealed, the write cache's sealed generation, the end of the entry log, counts.
        self.lock = asyncio.Lock()
        self._sealed: _Sealed | None = None
        self._threshold_bytes = config.write_cache_bytes_max // 2
        # The newest entry log that is known to stay.
        self._last_log = 0
        self.done = 0
        self.failures = 0

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 nothing to close
        end = self._storage.index.log_end()
        self._last_log = 0 if end is None else end.log_number
        self.spawn_lasting(self._run_when_wanted, name="checkpoints")

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self._config.close_timeout_s):
                await self.run()
        except (OSError, TimeoutError) as error:
            log.warning("no checkpoint at the end", extra={"error": repr(error)})
        await super()._close()

    @property
    def is_due(self) -> bool:
        """Whether the active half of the write cache is full."""
        return self._storage.write_cache.active_bytes >= self._threshold_bytes

    def review(self) -> None:
        """Begin a checkpoint in the background if one is due."""
        if self._storage.write_cache.active_bytes >= self._threshold_bytes:
            self._is_wanted.set()

    def request(self) -> None:
        """Begin a checkpoint in the background in any case."""
        self._is_wanted.set()

    async def run(self) -> None:
        """Make a checkpoint now. Raises ``OSError``; then nothing is lost, and the next checkpoint
        begins with what this one did not bring to its end.
        """
        async with self.lock:
            if self._sealed is None:
                if not self._storage.ledgers.has_changes and not self._can_trim:
                    return
                ledgers = self._storage.ledgers.take_changed()
                self._sealed = _Sealed(self._storage.write_cache.seal(), ledgers, self._marks())
            try:
                await self._carry(self._sealed)
            except OSError:
                # It begins anew: a full disk needs the room of what is there in vain.
                await self._storage.entry_log.drop_after(self._storage.index.log_end())
                raise
            self._sealed = None
            self._storage.write_cache.release()
        self.done += 1
        self._tell_opened()
        self._on_done()

    def _tell_opened(self) -> None:
        """Only now: a full disk takes a part of one file after the other, and none stays."""
        end, entry_log = self._storage.index.log_end(), self._storage.entry_log
        if end is not None and end.log_number > self._last_log:
            for number in entry_log.numbers:
                if number > self._last_log:
                    log.info("entry log opened", extra={"file": entry_log.path(number)})
            self._last_log = end.log_number

    @property
    def _can_trim(self) -> bool:
        """Whether the journals went on since the last checkpoint: it may free their old files."""
        reached = self._storage.index.journal_marks()
        return bool(reached) and reached != tuple(self._marks())

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger from what a failed checkpoint left to be carried; under ``lock``."""
        if self._sealed is not None:
            self._sealed.ledgers.pop(ledger_id, None)

    async def _run_when_wanted(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.checkpoint_interval_s):
                    await self._is_wanted.wait()
            except TimeoutError:
                pass
            self._is_wanted.clear()
            had_failed = READ_ONLY_REASON in self._storage.read_only_reasons
            if not await self._try():
                await asyncio.sleep(self._config.checkpoint_retry_s)
                self.request()
            elif had_failed:
                self.request()  # what has come since it began frees the journals
            else:
                self.review()

    async def _try(self) -> bool:
        try:
            await self.run()
        except OSError as error:
            self.note_failure(error)
            return False
        except Exception as error:  # noqa: BLE001 -- adds that go nowhere must not fill the memory
            self.faults += 1
            self.note_failure(error)
            return False
        self._storage.allow_adds(READ_ONLY_REASON)
        return True

    def note_failure(self, error: Exception) -> None:
        """Take no adds until a checkpoint succeeds; a full disk is said once, not at each try."""
        self.failures += 1
        if not isinstance(error, OSError) or error.errno not in FULL_ERRORS:
            log.error("checkpoint failed: no adds are taken until one succeeds", exc_info=error)
        elif READ_ONLY_REASON not in self._storage.read_only_reasons:
            log.error(
                "no room for a checkpoint: no adds are taken until there is; free some of the disk",
                extra={"file": error.filename, "reason": error.strerror},
            )
        self._storage.refuse_adds(READ_ONLY_REASON)

    async def _carry(self, sealed: _Sealed) -> None:
        if sealed.records is None:
            sealed.records = await self._write(sealed)
        await self._storage.index.flush()
        for record in sealed.records:
            ledger = sealed.ledgers.get(record.ledger_id)
            if ledger is not None:  # deleted, while the index could not be flushed
                ledger.last_flushed = record.last_entry
                self._storage.ledgers.mark_written(ledger)
        await self._trim(sealed.marks)
        log.debug("checkpoint made", extra={"ledgers": len(sealed.records)})

    async def _write(self, sealed: _Sealed) -> list[LedgerRecord]:
        """Write the entry log, and tell the index; the ledgers' records."""
        storage = self._storage
        blocks = _blocks(sealed.entries, sealed.ledgers, self._config.block_bytes)
        locations = await storage.entry_log.append(blocks)
        records = [
            _record(ledger, sealed.entries.get(ledger_id))
            for ledger_id, ledger in sorted(sealed.ledgers.items())
        ]
        if records:  # all may have been deleted meanwhile
            await storage.entry_log.append_ledgers(records)
        counts = Counts(
            storage.counts.ledgers + sum(ledger.is_new for ledger in sealed.ledgers.values()),
            storage.counts.entries + sum(map(len, sealed.entries.values())),
        )
        storage.index.note(
            Change(
                blocks=locations,
                ledgers=records,
                log_end=storage.entry_log.end,
                journal_marks=sealed.marks,
                counts=counts,
            )
        )
        storage.counts = counts
        for ledger in sealed.ledgers.values():
            ledger.is_new = False
        return records


def _record(ledger: Ledger, entries: Entries | None) -> LedgerRecord:
    last_entry = max(ledger.last_flushed, max(entries or (), default=-1))
    return replace(ledger.record(), last_entry=last_entry)


def _blocks(
    entries: Mapping[int, Entries], ledgers: Mapping[int, Ledger], block_bytes: int
) -> Iterator[tuple[Block, bytes]]:
    for ledger_id in sorted(entries):
        master_key = ledgers[ledger_id].master_key
        for block in cut_blocks(ledger_id, entries[ledger_id], block_bytes):
            yield block, master_key
