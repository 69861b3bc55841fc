"""The interface over all that keeps entries: who may add, what is fenced, where an entry is found.

Everything here is decided in memory, at once, on one thread; only reads of the disk wait. That is
what makes fencing sound: once ``fence`` has returned, no normal add of the ledger is admitted any
more. What must be durable before a client is answered (an add, a fence, an explicit
last-add-confirmed) the session gives to the journal, and answers when that is done.

Adds go to the write cache (by the session, through ``writable``); ``checkpoint`` carries them on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct

from geminga_bookie.config import BookieConfig
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.errors import DamagedBlock, LogRemoved
from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import Counts
from geminga_bookie.formats.journal_v1 import Fence, Mark
from geminga_bookie.index.index import Index
from geminga_bookie.storage.ledgers import Ledger, LedgerTable
from geminga_bookie.storage.read_cache import ReadCache
from geminga_bookie.storage.write_cache import ENTRY_OVERHEAD_BYTES, Entries, WriteCache
from geminga_protocol.bookkeeper.availability import Run, join_runs, runs_of
from geminga_protocol.bookkeeper.errors import (
    BookieFailed,
    BookieReadOnly,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    WrongMasterKey,
)
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY, Flag, encode_add_header

log = logging.getLogger(__name__)

# ``entry_runs`` reads the tables of so many blocks, then lets other tasks run: about a millisecond.
BLOCKS_PER_TURN = 50

# The first bytes of a V2 add, by which the write cache knows what was admitted:
# +-------------+------------+-----------+
# | header word | master key | ledger_id |
# |  u32        |  20 bytes  |  i64      |
# +-------------+------------+-----------+
ADMISSION_BYTES = 32
_LEDGER_ID = Struct(">q")
_FRAME_SIZE_BYTES = 4

# Every combination of flags for which admissions are remembered; a fence takes back those of normal
# adds. Other flags, which no client is known to send, are decided add by add.
_ADD_FLAGS = range(8)
_NORMAL_ADD_FLAGS = [flags for flags in _ADD_FLAGS if not flags & Flag.RECOVERY_ADD]


def admission_prefix(ledger_id: int, master_key: bytes, flags: int) -> bytes:
    """The first 32 bytes of a request to add, without its size."""
    return encode_add_header(master_key, 0, flags)[_FRAME_SIZE_BYTES:] + _LEDGER_ID.pack(ledger_id)


class Storage:
    """Ledgers and entries of one bookie.

    ``on_read_only`` is called whenever ``is_read_only`` has changed.
    """

    def __init__(
        self,
        config: BookieConfig,
        index: Index,
        entry_log: EntryLog,
        *,
        on_read_only: Callable[[], None],
    ) -> None:
        self.index = index
        self.entry_log = entry_log
        # Sessions put entries into it; everything else here goes through the methods below.
        self.write_cache = WriteCache()
        self.read_cache = ReadCache(config.read_cache_bytes_max)
        # The one place where a ledger's state is: a ``Ledger`` that has changed stays in the table
        # until a checkpoint has written it, so that no second object of the same ledger can miss a
        # fence.
        self.ledgers = LedgerTable(self._load_ledger, config.ledgers_cached_max)
        # What the entry logs hold, as the index will say after the next commit.
        self.counts = Counts()
        # How often a read is tried again because compaction moved its block meanwhile.
        self.block_moves_max = config.block_moves_max
        # Why adds are refused, the oldest reason first, and whether recovery's adds are taken all
        # the same. Empty where adds are taken. Changed by ``refuse_adds`` and ``allow_adds`` only.
        self.read_only_reasons: dict[str, bool] = {}
        self._on_read_only = on_read_only

    # Adding.

    def admit(self, ledger_id: int, master_key: bytes, flags: int) -> Entries:
        """Decide whether an add may be taken; return the entries it is to be put into.

        From now on adds that begin with the same bytes are found in ``writable``, until the ledger
        is fenced, the write cache sealed or the bookie read-only. Raises ``BookieReadOnly``,
        ``WrongMasterKey``, ``LedgerFenced``, ``BookieFailed``.
        """
        # Checked before ``_open``: a refused add must not make a ledger that was not here.
        if self.read_only_reasons:
            # Upstream's writers set this flag together with RECOVERY_ADD, and its bookies go by
            # this one.
            has_priority = bool(flags & Flag.HIGH_PRIORITY)
            if not (has_priority and self.takes_recovery_adds):
                raise BookieReadOnly(ledger_id)
        ledger = self._open(ledger_id, master_key)
        # Recovery writes the ledger's last entries once more after it has fenced it.
        if ledger.is_fenced and not flags & Flag.RECOVERY_ADD:
            raise LedgerFenced(ledger_id)
        # The checkpoint that carries the entry must write the ledger too: a new one for its key,
        # any for its last entry.
        self.ledgers.mark_changed(ledger)
        entries = self.write_cache.entries_of(ledger_id)
        # The dict itself is handed out. It is the active generation's for as long as it is in
        # ``writable``: sealing, a fence and a read-only bookie take it out of there.
        if flags in _ADD_FLAGS:
            self.write_cache.writable[admission_prefix(ledger_id, master_key, flags)] = entries
        return entries

    def fence(self, ledger_id: int, master_key: bytes) -> Ledger:
        """Refuse normal adds of the ledger from now on, whether it was known or not.

        The fence is durable only when ``Ledger.is_fence_durable``. Raises ``WrongMasterKey``,
        ``BookieFailed``.
        """
        ledger = self._open(ledger_id, master_key)
        # What was admitted before stays in the write cache, and will be found by recovery. What
        # comes from now on is decided in ``admit``, and refused. A bookie without an entry of the
        # ledger keeps the fence too. Recovery counts its answer, and a writer's late add must not
        # succeed here either.
        if not ledger.is_fenced:
            ledger.is_fenced = True
            self.ledgers.mark_changed(ledger)
            for flags in _NORMAL_ADD_FLAGS:
                prefix = admission_prefix(ledger_id, master_key, flags)
                self.write_cache.writable.pop(prefix, None)
        return ledger

    def set_explicit_lac(self, ledger_id: int, master_key: bytes, body: bytes) -> Ledger:
        """Remember the last-add-confirmed that the ledger's writer sent without an entry.

        ``body`` is kept as it came. Raises ``BookieReadOnly``, ``WrongMasterKey``,
        ``BookieFailed``.
        """
        if self.read_only_reasons:
            raise BookieReadOnly(ledger_id)
        ledger = self._open(ledger_id, master_key)
        ledger.explicit_lac = body
        self.ledgers.mark_changed(ledger)
        return ledger

    def refuse_adds(self, reason: str, *, takes_recovery: bool = False) -> None:
        """Take no adds while ``reason`` holds; with ``takes_recovery`` only those of recovery.

        Recovery's adds have high priority: without them a ledger whose writer died stays open.
        """
        was_read_only = self.is_read_only
        # A reason may come again with another ``takes_recovery``. One that comes unchanged, as the
        # disks' verdict does every few seconds, must not throw away the admissions.
        if self.read_only_reasons.get(reason) is not takes_recovery:
            self.read_only_reasons[reason] = takes_recovery
            # Everything that was admitted is decided anew.
            self.write_cache.writable.clear()
        if not was_read_only:
            self._on_read_only()

    def allow_adds(self, reason: str) -> None:
        """Take adds again, unless there is another reason than ``reason`` to refuse them."""
        was_read_only = self.is_read_only
        self.read_only_reasons.pop(reason, None)
        if was_read_only and not self.is_read_only:
            self._on_read_only()

    @property
    def is_read_only(self) -> bool:
        """Whether adds are refused."""
        return bool(self.read_only_reasons)

    @property
    def takes_recovery_adds(self) -> bool:
        """Whether recovery's adds are taken, read-only or not."""
        # One reason that does not take them is enough: a failed journal cannot, whatever the disks
        # say.
        return all(self.read_only_reasons.values())

    def _open(self, ledger_id: int, master_key: bytes) -> Ledger:
        """The ledger, made if it is new. Raises ``WrongMasterKey``, ``BookieFailed``."""
        ledger = self.ledgers.find(ledger_id)
        if ledger is None:
            # The first request for a ledger sets its key, as upstream.
            return self.ledgers.create(ledger_id, master_key)
        if ledger.master_key != master_key:
            raise WrongMasterKey(ledger_id)
        return ledger

    # Reading.

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Find an entry in memory; None where the disk must be read (``load``).

        ``LAST_ENTRY`` asks for the last one. Raises ``NoSuchLedger``, ``NoSuchEntry``,
        ``BookieFailed``.
        """
        # HOT: most reads are of the newest entries, and end here.
        entry = self.write_cache.find(ledger_id, entry_id)
        if entry is not None:
            return entry
        ledger = self.ledgers.find(ledger_id)
        if ledger is None:
            raise NoSuchLedger(ledger_id, entry_id)
        if entry_id == LAST_ENTRY:
            entry_id = self.last_entry(ledger)
            if entry_id == LAST_ENTRY:
                raise NoSuchEntry(ledger_id, entry_id)
            entry = self.write_cache.find(ledger_id, entry_id)
        # A checkpoint raises ``last_flushed`` before it releases the sealed entries, so that an
        # entry is never in neither place.
        elif entry_id > ledger.last_flushed:
            # Neither in memory nor, for certain, on the disk.
            raise NoSuchEntry(ledger_id, entry_id)
        return entry if entry is not None else self.read_cache.find(ledger_id, entry_id)

    async def fetch(self, ledger_id: int, entry_id: int) -> bytes:
        """Get an entry from wherever it is. Raises like ``find``, and like ``load``."""
        entry = self.find(ledger_id, entry_id)
        return await self.load(ledger_id, entry_id) if entry is None else entry

    async def load(self, ledger_id: int, entry_id: int, *, is_checked: bool = False) -> bytes:
        """Read an entry that ``find`` did not find from the disk; the read cache gets its block.

        An entry from a damaged block may be damaged itself, which its reader finds out by its
        digest. Without a digest to check it by, ask for one that ``is_checked``. Raises
        ``NoSuchEntry``, ``BookieFailed``, ``CorruptFile``, ``UnknownFormat``, ``OSError``.
        """
        if entry_id == LAST_ENTRY:
            ledger = self.ledgers.find(ledger_id)
            assert ledger is not None
            entry_id = self.last_entry(ledger)
        # Between the index's answer and the read, compaction may remove the log.
        for _ in range(self.block_moves_max):
            try:
                return await self._read(ledger_id, entry_id, is_checked=is_checked)
            except LogRemoved:
                continue  # compaction moved the block, or the ledger is gone: the index knows
        raise BookieFailed(ledger_id, entry_id)

    async def _read(self, ledger_id: int, entry_id: int, *, is_checked: bool) -> bytes:
        damaged: DamagedBlock | None = None
        # The index is seen as it was when this began, however long the reads take. Where a block
        # has moved since, its old place is still good until its file is removed, which shows as
        # ``LogRemoved``.
        for location in self.index.blocks(ledger_id, entry_id):
            try:
                block = await self.entry_log.read(location)
            except DamagedBlock as error:  # another block may have a better copy
                damaged = error if damaged is None else damaged
                continue
            # The whole block: a reader that goes on asks for its next entries now.
            self.read_cache.put(ledger_id, block)
            entry = block.get(entry_id)
            if entry is not None:
                return entry
        # No block can have it, and all that might were sound: this is certain.
        if damaged is None:
            raise NoSuchEntry(ledger_id, entry_id)
        # That the entry is not here cannot be told from a damaged block. An answer that it is not
        # would let recovery close the ledger before it.
        if is_checked or entry_id not in damaged.entries:
            raise BookieFailed(ledger_id, entry_id) from damaged
        return damaged.entries[entry_id]

    async def entry_runs(self, ledger_id: int) -> list[Run]:
        """Which entries of a ledger are here, as rising runs of ids that do not touch.

        An entry that is added meanwhile may be among them or not. Raises ``NoSuchLedger``,
        ``BookieFailed``, ``CorruptFile``, ``UnknownFormat`` and ``OSError``.
        """
        for _ in range(self.block_moves_max):
            if self.ledgers.find(ledger_id) is None:
                raise NoSuchLedger(ledger_id)
            # Memory first: an entry that a checkpoint carries away meanwhile is then seen twice. In
            # the other order it would not be seen at all.
            runs = runs_of(sorted(self.write_cache.entry_ids(ledger_id)))
            try:
                for number, location in enumerate(list(self.index.blocks_of(ledger_id))):
                    if number % BLOCKS_PER_TURN == 0:
                        await asyncio.sleep(0)
                    runs += runs_of(await self.entry_log.read_ids(location))
            except LogRemoved:
                continue  # compaction moved blocks: the index knows where to
            return join_runs(runs)
        raise BookieFailed(ledger_id)

    def last_entry(self, ledger: Ledger) -> int:
        """The highest entry id of the ledger on this bookie; -1 for none."""
        return max(ledger.last_flushed, self.write_cache.last_entry(ledger.ledger_id))

    def _load_ledger(self, ledger_id: int) -> LedgerRecord | None:
        try:
            return self.index.ledger(ledger_id)
        except OSError as error:
            log.exception("index cannot be read", extra={"ledger": ledger_id})
            raise BookieFailed(ledger_id) from error

    # Forgetting.

    def forget(self, ledger_id: int, master_key: bytes) -> None:
        """Drop what is in memory of a ledger that was deleted."""
        self.ledgers.forget(ledger_id)
        self.write_cache.forget(ledger_id)
        for flags in _ADD_FLAGS:
            self.write_cache.writable.pop(admission_prefix(ledger_id, master_key, flags), None)

    # Replaying the journal. What it says was decided when it was written, and is not decided again:
    # an add that is older than a fence was admitted, whichever of them is replayed first.

    def restore_add(self, ledger_id: int, entry_id: int, master_key: bytes, entry: bytes) -> None:
        """Take back an entry that was added before a crash."""
        self._restore(ledger_id, master_key)
        # ``_restore`` has marked the ledger as changed: a checkpoint must find the ledger of every
        # entry that it carries.
        self.write_cache.entries_of(ledger_id)[entry_id] = entry
        self.write_cache.active_bytes += len(entry) + ENTRY_OVERHEAD_BYTES

    def restore_mark(self, mark: Mark) -> None:
        """Take back that a ledger was fenced, or what its writer said without an entry."""
        ledger = self._restore(mark.ledger_id, mark.master_key)
        if isinstance(mark, Fence):
            # Sessions are served only after the replay, when the journal's file is durable again.
            ledger.is_fenced = ledger.is_fence_durable = True
        else:
            ledger.explicit_lac = mark.body

    def _restore(self, ledger_id: int, master_key: bytes) -> Ledger:
        ledger = self.ledgers.find(ledger_id)
        if ledger is None:
            ledger = self.ledgers.create(ledger_id, master_key)
        self.ledgers.mark_changed(ledger)
        return ledger
