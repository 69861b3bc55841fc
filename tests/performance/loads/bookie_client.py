"""A client that loads one bookie over V2, ours or another: adds and reads, so many outstanding.

Cheap enough to keep a bookie busy from one core: what it sends is made before, or in one go, and of
what comes it looks at the return codes. It knows nothing of ledgers' metadata, quorums or digests.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import TypeVar

from tests.performance.loads.measure import LoadFailed

from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.bookkeeper.digest import EMPTY_PASSWORD_MASTER_KEY
from geminga_protocol.bookkeeper.v2 import encode_add_header, encode_read
from geminga_protocol.framing import FrameReader

HOST = "127.0.0.1"
LOAD_S_MAX = 180.0
FRAME_BYTES_MAX = 64 * 1024 * 1024
# New requests go out when there is room for so many, or for a window's: one write for all.
BURST = 64
TICK_S = 0.001

# An entry begins with its ledger id, entry id, last-add-confirmed, length and digest. A bookie
# looks at no more than the first three.
ENTRY_HEADER = Struct(">qqqqI")
# An answer, its size not counted, begins with a header word and the return code.
RETURN_CODE = Struct(">4xi")
# As ``v2_rare`` draws it, with its size in front.
BATCH_READ = Struct(">IIqqqiq")
BATCH_READ_WORD = 2 << 24 | Operation.BATCH_READ << 16

# ledger id, entry id
EntryAddress = tuple[int, int]


class RequestRefused(LoadFailed):
    """The bookie answered with something else than a success."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the bookie answered with return code {code}")
        self.code = code


class _Client(asyncio.Protocol):
    """Sends requests, counts answers in the order in which they come."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer_bytes = 0
        # When each burst was sent, with how many requests were sent by then; then how long it took.
        self.latencies_ms: list[float] = []
        self._bursts: deque[tuple[int, float]] = deque()
        self._sent = self._answered = 0
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is one
        self._more()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("the bookie hung up"))

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        buffer, bounds = self._frames.feed(data)
        code_of = RETURN_CODE.unpack_from
        for start, _ in bounds:
            (code,) = code_of(buffer, start)
            if code != ReturnCode.EOK:
                self.done.set_exception(RequestRefused(code))
                return
        if bounds:
            self.answer_bytes += bounds[-1][1] - bounds[0][0]
            self._answered += len(bounds)
            now_s = time.perf_counter()
            while self._bursts and self._bursts[0][0] <= self._answered:
                self.latencies_ms.append((now_s - self._bursts.popleft()[1]) * 1e3)
            self._more()

    def _send(self, requests: Sequence[bytes], count: int) -> None:
        self._sent += count
        self._bursts.append((self._sent, time.perf_counter()))
        assert self._transport is not None
        self._transport.write(b"".join(requests))

    @abstractmethod
    def _more(self) -> None:
        """Send what there is room for; say when all is done."""


class _Adds(_Client):
    """Adds the entries 0 to ``entries`` - 1 to a new ledger, so many outstanding.

    With a ``rate`` (a second, 0 for none) they are sent every millisecond, window or not.
    """

    def __init__(
        self, ledger_id: int, entries: int, entry_bytes: int, *, window: int, rate: int
    ) -> None:
        super().__init__()
        self._ledger_id = ledger_id
        self._entries = entries
        self._window = window
        self._rate = rate
        self._header = encode_add_header(EMPTY_PASSWORD_MASTER_KEY, entry_bytes)
        self._payload = os.urandom(entry_bytes - ENTRY_HEADER.size)
        self._started_s = 0.0

    def _more(self) -> None:
        if self._answered == self._entries:
            self.done.set_result(None)
        elif self._rate:
            if not self._started_s:
                self._started_s = time.perf_counter()
                self._tick()
        else:
            left = self._entries - self._sent
            room = min(self._window - (self._sent - self._answered), left)
            if room and room >= min(BURST, self._window, left):
                self._add(room)

    def _tick(self) -> None:
        due = min(int((time.perf_counter() - self._started_s) * self._rate) + 1, self._entries)
        if due > self._sent:
            self._add(due - self._sent)
        if due < self._entries:
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _add(self, count: int) -> None:
        requests: list[bytes] = []
        for entry_id in range(self._sent, self._sent + count):
            requests.append(self._header)
            requests.append(ENTRY_HEADER.pack(self._ledger_id, entry_id, entry_id - 1, 0, 0))
            requests.append(self._payload)
        self._send(requests, count)


class _Requests(_Client):
    """Sends ready-made requests, so many outstanding."""

    def __init__(self, requests: Iterator[bytes], *, window: int) -> None:
        super().__init__()
        self._requests = requests
        self._window = window

    def _more(self) -> None:
        requests = list(islice(self._requests, self._window - (self._sent - self._answered)))
        if requests:
            self._send(requests, len(requests))
        elif self._sent == self._answered:
            self.done.set_result(None)


ClientT = TypeVar("ClientT", bound=_Client)


async def _run(port: int, make: Callable[[], ClientT]) -> ClientT:
    transport, client = await asyncio.get_running_loop().create_connection(make, HOST, port)
    try:
        await asyncio.wait_for(client.done, LOAD_S_MAX)
    finally:
        transport.close()
    return client


async def add(
    port: int, ledger_id: int, entries: int, entry_bytes: int, *, window: int = 1, rate: int = 0
) -> list[float]:
    """Add entries to a new ledger; the milliseconds that each burst of them took."""
    client = await _run(
        port, lambda: _Adds(ledger_id, entries, entry_bytes, window=window, rate=rate)
    )
    return client.latencies_ms


async def read(port: int, addresses: Sequence[EntryAddress], *, window: int = 1) -> list[float]:
    """Read entries, each with a request of its own; the milliseconds that each burst took."""
    requests = (encode_read(*address) for address in addresses)
    return (await _run(port, lambda: _Requests(requests, window=window))).latencies_ms


async def read_batches(
    port: int, ledger_id: int, entries: int, *, batch_entries: int, window: int
) -> int:
    """Read a ledger's first entries, so many with each request; the bytes that came."""
    requests = (
        BATCH_READ.pack(
            BATCH_READ.size - 4,
            *(BATCH_READ_WORD, ledger_id, first_entry, first_entry),
            *(batch_entries, FRAME_BYTES_MAX),
        )
        for first_entry in range(0, entries, batch_entries)
    )
    return (await _run(port, lambda: _Requests(requests, window=window))).answer_bytes
