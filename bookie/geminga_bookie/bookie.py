"""A bookie: its rooms put together, opened in the order in which they need each other.

The order of a start, in which nothing is changed on the disks before it is sure that nothing is
missing on them:

1. The cookies: these disks are this bookie's, and all of them.
2. The index, rebuilt from the entry logs where it is lost.
3. The journals' files: which of them must be replayed, and whether they are all there.
4. The entry logs: everything that the index knows is there; what is behind that is cut off.
5. The journals are replayed into the write cache, then each begins a new file.
6. Garbage collection, sessions, and last the registration, by which clients find the bookie.

Closing goes the other way round, once reads that wait for the disk are given up: the registration
first, then sessions get their last answers, and a checkpoint leaves little to replay.

Processes, config files and HTTP are the business of ``part``. Disks, network and ZooKeeper are
given, so that simulations give theirs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

from geminga_bookie.config import BookieConfig
from geminga_bookie.counters import Counters
from geminga_bookie.decisions.disk_space import SpaceVerdict
from geminga_bookie.disks.directories import Directories, Directory
from geminga_bookie.disks.identity import establish_identity
from geminga_bookie.disks.space_watch import SpaceWatch
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.errors import UnknownFormat
from geminga_bookie.formats.index_v2 import FORMAT_VERSION, Counts
from geminga_bookie.formats.journal_v1 import JOURNAL_BEGINNING, JournalMark, decode_body
from geminga_bookie.garbage.collector import Collector
from geminga_bookie.garbage.compaction import Compactor
from geminga_bookie.index.index import Change, Index, SortedStore
from geminga_bookie.journal.journal import Journal
from geminga_bookie.journal.journals import SpreadJournals, ordered_directories
from geminga_bookie.journal.replay import Replay
from geminga_bookie.registration import Registration
from geminga_bookie.sessions.back_pressure import MemoryBackPressure
from geminga_bookie.sessions.context import DiskSpace, SessionContext
from geminga_bookie.sessions.long_polls import LongPolls
from geminga_bookie.sessions.session import Session
from geminga_bookie.storage.checkpoint import FULL_ERRORS, READ_ONLY_REASON, Checkpointer
from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_bookie.storage.lost_logs import forget_lost_logs
from geminga_bookie.storage.rebuild import rebuild_index
from geminga_bookie.storage.storage import Storage
from geminga_protocol.records.bookies.bookie_info import BookieInfo
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.disk import Disk
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.authorization import Authorize, Resource, allow_all
from geminga_server.connection_limits import ConnectionLimits

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

JOURNAL_FAILED = "journal failed"
DISKS_FULL = "ledger disks are full"


class Bookie(Service):
    """Serves the BookKeeper protocol from its journals, entry logs and index.

    The disks are those of the directories that the settings name, in that order. Entering raises
    what ``identity``, ``entry_log``, ``replay`` and ``rebuild`` raise; the message names the file
    and the way out. ``index`` stays the caller's: it is opened before the bookie and closed after.
    """

    def __init__(
        self,
        config: BookieConfig,
        *,
        journal_disks: Sequence[Disk],
        ledger_disks: Sequence[Disk],
        index: SortedStore,
        network: Network,
        coordination: Coordination,
        clock: Clock,
        authorize: Authorize = allow_all,
        tls: SSLContext | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self._authorize = authorize
        self._tls = tls
        self.journal_directories = Directories(
            zip(map(str, config.journals), journal_disks, strict=True)
        )
        self.ledger_directories = Directories(
            zip(map(str, config.ledgers), ledger_disks, strict=True)
        )
        self._network = network
        self._coordination = coordination
        self._clock = clock
        self._index = Index(index)
        # Set when the bookie can take no more adds until it is opened again, because a journal
        # failed. The process should end then, as upstream's bookies end themselves.
        self.failed = asyncio.Event()
        # Known once the bookie is open.
        self.bookie_id = ""
        self.port = 0
        self.collector: Collector | None = None
        self._registration: Registration | None = None
        self._space_watch: SpaceWatch | None = None
        # In the order of the numbers in their directories; empty until they are open.
        self.journals: list[Journal] = []
        # While journals are replayed: up to where each was, as far as that survives a power cut. A
        # checkpoint that makes room meanwhile takes its marks from here.
        self._replayed: list[JournalMark] | None = None
        self.counters = Counters(clock)
        self.entry_log = EntryLog(
            self.ledger_directories, clock, file_bytes_max=config.entry_log_bytes_max, config=config
        )
        self.storage = Storage(
            config, self._index, self.entry_log, on_read_only=self._read_only_changed
        )
        self.checkpointer = Checkpointer(
            config,
            self.storage,
            marks=self._journal_marks,
            trim=self._trim_journals,
            on_done=self._memory_freed,
        )
        self.compactor = Compactor(
            self.storage, self.checkpointer, bytes_per_s=config.compaction_bytes_per_s
        )
        self.back_pressure = MemoryBackPressure(self._is_memory_full)
        self.limits = ConnectionLimits(config.connections)

    async def _open(self, stack: AsyncExitStack) -> None:
        config = self.config
        # Step 1. Before any file with entries is read: the disks may be another bookie's.
        cookie = await establish_identity(
            config.bookie_id,
            self.journal_directories,
            self.ledger_directories,
            self._coordination,
            self._clock,
        )
        self.bookie_id = cookie.bookie_id
        # Steps 2 and 3. No file that has entries is changed, whatever is missing.
        await self._require_index()
        replays = await self._find_replays()
        # Step 4. Pushed before the logs are opened, as opening may fail with some of them open.
        stack.push_async_callback(self.entry_log.close)
        if config.accept_lost_entries:
            await forget_lost_logs(self.entry_log, self._index)
        # Only now that nothing is found to be missing: from here on files are cut and removed.
        await self.entry_log.open(self._index.log_end(), self._index.logs)
        self.storage.counts = self._index.counts()
        # Before the replay, which may need checkpoints to make room; closed after the journals,
        # with a last checkpoint.
        await stack.enter_async_context(self.checkpointer)
        # Step 5. All before any journal begins a new file: a start that fails can be made again.
        for number, replay in enumerate(replays.values()):
            await self._replay_journal(number, replay)
        await self._open_journals(stack, replays)
        # What was replayed is checkpointed soon, so that the old journal files can go.
        self.checkpointer.request()
        # Step 6. Before the disks are measured: the verdict sets what the collector may do.
        self.collector = Collector(
            config.garbage,
            self.storage,
            self.checkpointer,
            self.compactor,
            coordination=self._coordination,
            clock=self._clock,
            bookie_id=self.bookie_id,
            instance_id=cookie.instance_id,
        )
        await stack.enter_async_context(self.collector)
        # A checkpoint of the replay found the disk full: only deletion helps, so it begins at once.
        if self.collector.is_tight:
            self.collector.request()
        self._space_watch = SpaceWatch(
            config.space, self.ledger_directories, on_verdict=self._space_judged
        )
        # Entering measures the disks: with full ones, the bookie registers as read-only at once.
        await stack.enter_async_context(self._space_watch)
        # First the port, then the registration: a client that finds the bookie can connect.
        await self._listen(stack)
        self._registration = Registration(
            self._coordination,
            self.bookie_id,
            BookieInfo.of_address(config.advertised_host, self.port),
            is_read_only=lambda: self.storage.is_read_only,
        )
        await stack.enter_async_context(self._registration)
        log.info("bookie serves", extra={"bookie": self.bookie_id, "port": self.port})

    async def _require_index(self) -> None:
        """Have an index that can be read: an empty one at the first start, or a rebuilt one."""
        version = self._index.format_version
        if version is None:
            if await self.entry_log.find():
                await rebuild_index(
                    self.entry_log,
                    self._index,
                    accepts_loss=self.config.accept_lost_entries,
                )
            else:
                # Committed before there is an entry log. So one that a power cut tears is known to
                # be the leftover of a checkpoint, not the last trace of an index that was lost.
                await self._index.commit(Change(counts=Counts()))
        elif version != FORMAT_VERSION:
            raise UnknownFormat("the index", f"its version is {version}, not {FORMAT_VERSION}")

    async def _find_replays(self) -> dict[Directory, Replay]:
        """What is to be replayed of each journal, by its directory; changes nothing."""
        directories = await ordered_directories(self.journal_directories)
        # There are as many marks as journals: ``establish_identity`` has checked that the number of
        # directories is the same.
        marks = self._index.journal_marks() or (JOURNAL_BEGINNING,) * len(directories)
        self._replayed = list(marks)
        replays = {
            directory: Replay(directory.disk, None if mark == JOURNAL_BEGINNING else mark)
            for directory, mark in zip(directories, marks, strict=True)
        }
        for replay in replays.values():
            # All journals are looked at before one is replayed: replay cuts files, and a missing
            # file of another journal must stop the start before that.
            await replay.find()
        return replays

    async def _replay_journal(self, number: int, replay: Replay) -> None:
        """Bring back what only the journal has; make room by checkpoints where it is much."""
        assert self._replayed is not None
        entries = 0
        end = self._replayed[number]
        async with aclosing(replay.groups()) as groups:
            async for group in groups:
                # The entries go straight into memory, past the rules of ``admit``. A checkpoint may
                # have carried some of them before the crash: the next one carries them again, and
                # the index then has them twice.
                for adds, mark in decode_body(group.path, group.body):
                    for ledger_id, entry_id, master_key, entry in adds:
                        self.storage.restore_add(ledger_id, entry_id, master_key, entry)
                    entries += len(adds)
                    if mark is not None:
                        self.storage.restore_mark(mark)
                end = group.mark
                # A checkpoint must not trust what a power cut may still take away: it may carry the
                # group, but its mark stays before it.
                if group.is_durable:
                    self._replayed[number] = end
                # Where a checkpoint has failed for want of room, the others would too: the loop of
                # the checkpointer tries them, at its own pace.
                if (
                    self.checkpointer.is_due
                    and READ_ONLY_REASON not in self.storage.read_only_reasons
                ):
                    try:
                        await self.checkpointer.run()
                    except OSError as error:
                        # On a full disk everything stays in memory, as it was before the crash:
                        # only a bookie that starts can delete what fills the disk.
                        if error.errno not in FULL_ERRORS:
                            raise
                        self.checkpointer.note_failure(error)
        self._replayed[number] = end
        if entries:
            log.info("journal replayed", extra={"journal": number, "entries": entries})

    async def _open_journals(
        self, stack: AsyncExitStack, replays: Mapping[Directory, Replay]
    ) -> None:
        config = self.config
        for directory, replay in replays.items():
            journal = Journal(
                directory.disk,
                self._clock,
                file_bytes_max=config.journal_file_bytes_max,
                group_interval_max_s=config.journal_group_interval_max_s,
                close_timeout_s=config.close_timeout_s,
                on_written=self._memory_freed,
                on_failed=self._journal_failed,
            )
            # The old files are the journal's from here on, which removes them after a checkpoint.
            journal.continue_after(replay.file_numbers, replay.next_group)
            self.journals.append(journal)
            # How long an add takes is measured for the bookie, whichever journal it goes to.
            journal.add_durations = self.journals[0].add_durations
            journal.sync_durations = self.journals[0].sync_durations
        for journal in self.journals:
            await stack.enter_async_context(journal)
        # Only now every journal has a mark of its own. Until here a checkpoint goes by what was
        # replayed, and a journal's mark says (0, 0, 0) until its file is made.
        self._replayed = None

    async def _listen(self, stack: AsyncExitStack) -> None:
        last_confirmed = LastConfirmed(self.storage, self.config.confirmed_remembered_max)
        self.long_polls = LongPolls(last_confirmed, self.config.long_polls_max)
        is_single = len(self.journals) == 1
        context = SessionContext(
            config=self.config,
            storage=self.storage,
            journal=self.journals[0] if is_single else SpreadJournals(self.journals),
            counters=self.counters,
            back_pressure=self.back_pressure,
            limits=self.limits,
            last_confirmed=last_confirmed,
            long_polls=self.long_polls,
            spawn=self.spawn,
            after_adds=self._adds_came,
            disk_space=self.disk_space,
            authorize=self._authorize,
            resource=Resource("cluster", self.bookie_id),
            tls=self._tls,
        )
        # Closed in this order: the listener first, so that no session comes after the last answers.
        stack.push_async_callback(self._close_sessions)
        listener = await self._network.listen(
            lambda: Session(context), self.config.bind_address, self.config.port
        )
        stack.push_async_callback(listener.close)
        self.port = listener.port

    async def _close_sessions(self) -> None:
        """Take nothing more, answer what is pending, then close every connection."""
        # No socket is read from here on, so that what the journals wait for does not grow. By now
        # the service has cancelled its own tasks: reads that still waited for the disk get no
        # answer.
        self.back_pressure.close()
        for journal in self.journals:
            await journal.drain()
        # The transports send what was written before they close.
        await self.back_pressure.disconnect(self.config.close_timeout_s)

    def tell_http(self, port: int) -> None:
        """Publish the port of the bookie's HTTP side with its registration, as upstream does."""
        assert self._registration is not None
        host = self.config.advertised_host
        self._registration.announce(BookieInfo.of_address(host, self.port, http_port=port))

    async def force_gc(self, *, is_minor: bool = True, is_major: bool = True) -> None:
        """Collect garbage and compact entry logs now; return when that is done.

        Raises ``CoordinationError``, ``StrangeCluster``, ``OSError``, ``TimeoutError``.
        """
        assert self.collector is not None
        try:
            # Ledgers that are only in memory are in no entry log yet, and not looked at.
            await self.checkpointer.run()
        except OSError as error:
            if error.errno not in FULL_ERRORS:  # on a full disk, the collection is to make room
                raise
        await self.collector.force(is_minor=is_minor, is_major=is_major)

    def disk_space(self) -> DiskSpace:
        """How much room the ledger disks have. Raises ``OSError``."""
        disks = [directory.disk for directory in self.ledger_directories]
        return DiskSpace(
            sum(disk.total_bytes() for disk in disks), sum(disk.free_bytes() for disk in disks)
        )

    @property
    def background_faults(self) -> int:
        """How often background work met an unexpected error, and went on."""
        services = (self.checkpointer, self.collector, self._space_watch, self._registration)
        return sum(service.faults for service in services if service is not None)

    # What the rooms ask each other, and what they report.

    def _journal_marks(self) -> Sequence[JournalMark]:
        """The end of what is durable in each journal, and in the write cache or further."""
        if self._replayed is not None:
            return tuple(self._replayed)
        return tuple(journal.mark for journal in self.journals)

    async def _trim_journals(self, marks: Sequence[JournalMark]) -> None:
        # During the replay there are no journals yet, and nothing is trimmed.
        for journal, mark in zip(self.journals, marks, strict=False):
            await journal.trim(mark)

    def _is_memory_full(self) -> bool:
        """Whether sockets must not be read: too much waits for a journal, or for a checkpoint.

        HOT: asked whenever a socket brought adds. A sum over a generator would cost double.
        """
        config = self.config
        queued_bytes = 0
        for journal in self.journals:
            queued_bytes += journal.forming.size + journal.writing_bytes
        # Both bounds may be passed by what the sockets gave in one turn of the loop.
        return (
            queued_bytes > config.journal_queue_bytes_max
            or self.storage.write_cache.used_bytes > config.write_cache_bytes_max
        )

    def _adds_came(self) -> None:
        self.checkpointer.review()
        # Held as soon as memory is full, released by ``_memory_freed``.
        if self._is_memory_full():
            self.back_pressure.review()

    def _memory_freed(self) -> None:
        # After each group and checkpoint. While no socket is held there is nothing to lift, and
        # holding is the business of ``_adds_came``.
        if self.back_pressure.is_held:
            self.back_pressure.review()

    def _journal_failed(self, _error: OSError) -> None:
        # Reads go on until the process ends: what is durable can still be served.
        self.storage.refuse_adds(JOURNAL_FAILED)
        self.failed.set()

    def _space_judged(self, verdict: SpaceVerdict) -> None:
        assert self.collector is not None
        # The verdict comes every few seconds, changed or not; all of this may be said twice.
        self.collector.may_minor = verdict.may_minor
        self.collector.may_major = verdict.may_major
        self.collector.is_disk_full = any(verdict.is_full)
        if verdict.takes_adds:
            self.storage.allow_adds(DISKS_FULL)
        else:
            self.storage.refuse_adds(DISKS_FULL, takes_recovery=verdict.takes_recovery_adds)

    def _read_only_changed(self) -> None:
        log.warning(
            "bookie is read-only" if self.storage.is_read_only else "bookie takes adds again",
            extra={"bookie": self.bookie_id, "why": list(self.storage.read_only_reasons)},
        )
        # There is none while the bookie starts: the registration asks ``is_read_only`` when it
        # opens.
        if self._registration is not None:
            self._registration.review()
        if self.collector is not None and self.collector.is_tight:
            self.collector.request()  # what was deleted meanwhile may make room
