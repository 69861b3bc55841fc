"""Asks a bookie how much room it has: one GET_BOOKIE_INFO request over V3, on its own connection.

Facts: ``BookieInfoReader`` and ``GetBookieInfoProcessorV3`` of Apache BookKeeper; bookies of both
kinds answer it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

from magnetar_ledger.errors import BookieUnavailable
from magnetar_protocol.bookkeeper import requests_pb2 as pb
from magnetar_protocol.bookkeeper.v3 import encode_frame, parse_response
from magnetar_protocol.errors import WireError
from magnetar_protocol.framing import FrameReader
from magnetar_runtime.network import Network

ANSWER_TIMEOUT_S = 5.0
# The answer is some 40 bytes.
ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class BookieSpace:
    """Of all ledger directories of a bookie together."""

    free_bytes: int
    total_bytes: int


async def ask_space(network: Network, bookie_id: str, address: tuple[str, int]) -> BookieSpace:
    """How much room the bookie at ``address`` has. Raises ``BookieUnavailable``."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            transport, asking = await network.connect(_Asking, *address)
            try:
                response = await asking.answer
            finally:
                transport.close()
    except TimeoutError as error:
        raise BookieUnavailable(bookie_id, f"no answer within {ANSWER_TIMEOUT_S:g} s") from error
    except (OSError, UnicodeError, WireError) as error:
        raise BookieUnavailable(bookie_id, str(error)) from error
    if response.status != pb.EOK or not response.HasField("getBookieInfoResponse"):
        raise BookieUnavailable(bookie_id, f"it answered with status {response.status}")
    info = response.getBookieInfoResponse
    return BookieSpace(info.freeDiskSpace, info.totalDiskCapacity)


def _request() -> bytes:
    wanted = pb.GetBookieInfoRequest
    request = pb.Request()
    request.header.version = pb.VERSION_THREE
    request.header.operation = pb.GET_BOOKIE_INFO
    request.header.txnId = 1
    request.getBookieInfoRequest.requested = wanted.TOTAL_DISK_CAPACITY | wanted.FREE_DISK_SPACE
    return encode_frame(request)


class _Asking(asyncio.Protocol):
    """Sends the request when it is connected; ``answer`` is the first frame that comes back."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self._frames = FrameReader(ANSWER_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        # By its type uvloop's is none of asyncio's.
        cast("asyncio.Transport", transport).write(_request())

    def data_received(self, data: bytes) -> None:
        """Take the answer, once it is whole."""
        if self.answer.done():
            return
        try:
            buffer, bounds = self._frames.feed(data)
            if bounds:
                start, end = bounds[0]
                self.answer.set_result(parse_response(buffer[start:end]))
        except WireError as error:
            self.answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """There will be no answer."""
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError(str(exc or "it hung up")))
