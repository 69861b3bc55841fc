"""Asks a bookie one thing over V3, on a connection of its own: for tools, which ask rarely."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FrameReader
from geminga_runtime.network import Network

ANSWER_TIMEOUT_S = 5.0
# BookKeeper's bound of a frame (nettyMaxFrameSizeBytes), which a long list of entries may reach.
ANSWER_BYTES_MAX = 5 * 1024 * 1024


async def ask(
    network: Network, bookie_id: str, address: tuple[str, int], request: pb.Request
) -> pb.Response:
    """What the bookie at ``address`` answers, whatever its status. Raises ``BookieUnavailable``."""
    request.header.version = pb.VERSION_THREE
    request.header.txnId = 1
    connecting = partial(_Asking, encode_frame(request))
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            transport, asking = await network.connect(connecting, *address)
            try:
                return await asking.answer
            finally:
                transport.close()
    except TimeoutError as error:
        raise BookieUnavailable(bookie_id, f"no answer within {ANSWER_TIMEOUT_S:g} s") from error
    except (OSError, UnicodeError, WireError) as error:
        raise BookieUnavailable(bookie_id, str(error)) from error


class _Asking(asyncio.Protocol):
    """Sends the request when it is connected; ``answer`` is the first frame that comes back."""

    def __init__(self, request: bytes) -> None:
        self.answer: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self._request = request
        self._frames = FrameReader(ANSWER_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        # By its type uvloop's is none of asyncio's.
        cast("asyncio.Transport", transport).write(self._request)

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
