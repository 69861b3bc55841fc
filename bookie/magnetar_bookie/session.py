"""One connection: takes requests, has them decided and journalled, answers.

Work is done for a read of the socket, not for a message: all frames that came in one piece are
looked at in one loop, their adds go to the journal as the bytes they came in, and all that became
durable together is answered with one write. Reads of what is in memory are answered at once, the
others by ``reads``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import cast

from magnetar_bookie.counters import Counters
from magnetar_bookie.intake import Intake
from magnetar_bookie.journal import Group, Journal
from magnetar_bookie.ledgers import Ledger
from magnetar_bookie.reads import WRITE_BYTES, ReadQueue, Spawn
from magnetar_bookie.settings import BookieSettings
from magnetar_bookie.storage import ADMISSION_BYTES, Storage
from magnetar_bookie.v3 import refuse_v3
from magnetar_bookie.write_cache import ENTRY_OVERHEAD_BYTES, Entries
from magnetar_protocol.bookkeeper.errors import (
    BookieRefusal,
    UnsupportedOperation,
    UnsupportedVersion,
)
from magnetar_protocol.bookkeeper.v2 import (
    Flag,
    Operation,
    ReturnCode,
    encode_add_response,
    encode_read_response_header,
    encode_response,
    is_v3,
    parse_request,
)
from magnetar_protocol.errors import WireError
from magnetar_protocol.framing import FRAME_SIZE_BYTES, Bounds, FrameReader
from magnetar_server.authorization import (
    ANONYMOUS,
    Action,
    Authorizer,
    NotAuthorized,
    Resource,
)

log = logging.getLogger(__name__)

# The hot part of an add: what the write cache knows it by, its entry id, and where both stand.
_ADD = Struct(f">{ADMISSION_BYTES}sq")
_ADD_BYTES_MIN = _ADD.size
_ENTRY_OFFSET = 24
_IDS_END = 40
# An answer to an add is a constant, then the ids as they stood in the request.
_IDS_BYTES = _IDS_END - _ENTRY_OFFSET
_ADD_WRITTEN = encode_add_response(ReturnCode.EOK, 0, 0)[:-_IDS_BYTES]
_ADD_FAILED = encode_add_response(ReturnCode.EIO, 0, 0)[:-_IDS_BYTES]
# Where the ids stand in a request that is refused unread.
_IDS = Struct(">qq")
_READ_IDS_OFFSET = 4
# Versions that were spoken once; a frame of any other is garbage.
_OLD_VERSIONS = (0, 1)

# A part of a read buffer shorter than this is copied for the journal, a longer one viewed.
_VIEW_BYTES_MIN = 4096

# Why a connection is not read: each reason is one bit.
_HELD_BY_INTAKE = 1
_HELD_BY_READS = 2
_HELD_BY_WRITES = 4


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What all sessions of a bookie share. ``after_adds`` is called when a read brought adds.

    Who may speak to a bookie may add to and read every ledger whose key it knows: BookKeeper has
    no finer rights, so ``authorizer`` is asked once for each connection, about ``resource``.
    """

    settings: BookieSettings
    storage: Storage
    journal: Journal
    counters: Counters
    intake: Intake
    spawn: Spawn
    after_adds: Callable[[], None]
    authorizer: Authorizer
    resource: Resource


class Session(asyncio.Protocol):
    """A client's connection, from accept to close."""

    def __init__(self, context: SessionContext) -> None:
        self._storage = context.storage
        self._journal = context.journal
        self._counters = context.counters
        self._intake = context.intake
        self._authorizer = context.authorizer
        self._resource = context.resource
        self.principal = ANONYMOUS
        self._after_adds = context.after_adds
        self._frames = FrameReader(context.settings.frame_bytes_max)
        self._reads = ReadQueue(
            context.storage,
            context.counters,
            context.spawn,
            queued_max=context.settings.reads_queued_max,
            write=self._write_all,
            on_drained=self._reads_drained,
        )
        self._transport: asyncio.Transport | None = None
        self._held_by = 0
        # Entries in the replies that the read of the socket at hand has made so far, their bytes,
        # and when it came (0 before anybody asked).
        self._replied_reads = 0
        self._replied_bytes = 0
        self._came_s = 0.0
        # The journal's group that our latest adds are in, and their ids.
        self._group: Group | None = None
        self._ids: list[bytes] = []

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._counters.connections_opened += 1
        self._intake.join(self)
        try:
            self._authorizer.authorize(self.principal, Action.ADMINISTER, self._resource)
        except NotAuthorized as error:
            log.warning("connection refused", extra={"why": str(error)})
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 the loop names it
        """The connection is gone."""
        self._intake.leave(self)
        self._reads.close()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """One read of the socket; garbage in it closes the connection."""
        try:
            buffer, bounds = self._frames.feed(data)
            if bounds:
                self._take(buffer, bounds)
        except WireError as error:
            self._counters.connections_faulty += 1
            log.warning("connection closed: it sent what is no request", extra={"why": str(error)})
            self.close()

    def pause_writing(self) -> None:
        """The client takes its answers too slowly: take no more of its requests."""
        self._reads.hold()
        self._hold(_HELD_BY_WRITES)

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._reads.release()
        self._release(_HELD_BY_WRITES)

    # What the bookie calls.

    def hold(self) -> None:
        """Read nothing from now on: too much is in memory."""
        self._hold(_HELD_BY_INTAKE)

    def release(self) -> None:
        """Read again."""
        self._release(_HELD_BY_INTAKE)

    def close(self) -> None:
        """Send what was written, then close the connection."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # Requests.

    def _take(self, buffer: bytes, bounds: Bounds) -> None:
        """Handle the frames of one read of the socket.

        Adds of ledgers that were admitted take the short way: into the write cache, their bytes to
        the journal together, run by run. Everything else ends a run and is decided by itself.
        """
        admitted = self._storage.write_cache.writable.get
        unpack_add = _ADD.unpack_from
        ids: list[bytes] = []
        replies: list[bytes] = []
        run_start = end = 0
        self._came_s = 0.0
        try:
            for start, end in bounds:
                if end - start >= _ADD_BYTES_MIN:
                    prefix, entry_id = unpack_add(buffer, start)
                    entries = admitted(prefix)
                    if entries is not None and entry_id >= 0:
                        ids.append(buffer[start + _ENTRY_OFFSET : start + _IDS_END])
                        entries[entry_id] = buffer[start + _ENTRY_OFFSET : end]
                        continue
                if ids:
                    self._journal_adds(buffer, run_start, start - FRAME_SIZE_BYTES, ids)
                    ids = []
                if self._decide(buffer, start, end, replies):
                    run_start = start - FRAME_SIZE_BYTES
                    ids.append(buffer[start + _ENTRY_OFFSET : start + _IDS_END])
                else:
                    run_start = end
        finally:
            if ids:
                self._journal_adds(buffer, run_start, end, ids)
            if replies:
                self._reply(replies)

    def _journal_adds(self, buffer: bytes, start: int, end: int, ids: list[bytes]) -> None:
        """Hand the adds at ``buffer[start:end]`` to the journal; answer when they are durable."""
        journal = self._journal
        size = end - start
        group = journal.forming
        if self._group is not group:
            self._group = group
            self._ids = ids
            group.waiters.append((self._adds_done, ids))
        else:
            self._ids += ids
        if size == len(buffer):
            journal.append_adds(buffer, len(ids))
        elif size < _VIEW_BYTES_MIN:
            journal.append_adds(buffer[start:end], len(ids))
        else:
            journal.append_adds(memoryview(buffer)[start:end], len(ids))
        self._storage.write_cache.active_bytes += size + ENTRY_OVERHEAD_BYTES * len(ids)
        self._counters.add_bytes += size
        self._after_adds()

    def _adds_done(self, ids: list[bytes], is_written: bool) -> None:  # noqa: FBT001 a Waiter
        if is_written:
            self._counters.adds += len(ids)
        else:
            self._counters.adds_failed += len(ids)
        if self._transport is not None:
            head = _ADD_WRITTEN if is_written else _ADD_FAILED
            self._transport.write(head + head.join(ids))

    def _decide(self, buffer: bytes, start: int, end: int, replies: list[bytes]) -> bool:
        """Handle one request the long way; True where it was an add that is now in the cache.

        Raises ``WireError`` where it is no request.
        """
        if is_v3(buffer, start, end):
            self._counters.v3_requests += 1
            replies.append(refuse_v3(buffer[start:end]))
            return False
        try:
            operation, flags, ledger_id, entry_id, master_key, body = parse_request(
                buffer, start, end
            )
        except UnsupportedVersion as error:
            if error.version not in _OLD_VERSIONS:
                raise
            replies.append(_refuse_unread(buffer, start, end, ReturnCode.EBADVERSION))
            return False
        except UnsupportedOperation:
            replies.append(_refuse_unread(buffer, start, end, ReturnCode.EBADREQ))
            return False
        if operation == Operation.ADD:
            assert master_key is not None
            entries = self._admit(ledger_id, entry_id, master_key, flags, replies)
            if entries is None:
                return False
            entries[entry_id] = buffer[body:end]
            return True
        if flags & Flag.FENCING:
            assert master_key is not None
            self._fence(ledger_id, entry_id, master_key, replies)
        else:
            self._read(ledger_id, entry_id, replies)
        return False

    def _admit(
        self, ledger_id: int, entry_id: int, master_key: bytes, flags: int, replies: list[bytes]
    ) -> Entries | None:
        try:
            return self._storage.admit(ledger_id, master_key, flags)
        except BookieRefusal as refusal:
            self._counters.adds_refused += 1
            replies.append(encode_add_response(refusal.return_code, ledger_id, entry_id))
            return None

    def _fence(
        self, ledger_id: int, entry_id: int, master_key: bytes, replies: list[bytes]
    ) -> None:
        """Fence at once, read when the fence is durable."""
        self._counters.fence_reads += 1
        try:
            ledger = self._storage.fence(ledger_id, master_key)
        except BookieRefusal as refusal:
            self._refuse_read(refusal.return_code, ledger_id, entry_id, replies)
            return
        if ledger.is_fence_durable:
            self._read(ledger_id, entry_id, replies)
        elif self._journal.error is not None:
            self._refuse_read(ReturnCode.EIO, ledger_id, entry_id, replies)
        else:
            self._journal.append_fence(ledger_id, master_key)
            self._journal.forming.waiters.append((self._fence_done, (ledger, entry_id)))

    def _fence_done(self, fenced: tuple[Ledger, int], is_written: bool) -> None:  # noqa: FBT001
        ledger, entry_id = fenced
        replies: list[bytes] = []
        if is_written:
            if not ledger.is_fence_durable:
                log.info("ledger fenced", extra={"ledger": ledger.ledger_id})
            ledger.is_fence_durable = True
            self._came_s = 0.0
            self._read(ledger.ledger_id, entry_id, replies)
        else:
            self._refuse_read(ReturnCode.EIO, ledger.ledger_id, entry_id, replies)
        if replies:
            self._reply(replies)

    def _read(self, ledger_id: int, entry_id: int, replies: list[bytes]) -> None:
        """Answer at once from memory, or later if others wait or the disk must be asked."""
        if self._transport is None:
            return
        if not self._came_s:
            self._came_s = self._counters.clock.monotonic()
        if self._reads.is_busy or self._replied_bytes >= WRITE_BYTES:
            self._read_later(ledger_id, entry_id)
            return
        try:
            entry = self._storage.find(ledger_id, entry_id)
        except BookieRefusal as refusal:
            self._refuse_read(refusal.return_code, ledger_id, entry_id, replies)
            return
        if entry is None:
            self._read_later(ledger_id, entry_id)
            return
        size = len(entry)
        replies.append(encode_read_response_header(ReturnCode.EOK, ledger_id, entry_id, size))
        replies.append(entry)
        self._replied_bytes += size
        self._replied_reads += 1

    def _read_later(self, ledger_id: int, entry_id: int) -> None:
        self._reads.push(ledger_id, entry_id, self._came_s)
        if self._reads.is_full:
            self._hold(_HELD_BY_READS)

    def _refuse_read(self, code: int, ledger_id: int, entry_id: int, replies: list[bytes]) -> None:
        self._counters.reads_failed += 1
        replies.append(encode_read_response_header(code, ledger_id, entry_id))

    # The connection.

    def _reply(self, replies: list[bytes]) -> None:
        """Write the replies that were made at once, and count the reads among them."""
        if self._replied_reads:
            counters = self._counters
            counters.reads += self._replied_reads
            counters.read_bytes += self._replied_bytes
            took_s = counters.clock.monotonic() - self._came_s
            counters.read_latency.record(took_s, self._replied_reads)
            self._replied_reads = self._replied_bytes = 0
        self._write_all(replies)

    def _write_all(self, pieces: list[bytes]) -> None:
        if self._transport is not None:
            self._transport.writelines(pieces)

    def _reads_drained(self) -> None:
        self._release(_HELD_BY_READS)

    def _hold(self, reason: int) -> None:
        if not self._held_by and self._transport is not None:
            self._transport.pause_reading()
        self._held_by |= reason

    def _release(self, reason: int) -> None:
        if self._held_by == reason and self._transport is not None:
            self._transport.resume_reading()
        self._held_by &= ~reason


def _refuse_unread(buffer: bytes, start: int, end: int, code: int) -> bytes:
    """Refuse a V2 request that cannot be read: with its ids, as far as they can be guessed."""
    operation = buffer[start + 1]
    offset = _ENTRY_OFFSET if operation == Operation.ADD else _READ_IDS_OFFSET
    ledger_id = entry_id = -1
    if end - start >= offset + _IDS_BYTES:
        ledger_id, entry_id = _IDS.unpack_from(buffer, start + offset)
    return encode_response(operation, code, ledger_id, entry_id)
