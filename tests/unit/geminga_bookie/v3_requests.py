"""V3 requests as clients make them, and a client that speaks V3 with a bookie in memory."""

from __future__ import annotations

import asyncio
from struct import Struct

from crc32c import crc32c
from tests.unit.geminga_bookie.fakes import KEY, Client, make_entry

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response

RECOVERY = pb.AddRequest.RECOVERY_ADD
FENCE = pb.ReadRequest.FENCE_LEDGER
PIGGYBACK = pb.ReadRequest.ENTRY_PIGGYBACK
_LAC = Struct(">qq")


def request(
    operation: pb.OperationType.ValueType,
    *,
    txn_id: int = 7,
    priority: int | None = None,
    version: pb.ProtocolVersion.ValueType = pb.VERSION_THREE,
) -> pb.Request:
    """A request without a body."""
    header = pb.BKPacketHeader(version=version, operation=operation, txnId=txn_id)
    if priority is not None:
        header.priority = priority
    return pb.Request(header=header)


def add(
    ledger_id: int,
    entry_id: int,
    *,
    key: bytes = KEY,
    body: bytes | None = None,
    flag: pb.AddRequest.Flag.ValueType | None = None,
    priority: int | None = None,
    write_flags: int | None = None,
) -> pb.Request:
    """A request to add the entry that ``make_entry`` makes, or ``body``."""
    made = request(pb.ADD_ENTRY, txn_id=entry_id & 0xFFFF, priority=priority)
    made.addRequest.ledgerId = ledger_id
    made.addRequest.entryId = entry_id
    made.addRequest.masterKey = key
    made.addRequest.body = make_entry(ledger_id, entry_id) if body is None else body
    if flag is not None:
        made.addRequest.flag = flag
    if write_flags is not None:
        made.addRequest.writeFlags = write_flags
    return made


def read(
    ledger_id: int,
    entry_id: int,
    *,
    flag: pb.ReadRequest.Flag.ValueType | None = None,
    key: bytes | None = None,
) -> pb.Request:
    """A request to read an entry."""
    made = request(pb.READ_ENTRY)
    made.readRequest.ledgerId = ledger_id
    made.readRequest.entryId = entry_id
    if flag is not None:
        made.readRequest.flag = flag
    if key is not None:
        made.readRequest.masterKey = key
    return made


def poll(ledger_id: int, previous_lac: int, timeout_ms: int = 1000) -> pb.Request:
    """A request to wait till more than ``previous_lac`` is confirmed."""
    made = read(ledger_id, -1, flag=PIGGYBACK)
    made.readRequest.previousLAC = previous_lac
    made.readRequest.timeOut = timeout_ms
    return made


def explicit_lac(ledger_id: int, lac: int) -> bytes:
    """The body of an explicit last-add-confirmed."""
    ids = _LAC.pack(ledger_id, lac)
    return ids + int(crc32c(ids)).to_bytes(4, "big")


def write_lac(
    ledger_id: int, lac: int, *, key: bytes = KEY, body: bytes | None = None
) -> pb.Request:
    """A request to keep an explicit last-add-confirmed."""
    made = request(pb.WRITE_LAC)
    made.writeLacRequest.ledgerId = ledger_id
    made.writeLacRequest.lac = lac
    made.writeLacRequest.masterKey = key
    made.writeLacRequest.body = explicit_lac(ledger_id, lac) if body is None else body
    return made


def read_lac(ledger_id: int) -> pb.Request:
    """A request for the explicit last-add-confirmed and the last entry."""
    made = request(pb.READ_LAC)
    made.readLacRequest.ledgerId = ledger_id
    return made


def force(ledger_id: int) -> pb.Request:
    """A request to make everything of the ledger durable."""
    made = request(pb.FORCE_LEDGER)
    made.forceLedgerRequest.ledgerId = ledger_id
    return made


def list_entries(ledger_id: int) -> pb.Request:
    """A request for which entries are there."""
    made = request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER)
    made.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
    return made


def bookie_info(requested: int) -> pb.Request:
    """A request for disk space."""
    made = request(pb.GET_BOOKIE_INFO)
    made.getBookieInfoRequest.requested = requested
    return made


class V3Client:
    """A client's end of a connection that speaks V3."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def send(self, *requests: pb.Request) -> None:
        """Send requests in one piece."""
        self.client.send(*map(encode_frame, requests))

    def taken(self) -> list[pb.Response]:
        """The answers that came since the last call."""
        return list(map(parse_response, self.client.taken_frames()))

    async def answers(self, count: int) -> list[pb.Response]:
        """The next ``count`` answers, as soon as they are there."""
        answers: list[pb.Response] = []
        for _ in range(1000):
            answers += self.taken()
            if len(answers) >= count:
                return answers
            # In virtual time: lets whatever is under way come to its end.
            await asyncio.sleep(0.01)
        raise AssertionError(f"{len(answers)} answers, where {count} are awaited")

    async def ask(self, asked: pb.Request) -> pb.Response:
        """Send a request, wait for its answer."""
        self.send(asked)
        (answer,) = await self.answers(1)
        return answer

    async def status(self, asked: pb.Request) -> str:
        """Send a request, wait for its answer, say how it ended."""
        return pb.StatusCode.Name((await self.ask(asked)).status)
