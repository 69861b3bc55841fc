"""Where a cursor is kept: a record in ZooKeeper, and while it moves, a ledger of its own.

The ZooKeeper record (``ManagedCursorInfo``) either is the cursor (a snapshot, cursor ledger -1) or
names the cursor ledger, whose last entry (``PositionInfo``) is. Moving a cursor appends one entry;
closing it cleanly writes the snapshot and deletes the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar_broker.log.acknowledged import PositionRange
from magnetar_broker.log.options import LogOptions
from magnetar_broker.log.own_record import OwnRecord
from magnetar_broker.log.positions import Position
from magnetar_broker.log.store import LABELS
from magnetar_ledger import LedgerError, Ledgers, LedgerWriter, NoSuchLedger
from magnetar_protocol.pulsar.topic_names import encode_local
from magnetar_protocol.records.bit_sets import bits_of_words, words_of_bits
from magnetar_protocol.records.cursor import (
    NO_CURSOR_LEDGER,
    CursorRecord,
    PositionRecord,
    cursor_path,
)
from magnetar_runtime.clock import Clock
from magnetar_runtime.coordination import Coordination, NodeMissing

log = logging.getLogger(__name__)

Words = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CursorState:
    """All that a cursor remembers.

    What is acknowledged beyond ``mark_delete`` is given as ``ranges``, or, where there are many, as
    ``bits``: a set of entry ids for each ledger. ``partial`` gives, for batches acknowledged in
    part, the bit sets of the messages still to be consumed.
    """

    mark_delete: Position
    ranges: tuple[PositionRange, ...] = ()
    bits: Mapping[int, int] = field(default_factory=dict)
    partial: tuple[tuple[Position, Words], ...] = ()
    position_properties: Mapping[str, int] = field(default_factory=dict)
    cursor_properties: Mapping[str, str] = field(default_factory=dict)


class CursorStore:
    """The stored cursor ``name`` of log ``log_name``. ``load`` or ``create`` comes first; calls
    must not overlap."""

    def __init__(
        self,
        coordination: Coordination,
        ledgers: Ledgers,
        clock: Clock,
        options: LogOptions,
        *,
        log_name: str,
        name: str,
    ) -> None:
        self._coordination = coordination
        self._ledgers = ledgers
        self._clock = clock
        self._options = options
        self._log_name = log_name
        self._name = name
        self._node = OwnRecord(coordination, cursor_path(log_name, encode_local(name)))
        self._writer: LedgerWriter | None = None
        self._writes: _Writes | None = None
        self._ledger_id = NO_CURSOR_LEDGER
        self._stored: CursorState | None = None
        # Ledgers made for this cursor of which it is not known that the record names them.
        self._unnamed: list[int] = []

    async def create(self, state: CursorState) -> None:
        """Write the first record. Raises ``NodeExists``."""
        await self._node.create(self._record(state, NO_CURSOR_LEDGER).encode())
        self._stored = state

    async def load(self) -> CursorState:
        """Read the cursor, recovering its ledger where it has one.

        Raises ``NodeMissing`` where there is no such cursor.
        """
        record = CursorRecord.decode(await self._node.load())
        self._ledger_id = record.cursor_ledger_id
        written = await self._last_written()
        snapshot = record if written is None else written
        ledger_id, entry_id = snapshot.mark_delete or (-1, -1)
        self._stored = state = CursorState(
            mark_delete=Position(ledger_id, entry_id),
            ranges=tuple((Position(*low), Position(*high)) for low, high in snapshot.acknowledged),
            bits={
                ledger_id: bits_of_words(words)
                for ledger_id, words in (written.acknowledged_bits if written else {}).items()
            },
            partial=tuple((Position(*at), bits) for at, bits in snapshot.partial_batches.items()),
            position_properties=snapshot.properties,
            cursor_properties=record.cursor_properties,
        )
        return state

    async def _last_written(self) -> PositionRecord | None:
        """The last entry of the cursor ledger; None where the ZooKeeper record is all there is."""
        if self._ledger_id == NO_CURSOR_LEDGER:
            return None
        try:
            reader = await self._ledgers.open(self._ledger_id, recover=True)
        except NoSuchLedger:
            log.warning("cursor ledger is gone", extra={"cursor": self._name})
            return None
        last = reader.last_confirmed
        if last < 0:
            return None
        return PositionRecord.decode(
            (await reader.read(last, last, bytes_max=self._options.read_bytes_max))[0]
        )

    async def save(self, state: CursorState) -> None:
        """Append ``state`` to the cursor ledger and wait until it is durable."""
        if (
            self._writer is None
            or self._writer.last_pushed + 1 >= self._options.cursor_ledger_entries_max
        ):
            await self._turn_to_new_ledger(state)
        assert self._writer is not None
        assert self._writes is not None
        try:
            await self._writes.append(self._writer, self._position(state).encode())
        except LedgerError:
            # The next attempt begins another ledger; the record still names this one until then.
            self._writer = None
            raise
        self._stored = state

    async def _turn_to_new_ledger(self, state: CursorState) -> None:
        """Begin a new cursor ledger with ``state`` in it, then name it, then drop the old one."""
        writes = _Writes()
        writer = await self._ledgers.create(
            ensemble_size=self._options.ensemble_size,
            write_quorum=self._options.write_quorum,
            ack_quorum=self._options.ack_quorum,
            custom={
                "pulsar/managed-ledger": self._log_name.encode(),
                "pulsar/cursor": self._name.encode(),
                **dict(LABELS),
            },
            listener=writes,
        )
        self._unnamed.append(writer.ledger_id)
        await writes.append(writer, self._position(state).encode())
        # Only a ledger that the record names counts: until then the old one is the cursor's.
        await self._node.write(self._record(state, writer.ledger_id).encode())
        self._unnamed.remove(writer.ledger_id)
        finished, self._writer = self._writer, writer
        previous, self._ledger_id = self._ledger_id, writer.ledger_id
        self._writes = writes
        if finished is not None:
            await finished.close()
        await self._drop(previous, *self._unnamed)

    async def close(self, state: CursorState) -> None:
        """Write ``state`` as a snapshot that is read without opening a ledger.

        One that has not changed needs nothing; one with very many holes stays in its ledger.
        """
        if self._ledger_id == NO_CURSOR_LEDGER and state == self._stored and not self._unnamed:
            return
        if state.bits:
            # Too much for a record in ZooKeeper: the cursor ledger, closed, keeps it.
            await self.save(state)
            if self._writer is not None:
                await self._writer.close()
            return
        await self._node.write(self._record(state, NO_CURSOR_LEDGER).encode())
        previous, self._ledger_id = self._ledger_id, NO_CURSOR_LEDGER
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
        await self._drop(previous, *self._unnamed)

    async def delete(self) -> None:
        """Delete the record and the ledger."""
        try:
            await self._coordination.delete(self._node.path)
        except NodeMissing:
            return
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
        await self._drop(self._ledger_id, *self._unnamed)

    async def _drop(self, *ledger_ids: int) -> None:
        """Delete ledgers that the record surely does not name any more."""
        for ledger_id in ledger_ids:
            if ledger_id != NO_CURSOR_LEDGER:
                await self._ledgers.delete(ledger_id)
        self._unnamed.clear()

    def _position(self, state: CursorState) -> PositionRecord:
        return PositionRecord(
            mark_delete=state.mark_delete,
            acknowledged=state.ranges,
            properties=state.position_properties,
            partial_batches=dict(state.partial),
            acknowledged_bits={
                ledger_id: words_of_bits(bits) for ledger_id, bits in state.bits.items()
            },
        )

    def _record(self, state: CursorState, ledger_id: int) -> CursorRecord:
        is_snapshot = ledger_id == NO_CURSOR_LEDGER
        return CursorRecord(
            cursor_ledger_id=ledger_id,
            mark_delete=state.mark_delete,
            acknowledged=state.ranges if is_snapshot else (),
            properties=state.position_properties if is_snapshot else {},
            last_active_ms=self._clock.wall_ms(),
            partial_batches=dict(state.partial) if is_snapshot else {},
            cursor_properties=state.cursor_properties,
        )


class _Writes:
    """Turns a ledger writer's confirmations into something to await, one entry at a time."""

    def __init__(self) -> None:
        self._confirmed = -1
        self._error: LedgerError | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def append(self, writer: LedgerWriter, payload: bytes) -> None:
        if self._error is not None:
            raise self._error
        entry_id = writer.append(payload)
        while self._confirmed < entry_id:
            if self._error is not None:
                raise self._error
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def entries_confirmed(self, last_confirmed: int) -> None:
        self._confirmed = last_confirmed
        self._wake()

    def writer_failed(self, error: LedgerError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
