"""Reads the log for one subscription: the entries still to be sent to its consumers, in order.

The reader leaves out what consumers are not sent: entries acknowledged up to where a run begins,
delayed messages (``delayed``), and for ``readCompacted`` what compaction removed (``compacted``).
Two kinds are left to the dispatcher, which finds them at no cost: entries acknowledged within a
run, and markers, which have no messages (it reports those to ``pass_over``).

Reading is synchronous as long as the log's cache has the entries. Others are fetched from bookies,
one read task at a time, ahead of what consumers take; when it is done, the owner dispatches again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from weakref import ref

from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.cache.read_ahead import ReadAhead
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.managed_ledger.reading.payloads import counted
from geminga_broker.subscriptions.decisions.damaged_entry import DamagedEntry
from geminga_broker.subscriptions.dispatch.compacted_reader import CompactedReader
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

if TYPE_CHECKING:
    from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher

log = logging.getLogger(__name__)

# Entries handed out before other subscriptions get a turn; a cached run is a slice, so this bounds
# its copy.
RUN_ENTRIES_MAX = 500
READ_RETRY_S = 0.5
# Delayed entries that are passed over before other subscriptions get a turn.
PASSED_AT_ONCE_MAX = 1000
# How far apart entries may be that are replayed together: with Key_Shared, a consumer has few of
# the entries in between.
REPLAY_DISTANCE_MAX = 10_000


# Where the next entries come from, at ``position``:
#
#     compacted, and the ledger covers it    its read-ahead, or a read of that ledger
#     otherwise, over what is delayed,       the log's cache, or the read-ahead,
#     and over what is acknowledged          or a read from bookies
#
# A read is a task; its entries go to the read-ahead, and the owner dispatches again.
class CursorReader:
    """Reads ``managed_ledger`` beyond ``cursor`` for ``owner``, which it does not keep alive."""

    __slots__ = (
        "_cursor",
        "_damaged",
        "_generation",
        "_log",
        "_managed_ledger",
        "_owner",
        "compacted",
        "delayed",
        "entries_fetched",
        "is_from_read_ahead",
        "is_reading",
        "position",
        "read_ahead",
    )

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor, owner: Dispatcher) -> None:
        self._managed_ledger = managed_ledger
        self._log = managed_ledger.reader
        self._cursor = cursor
        self._owner = ref(owner)
        # Where it reads next. What lies before it was given out, or needs no sending; what is to be
        # sent again waits in the distribution, not here.
        self.position = self._after_mark_delete()
        # The delayed messages; None if the subscription's type does not delay any.
        self.delayed: DelayedMessages | None = None
        # Set while the active consumer reads compacted.
        self.compacted: CompactedReader | None = None
        # Entries read from bookies, for stats.
        self.entries_fetched = 0
        # A read task is running.
        self.is_reading = False
        # Entries that were fetched and not sent yet.
        self.read_ahead = ReadAhead(self._log.read_ahead_budget)
        # Whether the entries given out last came from there, rather than from the log's cache.
        self.is_from_read_ahead = False
        # The damaged entry that reading stopped before.
        self._damaged: DamagedEntry | None = None
        # Grows when the result of a running read task is of no use any more.
        self._generation = 0

    @property
    def is_idle(self) -> bool:
        """Whether a new reader would do as well: no entry is being read, and none is damaged."""
        return not self.is_reading and self._damaged is None

    # Where it reads

    def _after_mark_delete(self) -> Position:
        return self._log.chain.next_after(self._cursor.mark_delete)

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: do not read what it has passed."""
        # Never back: entries in between were sent, and their consumers still hold them.
        self.position = max(self.position, self._after_mark_delete())

    def rewind(self) -> None:
        """Begin again after the mark-delete position."""
        # First: a read that is running must not put entries of the old place in after this.
        self.drop_read_ahead()
        self.position = (
            self._after_mark_delete() if self.compacted is None else self.compacted.begin()
        )

    def drop_read_ahead(self) -> None:
        """Forget all fetched entries, and ignore those that are being fetched now."""
        self._generation += 1
        self.read_ahead.clear()
        if self.compacted is not None:
            self.compacted.read_ahead.clear()

    def advance(self, ledger_id: int, run: list[Entry], used: int) -> None:
        """Move beyond the first ``used`` entries of ``run``, which ``next_run`` gave."""
        # In a run of the log, missing entries are acknowledged: skip to the next one in it. In one
        # of the compacted ledger, compaction removed them: they are still to be passed over.
        compacted = self.compacted
        if compacted is None or not compacted.view.covers(self.position):
            self.position = Position(ledger_id, run[used][0] if used < len(run) else run[-1][0] + 1)
            return
        if self._cursor.is_durable:
            compacted.pass_over(self.position, ledger_id, (each[0] for each in islice(run, used)))
        self.position = Position(ledger_id, run[used - 1][0] + 1)

    def pass_over(self, ledger_id: int, entry_id: int) -> None:
        """Acknowledge an entry that has no messages for consumers (a marker), as upstream does: no
        consumer ever will."""
        if self._cursor.acknowledged.acknowledge(ledger_id, entry_id):
            self._cursor.changed()

    def acknowledged_in(self, ledger_id: int) -> Acknowledged:
        """The acknowledged entries that apply to a run of that ledger."""
        compacted = self.compacted
        if compacted is None:
            return self._cursor.acknowledged
        return compacted.acknowledged_in(ledger_id)

    # What comes next

    def next_run(self, count_max: int = RUN_ENTRIES_MAX) -> tuple[int, list[Entry]] | None:
        """The id of a ledger, and its entries that come next.

        None at the end of the log, which is reported to the owner, and while entries must be
        fetched: then the owner dispatches again when they are there.
        """
        delayed, compacted = self.delayed, self.compacted
        if compacted is not None and compacted.view.covers(self.position):
            found = compacted.read_ahead.first_from(self.position)
            if found is not None:
                return found[0], found[1][:count_max]
            if not self.is_reading:
                self._spawn_read(self.position, lambda: self._fetch_compacted(compacted))
            return None
        if delayed is None:
            return self._next_open(count_max)
        passed = 0
        while passed < PASSED_AT_ONCE_MAX:
            self.position = delayed.pass_held(self.position)
            found = self._next_open(count_max)
            if found is None:
                return None
            # ``pass_held`` jumps over entries that the index holds already; ``sift`` finds new
            # ones.
            ledger_id, run = found
            # Takes the delayed entries out of the run, into the index.
            count, plain = delayed.sift(ledger_id, run)
            if plain:
                return ledger_id, plain
            self.advance(ledger_id, run, count)
            passed += count
        # Only delayed entries so far: go on in the next turn of the event loop. Else a backlog of a
        # million delayed messages would hold up the event loop.
        asyncio.get_running_loop().call_soon(self._wake_owner)
        return None

    def _next_open(self, count_max: int) -> tuple[int, list[Entry]] | None:
        """The next entries of the log, of which the first is not acknowledged; None as above."""
        log_reader, acknowledged = self._log, self._cursor.acknowledged
        chain, position = log_reader.chain, self.position
        # Entries that were still to be sent may have been acknowledged meanwhile.
        if position <= acknowledged.mark_delete:
            position = chain.next_after(acknowledged.mark_delete)
        # At the end of a ledger, on to the next one.
        position = chain.readable_from(position)
        # Over acknowledged runs, up to the first entry that is still open.
        while acknowledged.ahead_count:
            end = acknowledged.run_end(*position)
            if end == position[1]:
                break
            position = chain.readable_from(Position(position[0], end))
        self.position = position
        ledger_id, first = position
        end = log_reader.readable_end(ledger_id)
        if first >= end:
            owner = self._owner()
            if owner is not None:
                owner.reached_end()
            return None
        # A run of the cache may contain acknowledged entries; one that was fetched lacks them.
        count_max = min(count_max, end - first)
        run = log_reader.cached.run(position, count_max)
        self.is_from_read_ahead = not run
        # The cache first: it finds an entry by its index, the read-ahead by a search.
        run = run or self.read_ahead.run(position, count_max)
        if run:
            return ledger_id, run
        owner = self._owner()
        if owner is not None and owner.may_read_on and self._may_fetch(position):
            ids = acknowledged.open_ids(ledger_id, first, end, self._fetch_max(self.read_ahead))
            self._fetch_soon(position, ids, partial(self.read_ahead.keep_run, position))
        return None

    def first_of(self, queue: ReplayQueue, count_max: int) -> list[Entry]:
        """The first entries of ``queue``, at most ``count_max``, of one ledger and up to the first
        that must be fetched. Empty if that is the very first one."""
        # Entries to be replayed lie apart, so that they are looked up one by one.
        ids = queue.near_first(count_max, REPLAY_DISTANCE_MAX)
        self.is_from_read_ahead = False
        # Either place is asked alone: what is given out comes from one of them, as ``set_aside``
        # must know which.
        at_hand = self._log.cached.entries(ids) or self.read_ahead.pick(ids)
        first = Position(*ids[0])
        if not at_hand and self._may_fetch(first):
            # All queued entries that one read can give, and none that lie between them.
            ids = queue.near_first(self._fetch_max(self.read_ahead), REPLAY_DISTANCE_MAX)
            missing = [entry_id for _, entry_id in self.read_ahead.missing(ids)]
            self._fetch_soon(first, missing, partial(self.read_ahead.keep_single, first[0]))
        return at_hand

    def set_aside(self, ledger_id: int, entries: list[Entry]) -> None:
        """Entries given out last wait for their consumer: keep those that would otherwise be
        fetched a second time."""
        if self.is_from_read_ahead:
            self.read_ahead.keep_single(ledger_id, entries)

    @property
    def has_due(self) -> bool:
        """Whether delayed entries may be due by now."""
        return self.delayed is not None and self.delayed.is_due

    def take_due(self, count_max: int) -> list[Position]:
        """At most ``count_max`` due entries of those that reading has passed over."""
        delayed = self.delayed
        if delayed is None or not delayed.is_due or count_max <= 0:
            return []
        return delayed.take_due(self.position, count_max)

    def is_done(self, position: EntryId) -> bool:
        """Whether an entry need not be sent: it is acknowledged, or its ledger was trimmed."""
        return (
            self._cursor.acknowledged.is_acknowledged(position[0], position[1])
            or self._log.chain.span(position[0]) is None
        )

    # Fetching

    def _may_fetch(self, position: Position) -> bool:
        """Whether a read that begins at ``position`` may start: there is one at a time, and none of
        a damaged entry during its pause."""
        # The pause concerns that entry only: after a seek the reader goes on at once elsewhere.
        damaged = self._damaged
        is_paused = damaged is not None and damaged.is_waiting and damaged.position == position
        return not self.is_reading and not is_paused

    def _fetch_max(self, read_ahead: ReadAhead) -> int:
        """How many entries one read for ``read_ahead`` may ask for. Once entries had to be evicted
        from there before they were sent, only as many as the consumers have permits for."""
        owner = self._owner()
        if owner is None or not read_ahead.was_evicted:
            return self._log.entries_max
        # Permits count messages, of which nearly every entry has one or more: enough for a round.
        permits = sum(each.permits for each in owner.consumers if each.permits > 0)
        return min(max(permits, 1), self._log.entries_max)

    def _fetch_soon(
        self,
        position: Position,
        entry_ids: Sequence[int],
        keep: Callable[[list[Entry]], None],
    ) -> None:
        """Fetch entries of one ledger in the background; ``position`` is the first of them."""
        # As it is when the read begins. A rewind during the read makes it another number.
        generation = self._generation

        async def fetch() -> None:
            entries = counted(await self._log.fetch(position[0], entry_ids))
            self.entries_fetched += len(entries)
            # After a rewind other entries may be open than those chosen before.
            if generation == self._generation:
                self.read_ahead.pass_by(self.position)
                keep(entries)

        self._spawn_read(position, fetch)

    async def _fetch_compacted(self, compacted: CompactedReader) -> None:
        position, entries_max = self.position, self._fetch_max(compacted.read_ahead)
        try:
            entries, horizon = await compacted.view.read(position, entries_max, self._log.bytes_max)
        except EntryDamaged as error:
            # The damaged entry is in the compacted ledger: its position says nothing of the log's.
            raise StorageUnavailable(str(error)) from error
        if self.position != position:
            return  # the reader was moved while it waited
        if entries:
            compacted.keep(entries)
            self.entries_fetched += len(entries)
        elif horizon is not None:
            # Nothing is left up to the horizon. Acknowledge it for cursors that are not durable,
            # too: a reader learns of the end of a terminated topic only without a backlog.
            after = Position(horizon[0], horizon[1] + 1)
            compacted.pass_over(position, after[0], (after[1],))
            self.position = after

    def _spawn_read(self, position: Position, ask: Callable[[], Awaitable[None]]) -> None:
        self.is_reading = True
        # A task of the log: closing the log ends it, and the subscription owns no task.
        self._managed_ledger.spawn(
            self._fetch(position, ask),
            name=f"read {self._managed_ledger.name} {self._cursor.name}",
        )

    async def _fetch(self, position: Position, ask: Callable[[], Awaitable[None]]) -> None:
        """Run one read that begins at ``position``, pause if it fails, then wake the owner."""
        # A read that fails is repeated by the next dispatch, for as long as it takes: skipping the
        # entry would lose a message.
        damaged, problem = None, ""
        try:
            await ask()
            if self._damaged is not None and self._damaged.position == position:
                self._damaged = None  # a copy was repaired
        except EntryDamaged as error:
            if self._damaged is None or self._damaged.position != position:
                self._damaged = DamagedEntry(position)
            damaged, problem = self._damaged, str(error)
        except StorageUnavailable as error:
            log.warning("read failed", extra={"position": str(position), "error": str(error)})
            # ``is_reading`` stays set meanwhile: otherwise each dispatch would ask bookies that are
            # away.
            await asyncio.sleep(READ_RETRY_S)
        finally:
            self.is_reading = False
        if damaged is not None:
            if damaged.failed_again():
                log.error(
                    "subscription stands before a damaged entry",
                    extra={
                        "log": self._managed_ledger.name,
                        "cursor": self._cursor.name,
                        "position": str(position),
                        "error": problem,
                        "way_out": damaged.way_out,
                    },
                )
            # No read is running during this pause: after a seek, other entries are read at once.
            await asyncio.sleep(damaged.pause_s)
            damaged.is_waiting = False
        self._wake_owner()

    def _wake_owner(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.dispatch()
