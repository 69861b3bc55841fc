"""Plain V2 reads of one connection that must wait: for the disk, or for reads before them.

They are answered in the order in which they came, by the one task of ``deferred_answers``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from geminga_bookie.counters import Counters
from geminga_bookie.errors import CorruptFile, UnknownFormat
from geminga_bookie.sessions.deferred_answers import WRITE_BYTES, DeferredAnswers, Spawn
from geminga_bookie.storage.storage import Storage
from geminga_protocol.bookkeeper.errors import BookieRefusal
from geminga_protocol.bookkeeper.v2 import ReturnCode, encode_read_response_header

log = logging.getLogger(__name__)

# A read that waits: ledger id, entry id, when it came (seconds of the monotonic clock).
PendingRead = tuple[int, int, float]


class ReadQueue(DeferredAnswers[PendingRead]):
    """Answers reads in the order of ``push``."""

    def __init__(
        self,
        storage: Storage,
        counters: Counters,
        spawn: Spawn,
        *,
        queued_max: int,
        write: Callable[[list[bytes]], None],
        on_drained: Callable[[], None],
    ) -> None:
        super().__init__(
            spawn, name="reads", queued_max=queued_max, write=write, on_drained=on_drained
        )
        self._storage = storage
        self._counters = counters
        # Reads that are pending, and those taken from there but not answered yet.
        self._in_progress = 0

    def push(self, pending: PendingRead) -> None:
        """Answer this read after those that are pending."""
        if self._is_closed:
            return  # it would count as in progress for ever
        self._in_progress += 1
        self._counters.reads_in_progress += 1
        super().push(pending)

    def close(self) -> None:
        """Drop all that is pending: the connection is gone."""
        # All reads in progress are subtracted at once: the task, which ``super`` cancels, subtracts
        # none.
        self._counters.reads_in_progress -= self._in_progress
        self._in_progress = 0
        super().close()

    async def _answers(self) -> list[bytes]:
        """Answer the oldest reads: those that came together, as many as fit in one write.

        HOT: cold reads of a catching-up reader come this way, a thousand at a time.
        """
        pending, find = self._pending, self._storage.find
        answers: list[bytes] = []
        size = 0
        # How many reads had each return code.
        codes: dict[int, int] = {}
        # ``_pending`` is not empty: the task calls this only then.
        came_s = pending[0][2]
        # Those that came together share one measured duration. During a ``load`` more may be
        # pushed, and the connection may go: then this task is cancelled there.
        while pending and size < WRITE_BYTES and pending[0][2] == came_s:
            ledger_id, entry_id, _ = pending.popleft()
            code = 0
            try:
                # Looked up only now: the read before it may have brought this one's block to the
                # read cache.
                entry = find(ledger_id, entry_id)
                if entry is None:
                    entry = await self._storage.load(ledger_id, entry_id)
            except BookieRefusal as refusal:
                entry, code = b"", int(refusal.return_code)
            except (OSError, CorruptFile, UnknownFormat):
                log.exception(
                    "entry cannot be read", extra={"ledger": ledger_id, "entry": entry_id}
                )
                entry, code = b"", int(ReturnCode.EIO)
            codes[code] = codes.get(code, 0) + 1
            # A failure is answered in its place, with no entry behind its header.
            answers.append(encode_read_response_header(code, ledger_id, entry_id, len(entry)))
            answers.append(entry)
            size += len(entry)
        counters = self._counters
        done = codes.pop(ReturnCode.EOK, 0)
        failed = sum(codes.values())
        # After ``close``, which subtracts all, the cancelled task does not get here.
        self._in_progress -= done + failed
        counters.reads_in_progress -= done + failed
        counters.reads += done
        counters.reads_failed += failed
        counters.read_bytes += size
        if done:
            counters.read_durations.add((counters.clock.monotonic() - came_s) * 1000, done)
        return answers
