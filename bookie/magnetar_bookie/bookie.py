"""A bookie: its rooms put together, opened in the order in which they need each other.

Knows nothing of processes, settings files or HTTP (``part`` does), and nothing of real disks and
networks: they are given, so that simulations give theirs.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, aclosing

from magnetar_bookie.checkpoint import Checkpointer
from magnetar_bookie.counters import Counters
from magnetar_bookie.entry_log import EntryLog
from magnetar_bookie.errors import UnknownFormat
from magnetar_bookie.formats.journal_v1 import Fence, decode_body
from magnetar_bookie.identity import establish_identity
from magnetar_bookie.index import (
    EMPTY_CHECKPOINT,
    FORMAT_VERSION,
    Index,
    JournalMark,
    SortedStore,
)
from magnetar_bookie.intake import Intake
from magnetar_bookie.journal import Journal
from magnetar_bookie.last_confirmed import LastConfirmed
from magnetar_bookie.long_polls import LongPolls
from magnetar_bookie.rebuild import rebuild_index
from magnetar_bookie.registration import Registration
from magnetar_bookie.replay import Replay
from magnetar_bookie.session import Session
from magnetar_bookie.session_context import DiskSpace, SessionContext
from magnetar_bookie.settings import BookieSettings
from magnetar_bookie.storage import Storage
from magnetar_protocol.records.bookie_info import BookieInfo
from magnetar_runtime.clock import Clock
from magnetar_runtime.coordination import Coordination
from magnetar_runtime.disk import Disk
from magnetar_runtime.network import Network
from magnetar_runtime.service import Service
from magnetar_server.authorization import ALLOW_ALL, Authorizer, Resource

log = logging.getLogger(__name__)

JOURNAL_FAILED = "journal failed"


class Bookie(Service):
    """Serves the BookKeeper protocol from two disks and an index; open till the block is left.

    Entering raises what ``identity``, ``replay`` and ``rebuild`` raise; the message names the file
    and the way out. ``index`` stays the caller's: it outlives the bookie.
    """

    def __init__(
        self,
        settings: BookieSettings,
        *,
        journal_disk: Disk,
        ledger_disk: Disk,
        index: SortedStore,
        network: Network,
        coordination: Coordination,
        clock: Clock,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._authorizer = authorizer
        self._journal_disk = journal_disk
        self._ledger_disk = ledger_disk
        self._network = network
        self._coordination = coordination
        self._clock = clock
        self._index = Index(index)
        self._registration: Registration | None = None
        # Before the journal is open: how far its replay has come.
        self._replayed: JournalMark | None = None
        self.bookie_id = ""
        self.port = 0
        self.counters = Counters(clock)
        self.entry_log = EntryLog(ledger_disk, clock, file_bytes_max=settings.entry_log_bytes_max)
        self.journal = Journal(
            journal_disk,
            clock,
            file_bytes_max=settings.journal_file_bytes_max,
            group_interval_max_s=settings.journal_group_interval_max_s,
            close_timeout_s=settings.close_timeout_s,
            on_written=self._memory_freed,
            on_failed=self._journal_failed,
        )
        self.storage = Storage(
            settings, self._index, self.entry_log, on_read_only=self._read_only_changed
        )
        self.checkpointer = Checkpointer(
            settings,
            self.storage,
            mark=lambda: self._replayed or self.journal.mark,
            trim=self.journal.trim,
            on_done=self._memory_freed,
        )
        self.intake = Intake(self._is_memory_full)

    async def _open(self, stack: AsyncExitStack) -> None:
        cookie = await establish_identity(
            self.settings, self._journal_disk, self._ledger_disk, self._coordination, self._clock
        )
        self.bookie_id = cookie.bookie_id
        await self._open_storage(stack)
        await stack.enter_async_context(self.checkpointer)
        await self._replay_journal()
        await stack.enter_async_context(self.journal)
        self._replayed = None
        self.checkpointer.request()
        await self._listen(stack)
        address = BookieInfo.of_address(
            self.settings.advertised_host or self.settings.host, self.port
        )
        self._registration = Registration(
            self._coordination,
            self.bookie_id,
            address,
            is_read_only=lambda: self.storage.is_read_only,
        )
        await stack.enter_async_context(self._registration)
        log.info("bookie serves", extra={"bookie": self.bookie_id, "port": self.port})

    async def _open_storage(self, stack: AsyncExitStack) -> None:
        version = self._index.format_version
        if version is None:
            numbers = await self.entry_log.numbers()
            if numbers:
                await rebuild_index(self._ledger_disk, self._index, numbers)
            else:
                # Before there is an entry log: one that a power cut tears is then known to be the
                # leftover of a checkpoint, not the last trace of an index that was lost.
                await self._index.commit(EMPTY_CHECKPOINT)
        elif version != FORMAT_VERSION:
            raise UnknownFormat("the index", f"its version is {version}, not {FORMAT_VERSION}")
        stack.push_async_callback(self.entry_log.close)
        await self.entry_log.open(self._index.log_end())
        self.storage.counts = self._index.counts()

    async def _replay_journal(self) -> None:
        """Bring back what only the journal has; make room by checkpoints where it is much."""
        replay = Replay(self._journal_disk, self._index.journal_mark())
        entries = 0
        async with aclosing(replay.groups()) as groups:
            async for group in groups:
                for adds, mark in decode_body(group.path, group.body):
                    for ledger_id, entry_id, master_key, entry in adds:
                        self.storage.restore_add(ledger_id, entry_id, master_key, entry)
                    entries += len(adds)
                    if isinstance(mark, Fence):
                        self.storage.restore_fence(*mark)
                    elif mark is not None:
                        self.storage.restore_explicit_lac(*mark)
                self._replayed = group.mark
                if self.checkpointer.is_due:
                    await self.checkpointer.run()
        self.journal.continue_after(replay.file_numbers, replay.next_group)
        if entries:
            log.info("journal replayed", extra={"entries": entries})

    async def _listen(self, stack: AsyncExitStack) -> None:
        last_confirmed = LastConfirmed(self.storage)
        context = SessionContext(
            settings=self.settings,
            storage=self.storage,
            journal=self.journal,
            counters=self.counters,
            intake=self.intake,
            last_confirmed=last_confirmed,
            long_polls=LongPolls(last_confirmed),
            spawn=self.spawn,
            after_adds=self._adds_came,
            disk_space=self._disk_space,
            authorizer=self._authorizer,
            resource=Resource.cluster(self.bookie_id),
        )
        stack.push_async_callback(self._close_sessions)
        listener = await self._network.listen(
            lambda: Session(context), self.settings.host, self.settings.port
        )
        stack.push_async_callback(listener.close)
        self.port = listener.port

    async def _close_sessions(self) -> None:
        """Take nothing more, answer what is pending, then close every connection."""
        self.intake.close()
        await self.journal.drain()
        await self.intake.disconnect(self.settings.close_timeout_s)

    # What the rooms tell each other.

    def _is_memory_full(self) -> bool:
        settings = self.settings
        return (
            self.journal.queued_bytes > settings.journal_queue_bytes_max
            or self.storage.write_cache.used_bytes > settings.write_cache_bytes_max
        )

    def _disk_space(self) -> DiskSpace:
        return DiskSpace(self._ledger_disk.total_bytes(), self._ledger_disk.free_bytes())

    def _adds_came(self) -> None:
        self.checkpointer.review()
        if self._is_memory_full():
            self.intake.review()

    def _memory_freed(self) -> None:
        if self.intake.is_held:
            self.intake.review()

    def _journal_failed(self, _error: OSError) -> None:
        self.storage.refuse_adds(JOURNAL_FAILED)

    def _read_only_changed(self) -> None:
        log.warning(
            "bookie is read-only" if self.storage.is_read_only else "bookie takes adds again",
            extra={"bookie": self.bookie_id},
        )
        if self._registration is not None:
            self._registration.review()
