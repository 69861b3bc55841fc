"""A client of bookies that speaks their protocol itself: V3's messages, and V2's reads of several
entries. It asks what tools and Java clients may ask, and our own clients hardly ever do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from struct import Struct
from typing import cast

from tests.histories.listening import frames

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import Flag, Operation
from geminga_protocol.bookkeeper.v2 import is_v3
from geminga_protocol.bookkeeper.v2_rare import BATCH_ANSWER_BYTES
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES
from geminga_runtime.network import Network
from geminga_scenarios.storage import BOOKIE_PORT

ANSWER_TIMEOUT_S = 2.0
# ``v2_rare`` draws both.
_BATCH_READ = Struct(">Iqqqiq")
_BATCH_ANSWER = Struct(">IIiqqq")
_VERSION_WORD = 2 << 24


@dataclass(frozen=True, slots=True)
class Batch:
    """The answer to a read of several entries: its return code, and whole entries."""

    code: int
    entries: list[bytes]


class RawBookieClient(asyncio.Protocol):
    """One connection to a bookie; requests are numbered, answers come in any order."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[pb.Response | Batch]] = {}

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        whole = list(frames(self._rest))
        self._rest = self._rest[sum(map(len, whole)) :]
        for frame in whole:
            if is_v3(frame, FRAME_SIZE_BYTES, len(frame)):
                response = parse_response(frame[FRAME_SIZE_BYTES:])
                self._answered(response.header.txnId, response)
            else:
                number, batch = _batch_in(frame)
                self._answered(number, batch)

    def connection_lost(self, exc: Exception | None) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(str(exc or "it hung up")))

    # What may be asked; all of it raises ``OSError`` (``TimeoutError`` is one).

    async def ask(self, request: pb.Request) -> pb.Response:
        """What the bookie answers to a request, which gets a number."""
        number = self._next_number()
        request.header.txnId = number
        answer = await self._send(number, encode_frame(request))
        assert isinstance(answer, pb.Response)
        return answer

    async def read_batch(
        self,
        ledger_id: int,
        first_entry: int,
        *,
        count_max: int = 0,
        bytes_max: int,
        fence_key: bytes | None = None,
    ) -> Batch:
        """Entries from ``first_entry`` on; with ``fence_key`` the ledger is fenced before."""
        number = self._next_number()
        word = _VERSION_WORD | Operation.BATCH_READ << 16
        if fence_key is not None:
            word |= Flag.FENCING
        request = _BATCH_READ.pack(word, ledger_id, first_entry, number, count_max, bytes_max)
        request += fence_key or b""
        answer = await self._send(number, FRAME_SIZE.pack(len(request)) + request)
        assert isinstance(answer, Batch)
        return answer

    def ask_and_not_listen(self, ledger_id: int, times: int, bytes_max: int) -> None:
        """Ask for entries so often, and take no answer any more, as a client that hangs."""
        assert self._transport is not None
        self._transport.pause_reading()
        word = _VERSION_WORD | Operation.BATCH_READ << 16
        request = _BATCH_READ.pack(word, ledger_id, 0, self._next_number(), 0, bytes_max)
        self._transport.write((FRAME_SIZE.pack(len(request)) + request) * times)

    def close(self) -> None:
        """End the connection."""
        assert self._transport is not None
        self._transport.abort()

    def _next_number(self) -> int:
        self._asked += 1
        return self._asked

    async def _send(self, number: int, frame: bytes) -> pb.Response | Batch:
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionResetError("closed")
        answer: asyncio.Future[pb.Response | Batch] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._transport.write(frame)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await answer

    def _answered(self, number: int, answer: pb.Response | Batch) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


def _batch_in(frame: bytes) -> tuple[int, Batch]:
    """The number of an answer to a read of several entries, and what it says."""
    _, _, code, _, _, number = _BATCH_ANSWER.unpack_from(frame)
    entries: list[bytes] = []
    start = BATCH_ANSWER_BYTES
    while start < len(frame):
        (size,) = FRAME_SIZE.unpack_from(frame, start)
        start += FRAME_SIZE_BYTES
        entries.append(frame[start : start + size])
        start += size
    return number, Batch(code, entries)


@asynccontextmanager
async def connected(network: Network, bookie: str) -> AsyncGenerator[RawBookieClient]:
    """A connection to a bookie. Raises ``OSError``."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        _, client = await network.connect(RawBookieClient, bookie, BOOKIE_PORT)
    try:
        yield client
    finally:
        client.close()


def request_of(operation: pb.OperationType.ValueType) -> pb.Request:
    """A request without its body."""
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=0)
    return pb.Request(header=header)


def read_request(ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> pb.Request:
    """Give me an entry; with ``fence_key`` the ledger is fenced before."""
    request = request_of(pb.READ_ENTRY)
    asked = request.readRequest
    asked.ledgerId, asked.entryId = ledger_id, entry_id
    if fence_key is not None:
        asked.flag = pb.ReadRequest.FENCE_LEDGER
        asked.masterKey = fence_key
    return request


def add_request(ledger_id: int, entry_id: int, key: bytes, entry: Sequence[bytes]) -> pb.Request:
    """Store an entry, whose pieces these are."""
    request = request_of(pb.ADD_ENTRY)
    asked = request.addRequest
    asked.ledgerId, asked.entryId = ledger_id, entry_id
    asked.masterKey, asked.body = key, b"".join(entry)
    return request


def force_request(ledger_id: int) -> pb.Request:
    """Make durable what you have answered."""
    request = request_of(pb.FORCE_LEDGER)
    request.forceLedgerRequest.ledgerId = ledger_id
    return request


def room_request() -> pb.Request:
    """How much room do the disks have?"""
    request = request_of(pb.GET_BOOKIE_INFO)
    flags = pb.GetBookieInfoRequest
    request.getBookieInfoRequest.requested = flags.TOTAL_DISK_CAPACITY | flags.FREE_DISK_SPACE
    return request
