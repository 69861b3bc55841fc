"""Where a cursor is kept: a record in ZooKeeper, and while it moves, a ledger of its own.

The ZooKeeper record (``ManagedCursorInfo``) either is the cursor (a snapshot, cursor ledger -1) or
names the cursor ledger, whose last entry (``PositionInfo``) is. Moving a cursor appends one entry;
closing it cleanly writes the snapshot and deletes the ledger.

    at rest      record: snapshot, ledger -1
    moving       record ─▶ ledger 5: state, state, …, newest state
    next ledger  record ─▶ ledger 5        ledger 8 (candidate): newest state
                 record ─▶ ledger 8        ledger 5 is deleted

A ledger counts from the moment the record names it, and it has the newest state before that: at
whatever step the broker dies, what was confirmed as durable is found. Two deaths leave a ledger
behind that no record names: between its creation and the record, and between the record and the
deletion of the one before. As upstream's, they are recognized by their labels.

A broker that takes a cursor over stops the broker before it first, and reads then. Where the record
names a ledger, the old broker may still live: it is kept from writing the record by writing it (the
same value has another version then, so no other broker names or deletes a ledger any more), and
from writing the ledger by recovering it. Where the record is a snapshot, nothing is written: the
old broker wrote it in a session that is over, or in good order before it gave the cursor up
(``OwnRecord``).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from geminga_broker.errors import InvalidRequest
from geminga_broker.managed_ledger.acknowledgement.cursor_state import (
    SNAPSHOT_BYTES_MAX,
    CursorState,
    naming_record,
    position_record,
    snapshot,
    state_from,
)
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.records.log_store import LABELS
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST, OwnRecord
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_ledger import (
    EntryCorrupt,
    LedgerError,
    LedgerFenced,
    Ledgers,
    LedgerWriter,
    NoSuchEntry,
    NoSuchLedger,
)
from geminga_protocol.pulsar.topics.topic_names import encode_local
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.cursor import (
    NO_CURSOR_LEDGER,
    CursorRecord,
    PositionRecord,
    cursor_path,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    VersionMismatch,
)

log = logging.getLogger(__name__)

# At most so many damaged entries are passed over in search of an older state. Beyond that the
# cursor begins with the state in its record, from when the ledger was begun.
ENTRIES_TRIED_MAX = 10

# How often loading begins again because the record was changed meanwhile. Its last owner changes it
# once, when it closes the cursor; one that changes it all the time is no last owner.
LOADS_MAX = 8

# The errors that say that another broker has the cursor: stop, never retry.
TAKEN_OVER = (LedgerFenced, *OWNERSHIP_LOST, NodeMissing)


class OpenLedger(NamedTuple):
    """A cursor ledger that is being written."""

    writer: LedgerWriter
    writes: ConfirmationWaiter
    # Monotonic.
    begun_at_s: float


class CursorStore:
    """The stored cursor ``name`` of log ``log_name``. ``load`` or ``create`` comes first; calls
    must not overlap."""

    __slots__ = (
        "_candidate",
        "_clock",
        "_doubtful",
        "_log_name",
        "_name",
        "_node",
        "_stored",
        "_unneeded",
        "config",
        "current",
        "ledger_id",
        "ledger_last_entry",
        "ledger_switched_ms",
        "ledgers",
    )

    def __init__(
        self,
        coordination: Coordination,
        ledgers: Ledgers,
        clock: Clock,
        config: ManagedLedgerConfig,
        *,
        log_name: str,
        name: str,
    ) -> None:
        # Buckets of delayed messages, which belong to the cursor, are kept there too.
        self.ledgers = ledgers
        self._clock = clock
        # May be replaced at any time; the next ledger is begun by the new values.
        self.config = config
        self._log_name = log_name
        self._name = name
        self._node = OwnRecord(coordination, cursor_path(log_name, encode_local(name)))
        # What is stored for sure; None while the outcome of a write is not known. Compared with the
        # next state, to leave out writes that would change nothing.
        self._stored: CursorState | None = None
        # The ledger that the record names, as far as we know, and its last entry; -1 for none.
        self.ledger_id = NO_CURSOR_LEDGER
        self.ledger_last_entry = -1
        # Its writer. None for a ledger of the owner before, which is only read, and for none.
        self.current: OpenLedger | None = None
        # A ledger that was begun with the newest state and that the record does not name yet.
        self._candidate: OpenLedger | None = None
        # Candidates given up, of which it is in doubt whether the record names one. Settled by the
        # next write of the record that succeeds (``_use``). They must not be deleted before: the
        # record would name a ledger that is gone.
        self._doubtful: tuple[int, ...] = ()
        # Ledgers that the record surely does not name: to be deleted. In memory alone: after a
        # crash only their labels tell that they belong to this cursor.
        self._unneeded: tuple[int, ...] = ()
        # When the cursor was loaded or its ledger last replaced (Unix time).
        self.ledger_switched_ms = clock.wall_ms()

    async def create(self, state: CursorState) -> None:
        """Write the first record. Raises ``NodeExists``, ``InvalidRequest`` for huge properties."""
        # A new cursor has no ledger: it gets one with its first move.
        value = snapshot(state, last_active_ms=self._clock.wall_ms())
        if value is None:
            raise InvalidRequest(
                f"the properties of subscription {self._name} are too large: "
                f"at most {SNAPSHOT_BYTES_MAX} bytes"
            )
        await self._node.create(value)
        self._stored = state

    async def load(self) -> CursorState:
        """Read the cursor, recovering its ledger where it has one.

        Raises ``NodeMissing`` where there is no such cursor, ``VersionMismatch`` where another
        broker goes on writing it.
        """
        for _ in range(LOADS_MAX):
            # Each turn begins with the record: another broker may have turned to another ledger, or
            # written a snapshot, since.
            value = await self._node.load()
            record = CursorRecord.decode(value)
            self.ledger_id, self.ledger_last_entry = record.cursor_ledger_id, -1
            try:
                written = await self._take_over(value)
            except VersionMismatch:
                log.info("cursor changed while it was loaded", extra=self._facts)
            else:
                self._stored = state_from(record, written)
                return self._stored
        raise VersionMismatch(self._node.path)

    async def _take_over(self, value: bytes) -> PositionRecord | None:
        """Read the last entry of the cursor ledger, after no other broker can write it any more.

        Returns None where the record, which is ``value``, is all there is. Raises
        ``VersionMismatch`` where that is no longer the record.
        """
        # Fencing has nothing to take hold of here, and needs nothing (module docstring).
        if self.ledger_id == NO_CURSOR_LEDGER:
            return None
        # First the record: else its owner could turn to another ledger after this one is fenced.
        await self._node.write(value)
        try:
            reader = await self.ledgers.open(self.ledger_id, recover=True)
        except NoSuchLedger as error:
            # The write fails where the ledger was deleted together with the cursor.
            await self._node.write(value)
            self._log_lost(str(error))
            return None
        # -1 where the ledger is empty: then the loop does nothing, and the record is all there is.
        last = self.ledger_last_entry = reader.last_confirmed
        # The entries before the last one are older states, each complete. What is forgotten with
        # the newest is only delivered again.
        for entry_id in range(last, max(last - ENTRIES_TRIED_MAX, -1), -1):
            try:
                # Errors that pass (bookies that are away) are not caught: loading fails as a whole
                # and is tried again. Only what no bookie has is skipped.
                payloads = await reader.read(
                    entry_id, entry_id, bytes_max=self.config.read_bytes_max
                )
                return PositionRecord.decode(payloads[0])
            except (EntryCorrupt, NoSuchEntry, MalformedRecord) as error:
                log.error(  # noqa: TRY400 -- what it says is all there is to know
                    "a cursor's state is damaged, taking the one before: "
                    "messages acknowledged since are delivered again",
                    extra={**self._facts, "error": str(error)},
                )
        # The record still has the mark-delete position of when it was written.
        self._log_lost("no state can be read from it")
        return None

    def _log_lost(self, reason: str) -> None:
        log.error(
            "a cursor's ledger is lost: messages acknowledged since it was begun "
            "are delivered again",
            extra={**self._facts, "error": reason},
        )

    @property
    def _facts(self) -> dict[str, object]:
        return {"cursor": self._name, "log": self._log_name, "ledger": self.ledger_id}

    # Saving

    async def save(self, state: CursorState) -> int:
        """Append ``state`` to the cursor ledger and wait until it is durable; returns its bytes.

        Raises one of ``TAKEN_OVER`` where another broker has the cursor; other errors are worth
        another attempt.
        """
        payload = position_record(state).encode()
        current = self.current
        # Once a new ledger was begun, the record may name it: only what is in that one is safe.
        is_turning = self._candidate is not None or self._doubtful
        # A new ledger where we write none yet, where the change to a new one is not finished, and
        # where the present one has enough entries or is old enough.
        if (
            current is None
            or is_turning
            or current.writer.last_pushed + 1 >= self.config.cursor_ledger_entries_max
            or self._clock.monotonic() - current.begun_at_s >= self.config.cursor_ledger_age_max_s
        ):
            await self._turn_to_new_ledger(state, payload)
        else:
            try:
                await current.writes.wait_for(current.writer.append(payload))
            except LedgerError:
                # The next attempt begins another ledger; the record names this one until then. It
                # may still store the entry: the state in it is one that the cursor had, so no harm
                # is done if a next owner finds it.
                current.writer.detach()
                self.current = None
                raise
            self.ledger_last_entry = current.writer.last_confirmed
            # The cursor's properties stand in the record alone, which is written when they change.
            stored, self._stored = self._stored, None  # until it is known what the record says
            # After the entry: a crash in between keeps the position and forgets the properties,
            # whose change was not confirmed yet.
            if stored is None or stored.cursor_properties != state.cursor_properties:
                record = naming_record(state, self.ledger_id, last_active_ms=self._clock.wall_ms())
                await self._node.write(record.encode())
        # All of ``state`` is durable from here on; what follows may fail without harm.
        self._stored = state
        await self._clean_up()
        return len(payload)

    async def _turn_to_new_ledger(self, state: CursorState, payload: bytes) -> None:
        """Begin a new cursor ledger with ``payload`` in it, then name it, then drop the old one.

        A step that fails is done again with the next ``save``, with the newer state of that one.
        """
        # Kept over attempts: where ZooKeeper is away, every attempt would leave a ledger otherwise.
        if self._candidate is None:
            writes = ConfirmationWaiter()
            writer = await self.ledgers.create(
                ensemble_size=self.config.ensemble_size,
                write_quorum=self.config.write_quorum,
                ack_quorum=self.config.ack_quorum,
                custom={
                    "pulsar/managed-ledger": self._log_name.encode(),
                    "pulsar/cursor": self._name.encode(),
                    **dict(LABELS),
                },
                listener=writes,
            )
            # Its age counts from here, also where naming it takes several attempts.
            self._candidate = OpenLedger(writer, writes, self._clock.monotonic())
        candidate = self._candidate
        try:
            await candidate.writes.wait_for(candidate.writer.append(payload))
        except LedgerError:
            self._drop_candidate()
            raise
        # Only a ledger that the record names counts: until then the old one is the cursor's.
        record = naming_record(
            state, candidate.writer.ledger_id, last_active_ms=self._clock.wall_ms()
        )
        await self._node.write(record.encode())
        # The first ledger of a cursor replaces none: the time stays that of its loading.
        if self.ledger_id != NO_CURSOR_LEDGER:
            self.ledger_switched_ms = self._clock.wall_ms()
        self._candidate = None
        self._use(candidate)
        self.ledger_last_entry = candidate.writer.last_confirmed

    def _use(self, ledger: OpenLedger | None) -> None:
        """Go on with ``ledger``: the record names it, or is a snapshot (None), and surely names no
        other ledger any more."""
        finished, self.current = self.current, ledger
        if finished is not None:
            finished.writer.detach()
        # Also a ledger of the owner before, which has no writer here.
        former = self.ledger_id
        self.ledger_id = NO_CURSOR_LEDGER if ledger is None else ledger.writer.ledger_id
        self._unneeded += self._doubtful
        self._doubtful = ()
        if former != NO_CURSOR_LEDGER:
            self._unneeded += (former,)

    async def _clean_up(self) -> None:
        """Delete unneeded ledgers. What cannot be deleted now is tried again with the next write:
        the state is safe without it, so an error is no error of ``save``."""
        while self._unneeded:
            try:
                # Taken out after it was deleted: cancelled in between, it is deleted once more,
                # without harm.
                await self.ledgers.delete(self._unneeded[-1])
            except (LedgerError, CoordinationError) as error:
                log.info(
                    "cursor ledgers not deleted yet",
                    extra={"ledgers": list(self._unneeded), "error": str(error)},
                )
                return
            self._unneeded = self._unneeded[:-1]

    # Ending

    async def close(self, state: CursorState) -> None:
        """Write ``state`` as a snapshot that is read without opening a ledger."""
        # A broker that closes thousands of topics need not write the cursors that never moved.
        if (
            # The record is a snapshot with this very state, and there is nothing to clean up
            # either.
            self.ledger_id == NO_CURSOR_LEDGER
            and state == self._stored
            and not (self._candidate or self._doubtful or self._unneeded)
        ):
            return
        value = snapshot(state, last_active_ms=self._clock.wall_ms())
        if value is None:
            # Too many holes for a record in ZooKeeper: the cursor ledger, closed, keeps them.
            if state != self._stored:
                await self.save(state)
            if self.current is not None:
                # So the next owner finds its end in the metadata, and recovers nothing.
                await self.current.writer.close()
            return
        # The snapshot first, then the ledger: a crash in between leaves a ledger, never a cursor
        # without a state.
        await self._node.write(value)
        self._stored = state
        # Before ``_use``, which moves what is doubtful to what is unneeded: no record names any
        # ledger now.
        self._drop_candidate()
        self._use(None)
        await self._clean_up()

    async def delete(self) -> None:
        """Delete the record and the ledgers; called again, it finishes what failed the first time.
        Raises one of ``TAKEN_OVER`` where another broker has the cursor."""
        try:
            await self._node.delete()
        except NodeMissing:
            # By an attempt whose answer was lost, or with the log. Its ledgers are deleted in any
            # case.
            log.info("cursor was deleted already", extra={"cursor": self._name})
        self._drop_candidate()
        self._use(None)
        await self._clean_up()

    def _drop_candidate(self) -> None:
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            candidate.writer.detach()
            self._doubtful += (candidate.writer.ledger_id,)
