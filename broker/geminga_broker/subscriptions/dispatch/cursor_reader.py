"""Reads the log for one subscription: what its consumers are still to be sent, in order.

What they are not sent is left out here, and nowhere else: what is acknowledged up to where a run
begins, what is held back until later (``delayed``), and, for those who read compacted, what
compaction took out (``compacted``). Two kinds are left to those who send, for whom it costs
nothing: entries that were acknowledged within a run, and markers, which are told apart when an
entry's messages are counted; they come back by ``pass_over``.

Reading is synchronous as long as entries are in the cache. One that is not costs one read task at a
time; it reads ahead of what consumers take, and when it is done the owner dispatches again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Protocol
from weakref import ref

from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.acknowledged import Acknowledged
from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.fetched_entries import FetchedEntries
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.payloads import counted
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.decisions.damaged_entry import DamagedEntry
from geminga_broker.subscriptions.dispatch.compacted_reader import CompactedReader
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

log = logging.getLogger(__name__)

# Entries handed out before others get a turn; a cached run is a slice, so this bounds its copy.
RUN_ENTRIES_MAX = 500
READ_RETRY_S = 0.5
# Delayed entries that are passed over before others get a turn.
PASSED_AT_ONCE_MAX = 1000
# How far apart entries may be that are replayed together: of those that lie between, one of many
# consumers that share keys has few.
REPLAY_DISTANCE_MAX = 10_000


class ReadingOwner(Protocol):
    """The dispatcher, as far as its reader must know it."""

    @property
    def permits(self) -> int:
        """How many messages its consumers can take."""
        ...

    @property
    def may_read_on(self) -> bool:
        """Whether there is room for more that is new and must be fetched."""
        ...

    def reached_end(self) -> None:
        """There is nothing more to read now."""
        ...

    def dispatch(self) -> None:
        """Send what can be sent now: entries were read."""
        ...


class CursorReader:
    """Reads ``managed_ledger`` beyond ``cursor`` for ``owner``, which it does not keep alive.

    ``position`` is where it reads next.
    """

    __slots__ = (
        "_beginnings",
        "_cursor",
        "_damage",
        "_log",
        "_managed_ledger",
        "_owner",
        "compacted",
        "delayed",
        "entries_fetched",
        "fetched",
        "is_fetched",
        "is_reading",
        "position",
    )

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor, owner: ReadingOwner) -> None:
        self._managed_ledger = managed_ledger
        self._log = managed_ledger.reader
        self._cursor = cursor
        self._owner = ref(owner)
        self.position = self._after_mark_delete()
        # What is held back, where anything is at all.
        self.delayed: DelayedMessages | None = None
        # Where those read who read compacted, as long as one of them does.
        self.compacted: CompactedReader | None = None
        self.entries_fetched = 0
        self.is_reading = False
        self.fetched = FetchedEntries(self._log.fetched_budget)
        # Whether the entries given out last came from there, rather than from the cache.
        self.is_fetched = False
        self._damage: DamagedEntry | None = None
        # Grows where what is being fetched meanwhile is of no use any more.
        self._beginnings = 0

    @property
    def is_idle(self) -> bool:
        """Whether a new one would do as well: nothing is being read, and no entry is damaged."""
        return not self.is_reading and self._damage is None

    @property
    def entries_ahead(self) -> int:
        """How many entries lie between what is read next and what was published last."""
        chain = self._log.chain
        return chain.entries_between(self.position, chain.last_confirmed)

    # Where it reads

    def _after_mark_delete(self) -> Position:
        return self._log.chain.next_after(self._cursor.mark_delete)

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: what it has passed is not read any more."""
        self.position = max(self.position, self._after_mark_delete())

    def rewind(self) -> None:
        """Begin again after the mark-delete position."""
        self.let_go()
        self.position = (
            self._after_mark_delete() if self.compacted is None else self.compacted.begin()
        )

    def let_go(self) -> None:
        """Keep nothing that was fetched."""
        self._beginnings += 1
        self.fetched.clear()
        if self.compacted is not None:
            self.compacted.let_go()

    def advance(self, ledger_id: int, run: list[Entry], used: int) -> None:
        """The first ``used`` entries of ``run``, which ``next_run`` gave, are done with."""
        compacted = self.compacted
        if compacted is None or not compacted.covers(self.position):
            self.position = Position(ledger_id, run[used][0] if used < len(run) else run[-1][0] + 1)
            return
        if self._cursor.is_durable:
            compacted.pass_over(self.position, ledger_id, (each[0] for each in islice(run, used)))
        self.position = Position(ledger_id, run[used - 1][0] + 1)

    def pass_over(self, ledger_id: int, entry_id: int) -> None:
        """An entry has nothing for consumers (a marker): it is done with (as upstream)."""
        if self._cursor.acknowledged.acknowledge(ledger_id, entry_id):
            self._cursor.changed()

    def acknowledged_in(self, ledger_id: int) -> Acknowledged:
        """What is acknowledged of a ledger that a run is of."""
        compacted = self.compacted
        if compacted is None:
            return self._cursor.acknowledged
        return compacted.acknowledged_in(ledger_id)

    # What comes next

    def next_run(self, count_max: int = RUN_ENTRIES_MAX) -> tuple[int, list[Entry]] | None:
        """The entries to send next, of one ledger, and its id; None at the end of the log, of which
        the owner is told, or while reading: then it dispatches again when there is something."""
        delayed, compacted = self.delayed, self.compacted
        if compacted is not None and compacted.covers(self.position):
            return self._next_compacted(compacted, count_max)
        if delayed is None:
            return self._next_open(count_max)
        passed = 0
        while passed < PASSED_AT_ONCE_MAX:
            self.position = delayed.pass_held(self.position)
            found = self._next_open(count_max)
            if found is None:
                return None
            ledger_id, run = found
            count, plain = delayed.sift(ledger_id, run)
            if plain:
                return ledger_id, plain
            self.advance(ledger_id, run, count)
            passed += count
        asyncio.get_running_loop().call_soon(self._wake_owner)
        return None

    def _next_open(self, count_max: int) -> tuple[int, list[Entry]] | None:
        """The next entries of the log, of which the first is not acknowledged."""
        log_reader, acknowledged = self._log, self._cursor.acknowledged
        chain, position = log_reader.chain, self.position
        if position <= acknowledged.mark_delete:  # somebody acknowledged what was to be sent
            position = chain.next_after(acknowledged.mark_delete)
        position = chain.readable_from(position)
        while acknowledged.has_holes:
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
        count_max = min(count_max, end - first)
        run = log_reader.cached_run(position, count_max)
        self.is_fetched = not run
        if not run:
            run = self.fetched.run(position, count_max)
            if not run:
                self._read_on(position, end)
                return None
        return ledger_id, run

    def _next_compacted(
        self, compacted: CompactedReader, count_max: int
    ) -> tuple[int, list[Entry]] | None:
        found = compacted.run_from(self.position)
        if found is None:
            if not self.is_reading:
                self._spawn_read(self.position, lambda: self._fetch_compacted(compacted))
            return None
        return found[0], found[1][:count_max]

    def first_of(self, queue: ReplayQueue, count_max: int) -> list[Entry]:
        """At most ``count_max`` entries that ``queue`` begins with, of one ledger, up to the first
        that has to be fetched; empty when all of them must be awaited first."""
        ids = queue.near_first(count_max, REPLAY_DISTANCE_MAX)
        self.is_fetched = False
        at_hand = self._log.cached_entries(ids) or self.fetched.pick(ids)
        first = Position(*ids[0])
        if not at_hand and self._may_fetch(first):
            # All at once that one read gives, and none of the others that lie between them.
            ids = queue.near_first(self._fetch_max, REPLAY_DISTANCE_MAX)
            missing = [entry_id for _, entry_id in self.fetched.missing(ids)]
            self._fetch_soon(first, missing, self.fetched.keep_single)
        return at_hand

    def set_aside(self, ledger_id: int, entries: list[Entry]) -> None:
        """Entries given out last wait to be replayed: keep those that would be fetched again."""
        if self.is_fetched:
            self.fetched.keep_single(ledger_id, entries)

    @property
    def has_due(self) -> bool:
        """Whether there may be entries that were held back, and are due by now."""
        return self.delayed is not None and self.delayed.is_due

    def take_due(self, count_max: int) -> list[Position]:
        """At most so many of them, of those that were passed over."""
        delayed = self.delayed
        if delayed is None or not delayed.is_due or count_max <= 0:
            return []
        return delayed.take_due(self.position, count_max)

    def is_done(self, position: EntryId) -> bool:
        """Whether an entry need not be sent any more: acknowledged, or gone with its ledger."""
        return (
            self._cursor.acknowledged.is_acknowledged(position[0], position[1])
            or self._log.chain.span(position[0]) is None
        )

    # Fetching

    def _may_fetch(self, position: Position) -> bool:
        """Whether what begins at ``position`` may be fetched now: one read at a time."""
        damage = self._damage
        is_set_aside = damage is not None and damage.is_waiting and damage.position == position
        return not self.is_reading and not is_set_aside

    @property
    def _fetch_max(self) -> int:
        """How many entries to fetch at once: where what was more than consumers took had to go, no
        more than they can take."""
        owner = self._owner()
        if owner is None or not self.fetched.was_evicted:
            return self._log.entries_max
        return min(max(owner.permits, 1), self._log.entries_max)

    def _read_on(self, position: Position, end: int) -> None:
        """Fetch what is open from ``position`` on, of its ledger, which may be read up to ``end``
        (excluded)."""
        owner = self._owner()
        if owner is not None and owner.may_read_on and self._may_fetch(position):
            ledger_id, first = position
            open_ids = self._cursor.acknowledged.open_ids
            ids = open_ids(ledger_id, first, end, self._fetch_max)

            def keep(_: int, entries: list[Entry]) -> None:
                self.fetched.keep_run(position, entries)

            self._fetch_soon(position, ids, keep)

    def _fetch_soon(
        self,
        position: Position,
        entry_ids: Sequence[int],
        keep: Callable[[int, list[Entry]], None],
    ) -> None:
        """Fetch entries of the ledger of ``position``, which is the first of them."""
        beginnings = self._beginnings

        async def fetch() -> None:
            entries = counted(await self._log.fetch(position[0], entry_ids))
            self.entries_fetched += len(entries)
            if beginnings == self._beginnings:  # else others may be open since
                self.fetched.pass_by(self.position)
                keep(position[0], entries)

        self._spawn_read(position, fetch)

    async def _fetch_compacted(self, compacted: CompactedReader) -> None:
        position, owner = self.position, self._owner()
        permits = 0 if owner is None else owner.permits
        try:
            entries, horizon = await compacted.view.read(
                position, compacted.fetch_max(self._log.entries_max, permits), self._log.bytes_max
            )
        except EntryDamaged as error:  # of another ledger than that of the position
            raise StorageUnavailable(str(error)) from error
        if self.position != position:
            return  # it was moved meanwhile
        if entries:
            compacted.keep(entries)
            self.entries_fetched += len(entries)
        elif horizon is not None:
            # Also where the cursor is not durable: a reader acknowledges what it is sent, and is
            # told that a topic has ended once nothing is left.
            after = Position(horizon[0], horizon[1] + 1)
            compacted.pass_over(position, after[0], (after[1],))
            self.position = after

    def _spawn_read(self, position: Position, ask: Callable[[], Awaitable[None]]) -> None:
        self.is_reading = True
        self._managed_ledger.spawn(
            self._fetch(position, ask),
            name=f"read {self._managed_ledger.name} {self._cursor.name}",
        )

    async def _fetch(self, position: Position, ask: Callable[[], Awaitable[None]]) -> None:
        """Fetch what begins at ``position``, rest where that fails, then have the owner look."""
        damage: DamagedEntry | None = None
        try:
            await ask()
            if self._damage is not None and self._damage.position == position:
                self._damage = None  # somebody repaired it
        except EntryDamaged as error:
            damage = self._found_damaged(position, error)
        except StorageUnavailable as error:
            log.warning("read failed", extra={"position": str(position), "error": str(error)})
            await asyncio.sleep(READ_RETRY_S)
        finally:
            self.is_reading = False
        if damage is not None:  # others may be read meanwhile: a seek goes on at once
            await asyncio.sleep(damage.pause_s)
            damage.is_waiting = False
        self._wake_owner()

    def _wake_owner(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.dispatch()

    def _found_damaged(self, position: Position, error: EntryDamaged) -> DamagedEntry:
        """Set the entry aside for a while; told seldom, for it may stay as it is for long."""
        if self._damage is None or self._damage.position != position:
            self._damage = DamagedEntry(position)
        damage = self._damage
        damage.failed_again()
        if damage.is_to_be_told:
            log.error(
                "subscription stands before a damaged entry",
                extra={
                    "log": self._managed_ledger.name,
                    "cursor": self._cursor.name,
                    "position": str(position),
                    "error": str(error),
                    "way_out": damage.way_out,
                },
            )
        return damage
