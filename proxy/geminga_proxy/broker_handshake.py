"""The broker's side of a joined connection, until the broker has answered the client's CONNECT.

Nothing but CONNECT is sent to an address that has not answered as a broker does: a client could
otherwise make the proxy talk to any server that it reaches.
"""

from __future__ import annotations

import asyncio
from typing import cast

from geminga_protocol.errors import WireError
from geminga_protocol.framing import FrameReader
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import parse_command

# What brokers answer CONNECT with. An ERROR ends the connection, and is carried to the client too.
# A challenge goes to the client, too, whose answer comes through the splice.
FIRST_ANSWERS = frozenset({BaseCommand.CONNECTED, BaseCommand.AUTH_CHALLENGE, BaseCommand.ERROR})


class BrokerHandshake(asyncio.Protocol):
    """Sends ``connect`` and waits for the first frame of the answer."""

    def __init__(self, connect: bytes, *, frame_bytes_max: int) -> None:
        self._connect = connect
        self._transport: asyncio.Transport | None = None
        # The frames of a broker that answers CONNECT are small: a larger one is refused by its
        # size.
        self._frames = FrameReader(frame_bytes_max)
        # All that the broker has sent by then, of which the first frame answers CONNECT. Fails with
        # ``WireError`` where that is no broker's answer, with ``OSError`` where the broker hangs
        # up.
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        self._transport = cast("asyncio.Transport", transport)
        # The client's CONNECT, changed by the proxy (``ClientConnection._join``); all else waits
        # for the answer.
        self._transport.write(self._connect)

    def data_received(self, data: bytes) -> None:
        """Wait for a whole frame, and look at it."""
        assert self._transport is not None
        # After a failure: nothing that such a peer sends is of interest.
        if self.answer.done():
            return
        try:
            # Fed again with each read, until the first frame is whole.
            buffer, bounds = self._frames.feed(data)
            if not bounds:
                return
            # Only the first frame counts; what follows is passed on with it, unparsed.
            command, _ = parse_command(buffer, *bounds[0])
        except WireError as error:
            self._fail(error)
            return
        # The splice reads the rest, once it has the transport. In the same turn: a byte that came
        # later would be lost between two protocols.
        self._transport.pause_reading()
        if command.type in FIRST_ANSWERS:
            self.answer.set_result(buffer)
        else:
            self._fail(WireError("no broker answers CONNECT like that"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection."""
        # Where the answer is there, the splice finds the transport closing.
        if not self.answer.done():
            self._fail(exc or ConnectionResetError("the broker closed it"))

    def abort(self) -> None:
        """Give the connection up, if there is one."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.answer.set_exception(error)
        # The client may have gone, and its task with it: asyncio would report that the exception
        # was never retrieved.
        self.answer.exception()
