"""The requests of one connection: decided, journalled, answered.

Work is done for a read of the socket, not for a request. All frames that came in one piece are
looked at in one loop. Their adds go to the write cache one by one, and to the journal together, as
the bytes they came in. All that became durable together is answered with one write.

The order of events of an add: it is decided and in the write cache at once, in the journal's
forming group in the same turn of the loop, and answered when that group is durable. A fence takes
the same way, so an add that came before it on the same journal is durable before it.

Reads of what is in memory are answered at once, the others by ``reads``. What is neither a V2 add
nor a V2 read goes to ``rare_requests``.
"""

from __future__ import annotations

from functools import partial
from struct import Struct

from geminga_bookie.journal.journal import Group
from geminga_bookie.sessions.connection import HELD_BY_RARE, HELD_BY_READS, ClientConnection
from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.sessions.deferred_answers import WRITE_BYTES
from geminga_bookie.sessions.fencing import fence
from geminga_bookie.sessions.rare_requests import RareRequests
from geminga_bookie.sessions.reads import ReadQueue
from geminga_bookie.storage.storage import ADMISSION_BYTES
from geminga_bookie.storage.write_cache import ENTRY_OVERHEAD_BYTES
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
from geminga_protocol.framing import FRAME_SIZE_BYTES, Bounds

# The hot part of an add: what the write cache knows it by, its entry id, and where both stand.
#
#     start         +4           +24         +32        +40
#     | header word | master key | ledger_id | entry_id | rest of the entry
#     |<------- ADMISSION_BYTES ------------>|
#                                |<-- what is kept as the entry ---------->
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


class Session(ClientConnection):
    """Takes the requests of one connection."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        # HOT: what each read of the socket needs, without the way through the context.
        self._storage = context.storage
        self._journal = context.journal
        self._counters = context.counters
        self._long_polls = context.long_polls
        self._after_adds = context.after_adds
        self._reads = ReadQueue(
            context.storage,
            context.counters,
            context.spawn,
            queued_max=context.config.reads_queued_max,
            write=self._write_all,
            on_drained=partial(self._release, HELD_BY_READS),
        )
        # Made by the first such request: brokers send none.
        self._rare: RareRequests | None = None
        # Of the read of the socket at hand: the entries in the replies that it has made so far,
        # their bytes, and when it came (0 before that is asked for). Back to 0 with each write of
        # replies.
        self._replied_reads = 0
        self._replied_bytes = 0
        self._came_s = 0.0
        # The journal's group that our latest adds are in, and their ids. ``_ids`` belongs to that
        # group. Where the journal forms another one, a new waiter is needed.
        self._group: Group | None = None
        self._ids: list[bytes] = []

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        # Pending reads are dropped. Adds that wait for the journal are not: their entries become
        # durable, and only the answers are not sent.
        self._reads.close()
        if self._rare is not None:
            self._rare.close()

    def pause_writing(self) -> None:
        """The client takes its answers too slowly: make no more, and take no requests."""
        # The tasks of both queues make no further answers until ``resume_writing``.
        self._reads.can_write.clear()
        if self._rare is not None:
            self._rare.queue.can_write.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._reads.can_write.set()
        if self._rare is not None:
            self._rare.queue.can_write.set()
        super().resume_writing()

    def _take(self, buffer: bytes, bounds: Bounds) -> None:
        """Handle the frames of one read of the socket.

        HOT. Adds of ledgers that were admitted take the short way: into the write cache, their
        bytes to the journal together, run by run. Everything else ends a run and is decided by
        itself.
        """
        # Bound once for all frames: a checkpoint replaces the dict, but never within this turn of
        # the loop.
        admitted = self._storage.write_cache.writable.get
        unpack_add = _ADD.unpack_from
        # Of the adds in the run so far: their ledger and entry ids as they stand in the request.
        ids: list[bytes] = []
        replies: list[bytes] = []
        # A run is adds that lie one behind the other in the buffer: one piece for the journal.
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
                # The run was journalled first: a fence that comes behind an add must not be durable
                # before it.
                if self._decide(buffer, start, end, replies):
                    run_start = start - FRAME_SIZE_BYTES
                    ids.append(buffer[start + _ENTRY_OFFSET : start + _IDS_END])
                else:
                    # An answered request lies between: the next run begins behind it.
                    run_start = end
        finally:
            # The last run; and the answers, also where a later frame is garbage.
            if ids:
                self._journal_adds(buffer, run_start, end, ids)
            if replies:
                self._reply(replies)

    # Adds.

    def _journal_adds(self, buffer: bytes, start: int, end: int, ids: list[bytes]) -> None:
        """Hand the adds at ``buffer[start:end]`` to the journal; answer when they are durable."""
        journal = self._journal
        size = end - start
        group = journal.forming
        # One waiter for each group and connection, whatever the number of reads of the socket.
        if self._group is not group:
            self._group = group
            self._ids = ids
            group.waiters.append((self._adds_done, ids))
        else:
            # The waiter was given this list: the ids that join it are answered with the others.
            self._ids += ids
        if size == len(buffer):
            journal.append_adds(buffer, len(ids))
        elif size < _VIEW_BYTES_MIN:
            # A view keeps the whole read of the socket in memory until the group is durable.
            journal.append_adds(buffer[start:end], len(ids))
        else:
            journal.append_adds(memoryview(buffer)[start:end], len(ids))
        self._storage.write_cache.active_bytes += size + ENTRY_OVERHEAD_BYTES * len(ids)
        self._counters.add_bytes += size
        # Called when everything is counted: it may stop the reading of all sockets, this one's too.
        self._after_adds()

    def _adds_done(self, ids: list[bytes], is_written: bool) -> None:  # noqa: FBT001 a Waiter
        """Answer the adds of one group, which is durable or has failed."""
        if is_written:
            self._counters.adds += len(ids)
            if self._long_polls.waiting:
                self._long_polls.added(ids)
        else:
            self._counters.adds_failed += len(ids)
        # All answers of a group and connection in one piece, made by one join.
        if self._transport is not None:
            head = _ADD_WRITTEN if is_written else _ADD_FAILED
            self._transport.write(head + head.join(ids))

    # Requests that are decided one by one.

    def _decide(self, buffer: bytes, start: int, end: int, replies: list[bytes]) -> bool:
        """Handle one request the long way; True where it was an add that is now in the cache.

        Raises ``WireError`` where it is no request.
        """
        # A V3 request shows by its first byte: a protobuf tag, which is no version of V2.
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
            try:
                # From now on the ledger's adds take the short way in ``_take``.
                entries = self._storage.admit(ledger_id, master_key, flags)
            except BookieRefusal as refusal:
                self._counters.adds_refused += 1
                replies.append(encode_add_response(refusal.return_code, ledger_id, entry_id))
                return False
            entries[entry_id] = buffer[body:end]
            return True
        if flags & Flag.FENCING:
            assert master_key is not None
            self._fence(ledger_id, entry_id, master_key, replies)
        else:
            self._read(ledger_id, entry_id, replies)
        return False

    def _take_rare(self, buffer: bytes, start: int, end: int, replies: list[bytes]) -> None:
        if self._rare is None:
            self._rare = RareRequests(
                self._context,
                write=self._write_all,
                on_drained=partial(self._release, HELD_BY_RARE),
                begin_tls=self._begin_tls,
            )
        answer = self._rare.take(buffer, start, end)
        if answer is not None:
            replies.append(answer)
        if self._rare.queue.is_full:
            self._hold(HELD_BY_RARE)

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
        # Else ``_fence_done`` reads: the entry that recovery gets is looked up after the fence is
        # durable.
        if is_durable:
            self._read(ledger_id, entry_id, replies)

    def _fence_done(self, asked: tuple[int, int], is_written: bool) -> None:  # noqa: FBT001
        # Called by the journal, outside of any read of the socket: the reply is written by itself.
        replies: list[bytes] = []
        if is_written:
            self._came_s = 0.0
            self._read(*asked, replies)
        else:
            self._refuse_read(ReturnCode.EIO, *asked, replies)
        if replies:
            self._reply(replies)

    # Reads.

    def _read(self, ledger_id: int, entry_id: int, replies: list[bytes]) -> None:
        """Answer at once from memory; later if others are pending or the disk must be read."""
        # The client may be gone by the time a fence is durable, and the read that it asked for with
        # it.
        if self._transport is None:
            return
        if not self._came_s:
            self._came_s = self._counters.clock.monotonic()
        # Reads are answered in their order, and no more is answered at once than one write takes.
        if self._reads.task is not None or self._replied_bytes >= WRITE_BYTES:
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
        self._reads.push((ledger_id, entry_id, self._came_s))
        # The requests at hand are still taken: only the socket is not read any more.
        if self._reads.is_full:
            self._hold(HELD_BY_READS)

    def _refuse_read(self, code: int, ledger_id: int, entry_id: int, replies: list[bytes]) -> None:
        self._counters.reads_failed += 1
        replies.append(encode_read_response_header(code, ledger_id, entry_id))

    def _reply(self, replies: list[bytes]) -> None:
        """Write the replies that were made at once, and count the reads among them."""
        if self._replied_reads:
            counters = self._counters
            counters.reads += self._replied_reads
            counters.read_bytes += self._replied_bytes
            # All reads of one piece of the socket share one duration: the clock is read twice for
            # all.
            took_s = counters.clock.monotonic() - self._came_s
            counters.read_durations.add(took_s * 1000, self._replied_reads)
            self._replied_reads = self._replied_bytes = 0
        self._write_all(replies)
