"""Checkpoints: carry the write cache to the entry logs and the index, then trim the journals.

The order of events makes it safe to die anywhere:

1. The write cache is sealed, together with the marks up to where the journals are durable now. What
   is added from here on belongs to the next checkpoint, and to the journals behind the marks.
2. The entries are appended to the entry logs as blocks, then the ledgers' records; each is durable
   on return. A crash leaves bytes behind the index's ``LogEnd``, which the next start cuts off.
3. The blocks, the records, the new ``LogEnd`` and the marks are written to the index, all at once,
   and flushed. This is the moment at which the checkpoint has happened: after a crash before it the
   journals are replayed from the old marks, after it from the new ones.
4. The journals' files before the marks are removed, and the sealed entries leave the memory. A
   crash before that leaves files that are not replayed, and are removed after the next checkpoint.

An add is in the write cache before its journal group is durable. So a checkpoint may carry entries
that are behind the marks; replaying adds them again, which changes nothing.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from geminga_bookie.config import BookieConfig
from geminga_bookie.formats.entry_log_v1 import LedgerRecord, cut_blocks
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
# How a disk says that it has no room: none at all, or none for this user.
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True)
class _Sealed:
    """What one checkpoint carries. It stays until a checkpoint succeeds, however many fail."""

    # By ledger; the write cache's sealed generation itself, so that reads still find them.
    entries: dict[int, Entries]
    # The ledgers that changed, those of the entries among them.
    ledgers: dict[int, Ledger]
    # Up to where this checkpoint makes the journals superfluous.
    marks: Sequence[JournalMark]
    # The ledgers' records, once everything is noted in the index. A checkpoint that failed to make
    # that durable must only flush: noting it twice would count the blocks twice.
    records: Sequence[LedgerRecord] | None = None


class Checkpointer(Service):
    """Makes checkpoints in the background: when half the write cache is full, and periodically.

    Closing makes a last one, so that the next start has little to replay. ``marks`` gives the end
    of what is durable in each journal, ``trim`` removes the journals before such marks, ``on_done``
    is called after each checkpoint.
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
        # Held by everything that appends to entry logs or changes the index: checkpoints,
        # compaction, the deletion of ledgers. Guards _sealed, the write cache's sealed generation,
        # the end of the entry log, and the counts.
        self.lock = asyncio.Lock()
        # None between two checkpoints. One that fails stays where it was until the next one:
        #
        #     None --seal--> records is None --note--> records is set --flush, trim--> None
        #                      | append fails:           | flush or trim fails:
        #                      | drop what was written   | only these two are tried again
        self._sealed: _Sealed | None = None
        self._threshold_bytes = config.write_cache_bytes_max // 2
        # The newest entry log that was reported in our log.
        self._last_log = 0
        # Counted since the start.
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
        """Begin a checkpoint in the background if one is due.

        HOT: called whenever a socket brought adds.
        """
        if self._storage.write_cache.active_bytes >= self._threshold_bytes:
            self._is_wanted.set()

    def request(self) -> None:
        """Begin a checkpoint in the background in any case."""
        self._is_wanted.set()

    async def run(self) -> None:
        """Make a checkpoint now.

        Raises ``OSError``; then nothing is lost, and the next checkpoint first finishes this one.
        """
        storage = self._storage
        async with self.lock:
            # Where an earlier checkpoint failed, this one finishes it, and what came since stays
            # active.
            if self._sealed is None:
                if not storage.ledgers.changed:
                    # Nothing to carry. But journals may have begun new files since the last
                    # checkpoint, and a new mark frees the old ones.
                    reached = storage.index.journal_marks()
                    if not reached or reached == tuple(self._marks()):
                        return
                # Nothing is awaited between these: entries, ledgers and marks are of one moment.
                ledgers = storage.ledgers.take_changed()
                self._sealed = _Sealed(storage.write_cache.seal(), ledgers, self._marks())
            sealed = self._sealed
            try:
                if sealed.records is None:
                    sealed.records = await self._write(sealed)
                # The moment at which the checkpoint has happened. Until here a crash may take back
                # all that was noted, and then the old marks hold.
                await storage.index.store.flush()
                # Done before the write cache is released: a read that does not find an entry there
                # looks on the disk only up to ``last_flushed``.
                for record in sealed.records:
                    ledger = sealed.ledgers.get(record.ledger_id)
                    if ledger is not None:  # deleted, while the index could not be flushed
                        ledger.last_flushed = record.last_entry
                        storage.ledgers.mark_written(ledger)
                # Trimming comes after the flush: until then a crash leads back to these files.
                await self._trim(sealed.marks)
            except OSError:
                # Blocks that the index does not know are written once more by the next attempt, and
                # a full disk needs the room of these. Where only the flush or the trimming failed,
                # the index has noted the new end already, and these blocks stay.
                await storage.entry_log.drop_after(storage.index.log_end())
                raise
            log.debug("checkpoint made", extra={"ledgers": len(sealed.records)})
            self._sealed = None
            storage.write_cache.release()
        self.done += 1
        # New entry logs are reported only now: on a full disk each attempt makes one after the
        # other, and none of them stays.
        end = storage.index.log_end()
        if end is not None and end.log_number > self._last_log:
            for number in storage.entry_log.numbers:
                if number > self._last_log:
                    log.info("entry log opened", extra={"file": storage.entry_log.path(number)})
            self._last_log = end.log_number
        self._on_done()

    def forget(self, ledger_id: int) -> None:
        """Drop a deleted ledger from what a failed checkpoint left to carry; under ``lock``."""
        if self._sealed is not None:
            self._sealed.ledgers.pop(ledger_id, None)

    def note_failure(self, error: Exception) -> None:
        """Refuse adds until a checkpoint succeeds; a full disk is logged once, not at each try."""
        self.failures += 1
        if not isinstance(error, OSError) or error.errno not in FULL_ERRORS:
            log.error("checkpoint failed: no adds are taken until one succeeds", exc_info=error)
        elif READ_ONLY_REASON not in self._storage.read_only_reasons:
            log.error(
                "no room for a checkpoint: no adds are taken until there is; free some of the disk",
                extra={"file": error.filename, "reason": error.strerror},
            )
        self._storage.refuse_adds(READ_ONLY_REASON)

    async def _run_when_wanted(self) -> None:
        while True:
            try:
                # An idle bookie looks once in each interval too, and writes nothing where nothing
                # has changed.
                async with asyncio.timeout(self._config.checkpoint_interval_s):
                    await self._is_wanted.wait()
            except TimeoutError:
                pass
            # Cleared before it begins: what asks for a checkpoint from here on gets another one.
            self._is_wanted.clear()
            had_failed = READ_ONLY_REASON in self._storage.read_only_reasons
            try:
                await self.run()
            except OSError as error:
                self.note_failure(error)
            except Exception as error:  # noqa: BLE001 -- adds that go nowhere must not fill the memory
                self.faults += 1
                self.note_failure(error)
            else:
                self._storage.allow_adds(READ_ONLY_REASON)
                if had_failed:
                    # It carried what was sealed before it failed first. One more frees the journals
                    # of what has come since.
                    self.request()
                else:
                    self.review()
                continue
            # Reached after a failure only. The request makes the next turn begin without waiting
            # for the interval.
            await asyncio.sleep(self._config.checkpoint_retry_s)
            self.request()

    async def _write(self, sealed: _Sealed) -> list[LedgerRecord]:
        """Write the entries and the ledgers' records, and note them in the index."""
        storage = self._storage
        # First the entries, as blocks, ledger by ledger. Nothing changes them meanwhile: adds go to
        # the other generation, and a deletion needs the lock. Blocks are made while they are
        # written: the entries are not in memory twice.
        blocks = (
            (block, sealed.ledgers[ledger_id].master_key)
            for ledger_id in sorted(sealed.entries)
            for block in cut_blocks(ledger_id, sealed.entries[ledger_id], self._config.block_bytes)
        )
        locations = await storage.entry_log.append(blocks)
        # Then a record of each ledger that changed, from which a lost index is rebuilt. It says how
        # the ledger is now: a fence that came since it was sealed may be among it. That is no harm,
        # only early.
        records: list[LedgerRecord] = []
        for ledger_id, ledger in sorted(sealed.ledgers.items()):
            last_entry = max(sealed.entries.get(ledger_id, ()), default=-1)
            records.append(
                LedgerRecord(
                    ledger_id,
                    ledger.master_key,
                    ledger.is_fenced,
                    max(ledger.last_flushed, last_entry),
                    ledger.explicit_lac,
                )
            )
        if records:  # all may have been deleted since an attempt that failed
            await storage.entry_log.append_ledgers(records)
        # Last the index, in one write.
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
        # Counted after the note, which may raise: the next attempt would otherwise count the same
        # again.
        storage.counts = counts
        for ledger in sealed.ledgers.values():
            ledger.is_new = False
        return records
