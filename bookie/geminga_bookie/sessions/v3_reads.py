"""V3 requests that read: entries, what is confirmed, the wait for more, the list of entries.

All of them are answered by the connection's ``AnswerQueue``, in the order in which they became
ready: at once for most, after the fence is durable, or after a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from geminga_bookie.errors import CorruptFile, UnknownFormat
from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.sessions.deferred_answers import AnswerQueue
from geminga_bookie.sessions.fencing import fence
from geminga_bookie.sessions.long_polls import LongPoll
from geminga_bookie.storage.last_confirmed import NOTHING_CONFIRMED
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import encode_availability
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES
from geminga_protocol.bookkeeper.errors import (
    BadRequest,
    BookieFailed,
    BookieRefusal,
    NoSuchEntry,
    WrongMasterKey,
)
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY
from geminga_protocol.bookkeeper.v3 import (
    encode_frame,
    ledger_of,
    make_response,
    status_of,
)

log = logging.getLogger(__name__)

_FENCE = pb.ReadRequest.FENCE_LEDGER
# The reader wants the next entry together with the last-add-confirmed.
_PIGGYBACK = pb.ReadRequest.ENTRY_PIGGYBACK
_MS_PER_S = 1000

# Makes the answer to a request; None where it is made later. Raises ``BookieRefusal``,
# ``CorruptFile``, ``UnknownFormat``, ``OSError``.
MakeResponse = Callable[[pb.Request], Awaitable[pb.Response | None]]


@dataclass(eq=False, slots=True)
class V3Reads:
    """Takes the requests to read of one connection; the queue makes the answers."""

    _context: SessionContext
    _queue: AnswerQueue
    # Readers of this connection that wait for more, and what they asked.
    _polls: dict[LongPoll, pb.Request] = field(
        init=False, default_factory=dict[LongPoll, pb.Request]
    )

    def close(self) -> None:
        """End all waits: the connection is gone."""
        # ``cancel`` calls no ``_poll_over``, so that the dict does not change meanwhile.
        for poll in self._polls:
            self._context.long_polls.cancel(poll)
        self._polls.clear()

    # Taking requests; each raises ``BookieRefusal``.

    def read(self, request: pb.Request) -> None:
        """Take a request for an entry, maybe after a fence or a wait."""
        asked = request.readRequest
        # Three kinds: the fencing read of recovery; the long poll, which names the
        # last-add-confirmed that the reader knows; the plain read.
        if _has_flag(asked, _FENCE):
            if len(asked.masterKey) != MASTER_KEY_BYTES:
                raise WrongMasterKey(asked.ledgerId, asked.entryId)
            self._context.counters.fence_reads += 1
            is_durable = fence(
                *(self._context.storage, self._context.journal, asked.ledgerId, asked.masterKey),
                *(self._fenced, request),
            )
            # Else ``_fenced`` is called. Until then the read waits outside the queue: it must not
            # hold up requests that came later.
            if is_durable:
                self._answer_later(request, self._read_alone)
        elif asked.HasField("previousLAC"):
            if _has_flag(asked, _PIGGYBACK) and asked.entryId != LAST_ENTRY:
                raise BadRequest(asked.ledgerId, asked.entryId)
            self._answer_later(request, self._poll)
        else:
            self._answer_later(request, self._read)

    def read_lac(self, request: pb.Request) -> None:
        """Take a request for the explicit last-add-confirmed and the last entry."""
        # Counted where it is taken: not each of them finds something to answer.
        self._context.counters.lac_reads += 1
        self._answer_later(request, self._read_lac)

    def list_entries(self, request: pb.Request) -> None:
        """Take a request for the list of a ledger's entries."""
        self._answer_later(request, self._list_entries)

    # Callbacks.

    def _fenced(self, request: pb.Request, is_written: bool) -> None:  # noqa: FBT001 a WhenFenced
        # The error is raised in the queue, where ``_answer`` counts it and makes an answer of it.
        async def fail(request: pb.Request) -> pb.Response:
            raise BookieFailed(request.readRequest.ledgerId, request.readRequest.entryId)

        self._answer_later(request, self._read_alone if is_written else fail)

    def _poll_over(self, poll: LongPoll, is_news: bool) -> None:  # noqa: FBT001 a WhenOver
        # The answer is made in the queue, like any read's: by its turn even more may be confirmed.
        request = self._polls.pop(poll)
        self._answer_later(request, partial(self._news, is_update=is_news))

    # Making answers, in the queue.

    def _answer_later(self, request: pb.Request, make: MakeResponse) -> None:
        self._queue.push(partial(self._answer, request, make))

    async def _answer(self, request: pb.Request, make: MakeResponse) -> Sequence[bytes]:
        try:
            # There is no answer in two cases: a wait begins, or the connection goes meanwhile.
            response = await make(request)
        except BookieRefusal as refusal:
            self._context.counters.reads_failed += 1
            response = make_response(request, status_of(refusal.return_code))
        except (OSError, CorruptFile, UnknownFormat):
            log.exception("entry cannot be read", extra={"ledger": ledger_of(request)})
            self._context.counters.reads_failed += 1
            response = make_response(request, pb.EIO)
        return () if response is None else (encode_frame(response),)

    async def _read(self, request: pb.Request) -> pb.Response:
        """The entry, and with it what is confirmed now, where that can be told."""
        response = await self._read_alone(request)
        # After the entry was read: what is said to be confirmed is then no older than the entry.
        ledger_id = request.readRequest.ledgerId
        with suppress(BookieFailed):
            response.readResponse.maxLAC = await self._context.last_confirmed.fetch(ledger_id)
        return response

    async def _read_alone(self, request: pb.Request) -> pb.Response:
        """The entry, and nothing else: the answer to a fencing read."""
        asked = request.readRequest
        response = make_response(request)
        response.readResponse.body = await self._entry(asked.ledgerId, asked.entryId)
        return response

    async def _poll(self, request: pb.Request) -> pb.Response | None:
        """An answer where there is news; None where the reader must wait for it."""
        asked = request.readRequest
        try:
            lac = await self._context.last_confirmed.fetch(asked.ledgerId)
        except NoSuchEntry:
            # A ledger that has no entry here yet may be waited for all the same.
            lac = NOTHING_CONFIRMED
        if lac > asked.previousLAC or asked.timeOut <= 0:
            return await self._news(request)
        # Nothing is awaited since ``fetch``: no entry can come between its answer and the wait.
        poll = self._context.long_polls.wait(
            asked.ledgerId, asked.previousLAC, asked.timeOut / _MS_PER_S, self._poll_over
        )
        # Kept so that ``close`` can end the wait.
        self._polls[poll] = request
        return None

    async def _news(self, request: pb.Request, *, is_update: bool = False) -> pb.Response:
        """What is confirmed now, and the entry behind what the reader has, if it is here.

        ``is_update``: it became confirmed while the reader waited.
        """
        asked = request.readRequest
        # Without the flag the reader wants the entry that it asked for, whatever is confirmed.
        if not _has_flag(asked, _PIGGYBACK):
            return await self._read(request)
        lac = await self._context.last_confirmed.fetch(asked.ledgerId)
        response = make_response(request)
        # It says so also where the wait has timed out: the reader then knows that nothing was
        # missed.
        response.readResponse.maxLAC = lac
        if lac <= asked.previousLAC:
            return response
        # One entry at a time: the reader asks again with this one as what it has seen.
        entry_id = asked.previousLAC + 1
        try:
            response.readResponse.body = await self._entry(asked.ledgerId, entry_id)
        except NoSuchEntry:  # in a striped ledger another bookie has it
            return response
        response.readResponse.entryId = entry_id
        if is_update:
            response.readResponse.lacUpdateTimestamp = self._context.counters.clock.wall_ms()
        return response

    async def _read_lac(self, request: pb.Request) -> pb.Response:
        ledger_id = request.readLacRequest.ledgerId
        ledger = self._context.storage.ledgers.find(ledger_id)
        if ledger is None:  # to upstream, too, this is no missing ledger
            raise NoSuchEntry(ledger_id)
        response = make_response(request)
        # The reader gets both, checks their digests, and takes the greater of what they confirm.
        if ledger.explicit_lac:
            response.readLacResponse.lacBody = ledger.explicit_lac
        try:
            last_entry = await self._context.storage.fetch(ledger_id, LAST_ENTRY)
            response.readLacResponse.lastEntryBody = last_entry
        except NoSuchEntry:
            if not ledger.explicit_lac:
                raise
        return response

    async def _list_entries(self, request: pb.Request) -> pb.Response:
        ledger_id = request.getListOfEntriesOfLedgerRequest.ledgerId
        response = make_response(request)
        runs = await self._context.storage.entry_runs(ledger_id)
        answer = response.getListOfEntriesOfLedgerResponse
        answer.availabilityOfEntriesOfLedger = encode_availability(runs)
        return response

    async def _entry(self, ledger_id: int, entry_id: int) -> bytes:
        """Get an entry, and count the read."""
        # -1 asks for the last one; less is no entry's id.
        if entry_id < LAST_ENTRY:
            raise NoSuchEntry(ledger_id, entry_id)
        counters = self._context.counters
        began_s = counters.clock.monotonic()
        entry = await self._context.storage.fetch(ledger_id, entry_id)
        counters.reads += 1
        counters.read_bytes += len(entry)
        counters.read_durations.add((counters.clock.monotonic() - began_s) * 1000)
        return entry


def _has_flag(asked: pb.ReadRequest, flag: pb.ReadRequest.Flag.ValueType) -> bool:
    return asked.HasField("flag") and asked.flag == flag
