"""V3 requests that read: entries, what is confirmed, the wait for more, the list of entries."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from geminga_bookie.errors import CorruptFile
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
_PIGGYBACK = pb.ReadRequest.ENTRY_PIGGYBACK
_MS_PER_S = 1000

# Makes the answer to a request; None where it is made later.
MakeResponse = Callable[[pb.Request], Awaitable[pb.Response | None]]


class V3Reads:
    """Answers what one connection reads, in ``queue``; waits for more are kept till they end."""

    def __init__(self, context: SessionContext, queue: AnswerQueue) -> None:
        self._context = context
        self._storage = context.storage
        self._queue = queue
        self._polls: dict[LongPoll, pb.Request] = {}

    def close(self) -> None:
        """The connection is gone: nobody waits any more."""
        for poll in self._polls:
            self._context.long_polls.cancel(poll)
        self._polls.clear()

    def read(self, request: pb.Request) -> None:
        """An entry, maybe after a fence or a wait. Raises ``BookieRefusal``."""
        asked = request.readRequest
        if _has_flag(asked, _FENCE):
            self._fence(request)
        elif asked.HasField("previousLAC"):
            if _has_flag(asked, _PIGGYBACK) and asked.entryId != LAST_ENTRY:
                raise BadRequest(asked.ledgerId, asked.entryId)
            self._answer_later(request, self._poll)
        else:
            self._answer_later(request, self._read)

    def read_lac(self, request: pb.Request) -> None:
        """What the writer said is confirmed, and the last entry."""
        self._context.counters.lac_reads += 1
        self._answer_later(request, self._read_lac)

    def list_entries(self, request: pb.Request) -> None:
        """Which entries are here."""
        self._answer_later(request, self._list_entries)

    # Answers; each raises ``BookieRefusal``, ``CorruptFile`` or ``OSError``.

    async def _read(self, request: pb.Request) -> pb.Response:
        """The entry, and with it what is confirmed now, if that can be told."""
        response = await self._read_alone(request)
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
        """An answer if there is one; None where the reader must wait for it."""
        asked = request.readRequest
        try:
            lac = await self._context.last_confirmed.fetch(asked.ledgerId)
        except NoSuchEntry:
            lac = NOTHING_CONFIRMED
        if lac > asked.previousLAC or asked.timeOut <= 0:
            return await self._news(request)
        poll = self._context.long_polls.wait(
            asked.ledgerId, asked.previousLAC, asked.timeOut / _MS_PER_S, self._poll_over
        )
        self._polls[poll] = request
        return None

    def _poll_over(self, poll: LongPoll, is_news: bool) -> None:  # noqa: FBT001 a WhenOver
        request = self._polls.pop(poll)
        self._answer_later(request, partial(self._news, is_update=is_news))

    async def _news(self, request: pb.Request, *, is_update: bool = False) -> pb.Response:
        """What is confirmed now, and the entry behind what the reader has, if it is here.

        ``is_update``: it became confirmed while the reader waited.
        """
        asked = request.readRequest
        if not _has_flag(asked, _PIGGYBACK):
            return await self._read(request)
        lac = await self._context.last_confirmed.fetch(asked.ledgerId)
        response = make_response(request)
        response.readResponse.maxLAC = lac
        if lac <= asked.previousLAC:
            return response
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
        ledger = self._storage.ledgers.find(ledger_id)
        if ledger is None:  # to upstream, too, this is no missing ledger
            raise NoSuchEntry(ledger_id)
        response = make_response(request)
        if ledger.explicit_lac:
            response.readLacResponse.lacBody = ledger.explicit_lac
        try:
            last_entry = await self._storage.fetch(ledger_id, LAST_ENTRY)
            response.readLacResponse.lastEntryBody = last_entry
        except NoSuchEntry:
            if not ledger.explicit_lac:
                raise
        return response

    async def _list_entries(self, request: pb.Request) -> pb.Response:
        ledger_id = request.getListOfEntriesOfLedgerRequest.ledgerId
        response = make_response(request)
        runs = await self._storage.entry_runs(ledger_id)
        answer = response.getListOfEntriesOfLedgerResponse
        answer.availabilityOfEntriesOfLedger = encode_availability(runs)
        return response

    async def _entry(self, ledger_id: int, entry_id: int) -> bytes:
        if entry_id < LAST_ENTRY:
            raise NoSuchEntry(ledger_id, entry_id)
        counters = self._context.counters
        began_s = counters.clock.monotonic()
        entry = await self._storage.fetch(ledger_id, entry_id)
        counters.reads += 1
        counters.read_bytes += len(entry)
        counters.read_durations.add((counters.clock.monotonic() - began_s) * 1000)
        return entry

    # Fencing.

    def _fence(self, request: pb.Request) -> None:
        asked = request.readRequest
        if len(asked.masterKey) != MASTER_KEY_BYTES:
            raise WrongMasterKey(asked.ledgerId, asked.entryId)
        context = self._context
        context.counters.fence_reads += 1
        is_durable = fence(
            *(self._storage, context.journal, asked.ledgerId, asked.masterKey),
            *(self._fenced, request),
        )
        if is_durable:
            self._answer_later(request, self._read_alone)

    def _fenced(self, request: pb.Request, is_written: bool) -> None:  # noqa: FBT001 a WhenFenced
        self._answer_later(request, self._read_alone if is_written else _fence_failed)

    # The queue.

    def _answer_later(self, request: pb.Request, make: MakeResponse) -> None:
        self._queue.push(partial(self._answer, request, make))

    async def _answer(self, request: pb.Request, make: MakeResponse) -> Sequence[bytes]:
        try:
            response = await make(request)
        except BookieRefusal as refusal:
            self._context.counters.reads_failed += 1
            response = make_response(request, status_of(refusal.return_code))
        except (OSError, CorruptFile):
            log.exception("entry cannot be read", extra={"ledger": ledger_of(request)})
            self._context.counters.reads_failed += 1
            response = make_response(request, pb.EIO)
        return () if response is None else (encode_frame(response),)


def _has_flag(asked: pb.ReadRequest, flag: pb.ReadRequest.Flag.ValueType) -> bool:
    return asked.HasField("flag") and asked.flag == flag


async def _fence_failed(request: pb.Request) -> pb.Response:
    raise BookieFailed(request.readRequest.ledgerId, request.readRequest.entryId)
