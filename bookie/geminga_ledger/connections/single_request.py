"""One V3 request on a connection of its own: for tools, and to begin TLS.

BookKeeper's bookies speak TLS on their one port: a client sends START_TLS in plain text; once the
bookie has agreed, in plain text too, both sides begin the handshake on the same connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FrameReader
from geminga_runtime.network import Network

if TYPE_CHECKING:
    from ssl import SSLContext

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

# BookKeeper's bound of a frame (nettyMaxFrameSizeBytes), which a long list of entries may reach.
ANSWER_BYTES_MAX = 5 * 1024 * 1024


class SingleRequest(asyncio.Protocol):
    """Sends the request once it is connected; ``answer`` is the first frame that comes back.

    The answer fails with ``WireError`` where it is no V3 frame, and with ``ConnectionResetError``
    where the bookie hangs up instead.
    """

    def __init__(self, request: bytes) -> None:
        self.answer: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self._request = request
        self._frames = FrameReader(ANSWER_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request (``asyncio.Protocol``)."""
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take the answer, once it is whole (``asyncio.Protocol``)."""
        if self.answer.done():
            return  # one answer was asked for, or the asker has given up
        try:
            buffer, bounds = self._frames.feed(data)
            # The first frame is the answer. In START_TLS the bookie sends nothing more before our
            # handshake begins.
            if bounds:
                start, end = bounds[0]
                self.answer.set_result(parse_response(buffer[start:end]))
        except WireError as error:
            self.answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """There will be no answer (``asyncio.Protocol``)."""
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError(str(exc or "it hung up")))


async def connect_with_tls(
    network: Network,
    factory: Callable[[], ProtocolT],
    address: tuple[str, int],
    context: SSLContext,
) -> tuple[asyncio.Transport, ProtocolT]:
    """A connection to a bookie, secured before ``connection_made`` of its protocol is called.

    Raises ``OSError``, also where the bookie serves no TLS, and ``WireError``.
    """
    host, _ = address
    # Step 1, in plain text: ask for TLS.
    request = pb.Request()
    request.header.version = pb.VERSION_THREE
    request.header.operation = pb.START_TLS
    request.header.txnId = 1
    request.startTLSRequest.SetInParent()
    transport, start_tls = await network.connect(
        partial(SingleRequest, encode_frame(request)), *address
    )
    try:
        # Bounded by the dialer's timeout.
        answer = await start_tls.answer
        # Step 2: the handshake, over the same connection. The protocol that asked for TLS is
        # replaced.
        protocol = factory()
        secured = None
        if answer.status == pb.EOK:
            secured = await asyncio.get_running_loop().start_tls(
                transport, protocol, context, server_hostname=host
            )
    except BaseException:
        # Also when the caller's deadline passes: nothing else closes this connection.
        transport.abort()
        raise
    if secured is None:
        transport.abort()
        raise ConnectionRefusedError(
            f"the bookie serves no TLS (it answered START_TLS with status {answer.status})"
        )
    # asyncio calls it for a new connection only, not after an upgrade.
    protocol.connection_made(secured)
    return secured, protocol
