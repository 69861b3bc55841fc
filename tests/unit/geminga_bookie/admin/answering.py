"""A stand-in for a bookie that gives one answer, whatever it is asked."""

from __future__ import annotations

import asyncio

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_runtime.network import Network
from geminga_simulation.world import World

ADDRESS = ("server", 3181)


def response_of(
    operation: pb.OperationType.ValueType, status: pb.StatusCode.ValueType
) -> pb.Response:
    """An answer without content."""
    response = pb.Response()
    response.header.version = pb.VERSION_THREE
    response.header.operation = operation
    response.header.txnId = 1
    response.status = status
    return response


class Answering(asyncio.Protocol):
    """Sends the response to each client that connects."""

    def __init__(self, response: pb.Response) -> None:
        self._response = response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer, before it was asked."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(encode_frame(self._response))


async def client_of(world: World, response: pb.Response) -> Network:
    """A network on which ``ADDRESS`` answers so."""
    await world.host("server").network.listen(lambda: Answering(response), *ADDRESS)
    return world.host("client").network
