"""Where a cursor is kept: a record in ZooKeeper, and while it moves, a ledger of its own.

The ZooKeeper record (``ManagedCursorInfo``) either is the cursor (a snapshot, cursor ledger -1) or
names the cursor ledger, whose last entry (``PositionInfo``) is. Moving a cursor appends one entry;
closing it cleanly writes the snapshot and deletes the ledger.

A ledger counts from the moment the record names it, and it has the newest state before that: at
whatever step the broker dies, what was said to be durable is found. Two deaths leave a ledger
behind that nobody names: between its creation and the record, and between the record and the
deletion of the one before. As upstream's, they are told by their labels.

Who takes a cursor over stops the broker before it first, and reads then. Where the record names a
ledger, that broker may still live: it is kept from writing the record by writing it (the same value
has another version then, so nobody else names or deletes a ledger any more), and from writing the
ledger by recovering it. Where the record is a snapshot, nothing is written: a broker that runs
wrote it in a session that is over, or in good order before it gave the cursor up (``OwnRecord``).
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
from geminga_protocol.pulsar.topic_names import encode_local
from geminga_protocol.records.cursor import (
    NO_CURSOR_LEDGER,
    CursorRecord,
    PositionRecord,
    cursor_path,
)
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    VersionMismatch,
)

log = logging.getLogger(__name__)

# So many damaged states are passed over before the cursor begins where its ledger was begun.
ENTRIES_TRIED_MAX = 10

# How often loading begins again because the record was changed meanwhile. Its last owner changes it
# once, when it closes the cursor; one that changes it all the time is no last owner.
LOADS_MAX = 8

# What saving meets with when another broker has the cursor: stop, never try again.
TAKEN_OVER = (LedgerFenced, *OWNERSHIP_LOST, NodeMissing)


class CursorStore:
    """The stored cursor ``name`` of log ``log_name``. ``load`` or ``create`` comes first; calls
    must not overlap.

    ``config`` may be replaced at any time: the next ledger is begun by the new ones.
    ``ledger_switched_ms`` is when the cursor was loaded or its ledger last replaced (Unix time).
    """

    __slots__ = (
        "_candidate",
        "_clock",
        "_current",
        "_doubtful",
        "_last_entry",
        "_ledger_id",
        "_ledgers",
        "_log_name",
        "_name",
        "_node",
        "_stored",
        "_unneeded",
        "config",
        "ledger_switched_ms",
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
        self._ledgers = ledgers
        self._clock = clock
        self.config = config
        self._log_name = log_name
        self._name = name
        self._node = OwnRecord(coordination, cursor_path(log_name, encode_local(name)))
        self._stored: CursorState | None = None
        # The ledger that the record names, as far as we know, and its writer if it is ours.
        self._ledger_id = NO_CURSOR_LEDGER
        self._last_entry = -1
        self._current: _OpenLedger | None = None
        # A ledger that has the state already and waits to be named.
        self._candidate: _OpenLedger | None = None
        # Candidates given up, of which it is in doubt whether the record names one.
        self._doubtful: tuple[int, ...] = ()
        # Ledgers that the record surely does not name: to be deleted.
        self._unneeded: tuple[int, ...] = ()
        self.ledger_switched_ms = clock.wall_ms()

    @property
    def ledger_id(self) -> int:
        """The cursor ledger, -1 where there is none."""
        return self._ledger_id

    @property
    def ledger_last_entry(self) -> int:
        """The last entry of the cursor ledger, -1 where there is none."""
        return self._last_entry

    @property
    def ledgers(self) -> Ledgers:
        """Where its ledgers are, for what else belongs to the cursor."""
        return self._ledgers

    @property
    def is_writing(self) -> bool:
        """Whether there is a cursor ledger that takes entries."""
        return self._current is not None

    async def create(self, state: CursorState) -> None:
        """Write the first record. Raises ``NodeExists``, ``InvalidRequest`` for huge properties."""
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
            value = await self._node.load()
            record = CursorRecord.decode(value)
            self._ledger_id, self._last_entry = record.cursor_ledger_id, -1
            try:
                written = await self._take_over(value)
            except VersionMismatch:
                log.info("cursor changed while it was loaded", extra=self._facts)
            else:
                self._stored = state_from(record, written)
                return self._stored
        raise VersionMismatch(self._node.path)

    async def _take_over(self, value: bytes) -> PositionRecord | None:
        """The last entry of the cursor ledger, which nobody else writes any more; None where the
        record, which is ``value``, is all there is. Raises ``VersionMismatch`` where that is the
        record no longer."""
        if self._ledger_id == NO_CURSOR_LEDGER:
            return None
        await self._node.write(value)
        try:
            reader = await self._ledgers.open(self._ledger_id, recover=True)
        except NoSuchLedger as error:
            await self._node.write(value)  # else it was deleted with the cursor
            self._tell_lost(str(error))
            return None
        last = self._last_entry = reader.last_confirmed
        for entry_id in range(last, max(last - ENTRIES_TRIED_MAX, -1), -1):
            try:
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
        self._tell_lost("no state can be read from it")
        return None

    def _tell_lost(self, reason: str) -> None:
        log.error(
            "a cursor's ledger is lost: messages acknowledged since it was begun "
            "are delivered again",
            extra={**self._facts, "error": reason},
        )

    @property
    def _facts(self) -> dict[str, object]:
        return {"cursor": self._name, "log": self._log_name, "ledger": self._ledger_id}

    # Saving

    async def save(self, state: CursorState) -> int:
        """Append ``state`` to the cursor ledger and wait until it is durable; returns its bytes.

        Raises one of ``TAKEN_OVER`` where another broker has the cursor; other errors are worth
        another attempt.
        """
        payload = position_record(state).encode()
        current = self._current
        # Once a new ledger was begun, the record may name it: only what is in that one is safe.
        is_turning = self._candidate is not None or self._doubtful
        if current is None or is_turning or self._is_full(current):
            await self._turn_to_new_ledger(state, payload)
        else:
            try:
                await current.append(payload)
            except LedgerError:
                # The next attempt begins another ledger; the record names this one until then.
                current.writer.detach()
                self._current = None
                raise
            self._last_entry = current.writer.last_confirmed
            await self._save_properties(state)
        self._stored = state
        await self._clean_up()
        return len(payload)

    async def _save_properties(self, state: CursorState) -> None:
        """The cursor's properties stand in the record alone, which is written when they change."""
        stored, self._stored = self._stored, None  # until it is known what the record says
        if stored is None or stored.cursor_properties != state.cursor_properties:
            record = naming_record(state, self._ledger_id, last_active_ms=self._clock.wall_ms())
            await self._node.write(record.encode())

    def _is_full(self, ledger: _OpenLedger) -> bool:
        age_s = self._clock.monotonic() - ledger.begun_at_s
        return (
            ledger.writer.last_pushed + 1 >= self.config.cursor_ledger_entries_max
            or age_s >= self.config.cursor_ledger_age_max_s
        )

    async def _turn_to_new_ledger(self, state: CursorState, payload: bytes) -> None:
        """Begin a new cursor ledger with ``payload`` in it, then name it, then drop the old one."""
        if self._candidate is None:
            self._candidate = await self._begin_ledger()
        candidate = self._candidate
        try:
            await candidate.append(payload)
        except LedgerError:
            self._drop_candidate()
            raise
        # Only a ledger that the record names counts: until then the old one is the cursor's.
        record = naming_record(
            state, candidate.writer.ledger_id, last_active_ms=self._clock.wall_ms()
        )
        await self._node.write(record.encode())
        if self._ledger_id != NO_CURSOR_LEDGER:
            self.ledger_switched_ms = self._clock.wall_ms()
        self._candidate = None
        self._named(candidate)
        self._last_entry = candidate.writer.last_confirmed

    async def _begin_ledger(self) -> _OpenLedger:
        writes = ConfirmationWaiter()
        writer = await self._ledgers.create(
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
        return _OpenLedger(writer, writes, self._clock.monotonic())

    def _named(self, ledger: _OpenLedger | None) -> None:
        """The record names ``ledger`` and surely no other any more."""
        finished, self._current = self._current, ledger
        if finished is not None:
            finished.writer.detach()
        former, self._ledger_id = self._ledger_id, _id_of(ledger)
        self._unneeded += self._doubtful
        self._doubtful = ()
        if former != NO_CURSOR_LEDGER:
            self._unneeded += (former,)

    async def _clean_up(self) -> None:
        """Delete what nobody needs; what cannot be deleted now is tried again with the next write.

        That the state is safe does not depend on it.
        """
        while self._unneeded:
            try:
                await self._ledgers.delete(self._unneeded[-1])
            except (LedgerError, CoordinationError) as error:
                log.info(
                    "cursor ledgers not deleted yet",
                    extra={"ledgers": list(self._unneeded), "error": str(error)},
                )
                return
            self._unneeded = self._unneeded[:-1]

    # Ending

    async def close(self, state: CursorState) -> None:
        """Write ``state`` as a snapshot that is read without opening a ledger.

        One that has not changed needs nothing; one with very many holes stays in its ledger.
        """
        if self._is_at_rest(state):
            return
        value = snapshot(state, last_active_ms=self._clock.wall_ms())
        if value is None:
            await self._close_ledger(state)
            return
        await self._node.write(value)
        self._stored = state
        self._drop_candidate()
        self._named(None)
        await self._clean_up()

    def _is_at_rest(self, state: CursorState) -> bool:
        return (
            self._ledger_id == NO_CURSOR_LEDGER
            and state == self._stored
            and not (self._candidate or self._doubtful or self._unneeded)
        )

    async def _close_ledger(self, state: CursorState) -> None:
        """Too much for a record in ZooKeeper: the cursor ledger, closed, keeps it."""
        if state != self._stored:
            await self.save(state)
        if self._current is not None:
            await self._current.writer.close()

    async def delete(self) -> None:
        """Delete the record and the ledgers; done again, it finishes what it did not the first
        time. Raises one of ``TAKEN_OVER`` where another broker has the cursor."""
        try:
            await self._node.delete()
        except NodeMissing:
            log.info("cursor was deleted already", extra={"cursor": self._name})
        self._drop_candidate()
        self._named(None)
        await self._clean_up()

    def _drop_candidate(self) -> None:
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            candidate.writer.detach()
            self._doubtful += (candidate.writer.ledger_id,)


def _id_of(ledger: _OpenLedger | None) -> int:
    return NO_CURSOR_LEDGER if ledger is None else ledger.writer.ledger_id


class _OpenLedger(NamedTuple):
    """A cursor ledger that is being written."""

    writer: LedgerWriter
    writes: ConfirmationWaiter
    begun_at_s: float

    async def append(self, payload: bytes) -> None:
        """Return when the entry is durable."""
        await self.writes.wait_for(self.writer.append(payload))
