"""V2 requests for several entries: one answer with as many neighbours as there are and fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from geminga_bookie.errors import CorruptFile, UnknownFormat
from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.sessions.deferred_answers import AnswerQueue
from geminga_bookie.sessions.fencing import fence
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.errors import BookieRefusal
from geminga_protocol.bookkeeper.v2_rare import (
    BATCH_ANSWER_BYTES,
    BATCH_ENTRY_SIZE_BYTES,
    BatchRead,
    encode_batch_answer,
    parse_batch_read,
)

log = logging.getLogger(__name__)

# Entries of one answer, however small: other connections' requests wait that long.
BATCH_ENTRIES_MAX = 10_000


@dataclass(eq=False, slots=True)
class BatchReads:
    """Takes the requests for several entries of one connection; the queue makes the answers."""

    _context: SessionContext
    _queue: AnswerQueue
    # Takes the pieces of answers that are made at once: refusals.
    _write: Callable[[list[bytes]], None]

    def take(self, buffer: bytes, start: int, end: int) -> None:
        """Take the request at ``buffer[start:end]``. Raises ``WireError`` for garbage."""
        request = parse_batch_read(buffer, start, end)
        may_read = True
        # A master key comes with requests that fence.
        if request.master_key is not None:
            context = self._context
            context.counters.fence_reads += 1
            try:
                may_read = fence(
                    *(context.storage, context.journal, request.ledger_id, request.master_key),
                    *(self._fenced, request),
                )
            except BookieRefusal as refusal:
                self._refuse(request, refusal.return_code)
                return
        # Else ``_fenced`` is called. Until then the read waits outside the queue: it must not hold
        # up requests that came later.
        if may_read:
            self._queue.push(partial(self._answer, request))

    def _fenced(self, request: BatchRead, is_written: bool) -> None:  # noqa: FBT001 a WhenFenced
        if is_written:
            self._queue.push(partial(self._answer, request))
        else:
            self._refuse(request, ReturnCode.EIO)

    def _refuse(self, request: BatchRead, code: int) -> None:
        self._context.counters.reads_failed += 1
        self._write(encode_batch_answer(request, code))

    async def _answer(self, request: BatchRead) -> Sequence[bytes]:
        """Make an answer: of at least one entry, or of why the first cannot be read."""
        counters = self._context.counters
        began_s = counters.clock.monotonic()
        find, load = self._context.storage.find, self._context.storage.load
        # 0 means as many as fit, as upstream.
        count_max = min(request.count_max or BATCH_ENTRIES_MAX, BATCH_ENTRIES_MAX)
        # The client's limit and ours; the answer is one frame.
        bytes_max = min(request.bytes_max, self._context.config.frame_bytes_max)
        # This may be negative: the first entry goes out all the same.
        room = bytes_max - BATCH_ANSWER_BYTES
        entries: list[bytes] = []
        code = int(ReturnCode.EOK)
        # An answer has no holes: it ends before the first entry that is missing, does not fit or
        # cannot be read.
        for entry_id in range(request.first_entry, request.first_entry + count_max):
            try:
                entry = find(request.ledger_id, entry_id)
                if entry is None:
                    entry = await load(request.ledger_id, entry_id)
            except BookieRefusal as refusal:
                code = int(refusal.return_code)
                break
            except (OSError, CorruptFile, UnknownFormat):
                log.exception(
                    "entry cannot be read", extra={"ledger": request.ledger_id, "entry": entry_id}
                )
                code = int(ReturnCode.EIO)
                break
            room -= len(entry) + BATCH_ENTRY_SIZE_BYTES
            # The first entry goes out however large it is: the client would ask for it again.
            if entries and room < 0:
                break
            entries.append(entry)
        if not entries:
            counters.reads_failed += 1
            return encode_batch_answer(request, code, entries)
        # Why the next entry was not read, the request for it will say.
        counters.reads += len(entries)
        counters.read_bytes += sum(map(len, entries))
        took_ms = (counters.clock.monotonic() - began_s) * 1000
        counters.read_durations.add(took_ms, len(entries))
        return encode_batch_answer(request, int(ReturnCode.EOK), entries)
