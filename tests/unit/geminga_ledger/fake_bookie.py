"""A bookie in memory that does what it is told, right or wrong, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.unit.geminga_ledger.fake_network import FakeNetwork, FakeTransport
from tests.unit.geminga_ledger.fake_v3 import FIRST_BYTE, FakeV3

from geminga_protocol.bookkeeper.codes import Flag, Operation, ReturnCode
from geminga_protocol.bookkeeper.v2 import (
    LAST_ENTRY,
    Request,
    encode_add_response,
    encode_read_response_header,
    parse_request,
)
from geminga_protocol.framing import FrameReader

Answer = tuple["_Session", int, int, int, bytes]


class FakeBookie:
    """Entries by ledger, fenced ledgers, and levers.

    ``refusals`` are return codes by operation, or by operation and entry. While ``is_holding``,
    requests are done and their answers kept in ``held`` until ``release``.
    """

    def __init__(self, bookie_id: str, network: FakeNetwork, port: int) -> None:
        self.bookie_id = bookie_id
        self.entries: dict[int, dict[int, bytes]] = {}
        self.master_keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.requests: list[Request] = []
        self.refusals: dict[Operation | tuple[Operation, int], ReturnCode] = {}
        self.held: list[Answer] = []
        self.is_holding = False
        self.is_silent = False
        self.sessions: list[_Session] = []
        self.v3 = FakeV3(self)
        self._network = network
        self._port = port
        self.start()

    def start(self, port: int | None = None) -> None:
        """Listen, with all that was stored; on another port if one is given."""
        self._port = port or self._port
        self._network.acceptors[self._port] = self._accept

    def kill(self) -> None:
        """Break all connections, accept none; answers that were held are lost."""
        self._network.acceptors.pop(self._port, None)
        self.held.clear()
        self.v3.waiting.clear()
        self.drop_connections()

    def drop_connections(self) -> None:
        sessions, self.sessions = self.sessions, []
        for session in sessions:
            session.transport.abort()

    def release(self, order: Callable[[list[Answer]], list[Answer]] = list) -> None:
        """Give the answers that were held, in the order wanted; one write a connection."""
        held, self.held = self.held, []
        by_session: dict[_Session, list[bytes]] = {}
        for session, operation, code, entry_id, body in order(held):
            frame = _encode(operation, code, session.ledger_of[operation, entry_id], entry_id, body)
            by_session.setdefault(session, []).append(frame)
        for session, frames in by_session.items():
            session.transport.write(b"".join(frames))

    def stored(self, ledger_id: int) -> list[int]:
        """Which entries of the ledger are here."""
        return sorted(self.entries.get(ledger_id, {}))

    def store(self, ledger_id: int, entry_id: int, entry: bytes, master_key: bytes) -> None:
        """Put an entry here, as if it had been added."""
        self.entries.setdefault(ledger_id, {})[entry_id] = entry
        self.master_keys[ledger_id] = master_key
        self.v3.news(ledger_id)

    def count(self, operation: Operation, flags: int = 0) -> int:
        """How many requests with these flags came."""
        return sum(each[0] == operation and each[1] & flags == flags for each in self.requests)

    def _accept(self) -> _Session:
        session = _Session(self)
        self.sessions.append(session)
        return session

    def handle(self, request: Request, entry: bytes) -> tuple[int, bytes]:
        """Do what was asked: the return code and the answer's body."""
        operation, flags, ledger_id, entry_id, master_key, _ = request
        kind = Operation(operation)
        refusal = self.refusals.get((kind, entry_id), self.refusals.get(kind))
        if refusal is not None:
            return refusal, b""
        if master_key is not None and self.master_keys.get(ledger_id, master_key) != master_key:
            return ReturnCode.EUA, b""
        if kind is Operation.ADD:
            if ledger_id in self.fenced and not flags & Flag.RECOVERY_ADD:
                return ReturnCode.EFENCED, b""
            assert master_key is not None
            self.store(ledger_id, entry_id, entry, master_key)
            return ReturnCode.EOK, b""
        if flags & Flag.FENCING:
            self.fenced.add(ledger_id)
        entries = self.entries.get(ledger_id)
        if not entries:
            return (ReturnCode.ENOLEDGER if entries is None else ReturnCode.ENOENTRY), b""
        wanted = max(entries) if entry_id == LAST_ENTRY else entry_id
        if wanted not in entries:
            return ReturnCode.ENOENTRY, b""
        return ReturnCode.EOK, entries[wanted]


class _Session(asyncio.Protocol):
    """One connection of a client; answers what came in one piece in one piece."""

    transport: FakeTransport

    def __init__(self, bookie: FakeBookie) -> None:
        self._bookie = bookie
        self._frames = FrameReader(1 << 23)
        self.ledger_of: dict[tuple[int, int], int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, FakeTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        bookie = self._bookie
        buffer, bounds = self._frames.feed(data)
        frames: list[bytes] = []
        for start, end in bounds:
            if buffer[start] == FIRST_BYTE:
                bookie.v3.take(buffer[start:end], self.transport.write)
                continue
            request = parse_request(buffer, start, end)
            operation, _, ledger_id, entry_id, _, body = request
            bookie.requests.append(request)
            if bookie.is_silent:
                continue
            code, answer = bookie.handle(request, buffer[body:end])
            if bookie.is_holding:
                self.ledger_of[operation, entry_id] = ledger_id
                bookie.held.append((self, operation, code, entry_id, answer))
            else:
                frames.append(_encode(operation, code, ledger_id, entry_id, answer))
        if frames:
            self.transport.write(b"".join(frames))


def _encode(operation: int, code: int, ledger_id: int, entry_id: int, body: bytes) -> bytes:
    if operation == Operation.ADD:
        return encode_add_response(code, ledger_id, entry_id)
    return encode_read_response_header(code, ledger_id, entry_id, len(body)) + body
