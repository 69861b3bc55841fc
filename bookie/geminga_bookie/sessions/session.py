"""One connection: takes requests, has them decided and journalled, answers.

Work is done for a read of the socket, not for a message: all frames that came in one piece are
looked at in one loop, their adds go to the journal as the bytes they came in, and all that became
durable together is answered with one write. Reads of what is in memory are answered at once, the
others by ``reads``. What is neither a V2 add nor a V2 read goes to ``rare_requests``.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, cast

from geminga_bookie.journal.journal import Group
from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.sessions.deferred_answers import WRITE_BYTES
from geminga_bookie.sessions.fencing import fence
from geminga_bookie.sessions.rare_requests import RareRequests
from geminga_bookie.sessions.reads import ReadQueue
from geminga_bookie.storage.storage import ADMISSION_BYTES
from geminga_bookie.storage.write_cache import ENTRY_OVERHEAD_BYTES, Entries
from geminga_protocol.bookkeeper.errors import (
    BookieRefusal,
    UnsupportedOperation,
    UnsupportedVersion,
)
from geminga_protocol.bookkeeper.v2 import (
    Flag,
    Operation,
    ReturnCode,
    encode_add_response,
    encode_read_response_header,
    is_v3,
    parse_request,
)
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FRAME_SIZE_BYTES, Bounds, FrameReader
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import TLS_HANDSHAKE_TIMEOUT_S
from geminga_server.authorization import ANONYMOUS, Action

if TYPE_CHECKING:
    from ssl import SSLContext

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
# A part of a read buffer shorter than this is copied for the journal, a longer one viewed.
_VIEW_BYTES_MIN = 4096

# Why a connection is not read: each reason is one bit.
_HELD_BY_INTAKE = 1
_HELD_BY_READS = 2
_HELD_BY_WRITES = 4
_HELD_BY_RARE = 8
_HELD_BY_AUTHORIZATION = 16
_HELD_BY_TLS = 32
# What comes meanwhile is kept for later.
_EARLY = _HELD_BY_AUTHORIZATION | _HELD_BY_TLS

# A client that waits longer for its first answer has given the bookie up.
AUTHORIZATION_TIMEOUT_S = 10.0


class Session(asyncio.Protocol):
    """A client's connection, from accept to close."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._storage = context.storage
        self._journal = context.journal
        self._counters = context.counters
        self._long_polls = context.long_polls
        self._after_adds = context.after_adds
        self.principal = ANONYMOUS
        self._frames = FrameReader(context.config.frame_bytes_max)
        self._reads = ReadQueue(
            context.storage,
            context.counters,
            context.spawn,
            queued_max=context.config.reads_queued_max,
            write=self._write_all,
            on_drained=self._reads_drained,
        )
        self._rare: RareRequests | None = None
        self._transport: asyncio.Transport | None = None
        # The plain transport during a TLS handshake: no request is taken, no answer written.
        self._securing: asyncio.Transport | None = None
        self._is_secured = False
        self._host = ""
        self._is_admitted = False
        self._held_by = 0
        # What came before the client was known to be allowed to send it, or with its handshake.
        self._early = b""
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
        context = self._context
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else "unknown"
        # BookKeeper has no words for a refusal: the end of the connection has to do.
        self._is_admitted = context.limits.admit(self._host) is None
        if not self._is_admitted:
            self.abort()
            return
        context.back_pressure.join(self)
        self._hold(_HELD_BY_AUTHORIZATION)
        context.spawn(self._authorize(), name="authorize a connection")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 the loop names it
        """The connection is gone."""
        if self._is_admitted:
            self._context.limits.leave(self._host)
            self._context.back_pressure.leave(self)
        self._reads.close()
        if self._rare is not None:
            self._rare.close()
        self._transport = self._securing = None

    def data_received(self, data: bytes) -> None:
        """One read of the socket; garbage in it closes the connection."""
        if self._held_by:
            # uvloop begins to read after ``connection_made``, even where that has paused it: one
            # read comes through.
            if self._transport is not None:
                self._transport.pause_reading()
            if self._held_by & _EARLY:
                self._early += data
                return
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
        if self._rare is not None:
            self._rare.hold()
        self._hold(_HELD_BY_WRITES)

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._reads.release()
        if self._rare is not None:
            self._rare.release()
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
        transport = self._transport or self._securing
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        transport = self._transport or self._securing
        if transport is not None:
            transport.abort()

    # Requests.

    async def _authorize(self) -> None:
        """Take the first request when the client is known to be allowed to send any."""
        context = self._context
        try:
            async with asyncio.timeout(AUTHORIZATION_TIMEOUT_S):
                await context.authorizer.authorize(
                    self.principal, Action.ADMINISTER, context.resource
                )
        except (GemingaError, TimeoutError) as error:
            log.warning("connection refused", extra={"why": str(error)})
            self.abort()
        except BaseException:
            self.abort()
            raise
        else:
            self._take_early(_HELD_BY_AUTHORIZATION)

    def _take_early(self, reason: int) -> None:
        """Go on with what came while the connection was held for ``reason``."""
        early, self._early = self._early, b""
        self._release(reason)
        if early and self._transport is not None:
            self.data_received(early)

    def _begin_tls(self) -> bool:
        """Have the connection secured, if it can be; the answer that says so goes out before."""
        tls = self._context.tls
        if tls is None or self._is_secured or self._transport is None:
            return False
        self._is_secured = True
        self._hold(_HELD_BY_TLS)
        self._context.spawn(self._secure(tls), name="secure a connection")
        return True

    async def _secure(self, tls: SSLContext) -> None:
        """Make the handshake. What else is to be answered meanwhile is not: no client that begins
        TLS has asked for it, and it must not go out in between, in plain."""
        plain, self._transport = self._transport, None
        if plain is None:
            return  # the client is gone
        self._securing = plain
        secured: asyncio.Transport | None = None
        try:
            if not self._early:  # nothing comes in plain behind START_TLS
                secured = await asyncio.get_running_loop().start_tls(
                    *(plain, self, tls),
                    server_side=True,
                    ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S,
                )
        except OSError as error:  # an SSLError is one
            log.warning("tls handshake failed", extra={"host": self._host, "why": str(error)})
        finally:
            if secured is None:
                plain.abort()
        if secured is not None and not secured.is_closing():
            self._transport, self._securing = secured, None
            log.info("connection secured", extra={"host": self._host})
            if self._held_by != _HELD_BY_TLS:
                secured.pause_reading()
            self._take_early(_HELD_BY_TLS)

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
            if self._long_polls.waiting:
                self._long_polls.added(ids)
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
            self._take_rare(buffer, start, end, replies)
            return False
        try:
            operation, flags, ledger_id, entry_id, master_key, body = parse_request(
                buffer, start, end
            )
        except (UnsupportedOperation, UnsupportedVersion):
            self._take_rare(buffer, start, end, replies)
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
            is_durable = fence(
                *(self._storage, self._journal, ledger_id, master_key),
                *(self._fence_done, (ledger_id, entry_id)),
            )
        except BookieRefusal as refusal:
            self._refuse_read(refusal.return_code, ledger_id, entry_id, replies)
            return
        if is_durable:
            self._read(ledger_id, entry_id, replies)

    def _fence_done(self, asked: tuple[int, int], is_written: bool) -> None:  # noqa: FBT001
        replies: list[bytes] = []
        if is_written:
            self._came_s = 0.0
            self._read(*asked, replies)
        else:
            self._refuse_read(ReturnCode.EIO, *asked, replies)
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

    # Requests off the hot path.

    def _take_rare(self, buffer: bytes, start: int, end: int, replies: list[bytes]) -> None:
        if self._rare is None:
            self._rare = RareRequests(
                self._context,
                write=self._write_all,
                on_drained=self._rare_drained,
                begin_tls=self._begin_tls,
            )
        answer = self._rare.take(buffer, start, end)
        if answer is not None:
            replies.append(answer)
        if self._rare.is_full:
            self._hold(_HELD_BY_RARE)

    def _rare_drained(self) -> None:
        self._release(_HELD_BY_RARE)

    # The connection.

    def _reply(self, replies: list[bytes]) -> None:
        """Write the replies that were made at once, and count the reads among them."""
        if self._replied_reads:
            counters = self._counters
            counters.reads += self._replied_reads
            counters.read_bytes += self._replied_bytes
            took_s = counters.clock.monotonic() - self._came_s
            counters.read_durations.add(took_s * 1000, self._replied_reads)
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
