"""Asks a bookie one thing over V3, on a connection of its own: for tools, which ask rarely."""

from __future__ import annotations

import asyncio
from functools import partial

from geminga_ledger.connections.single_request import SingleRequest
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_protocol.errors import WireError
from geminga_runtime.network import Network

ANSWER_TIMEOUT_S = 5.0


async def ask(
    network: Network, bookie_id: str, address: tuple[str, int], request: pb.Request
) -> pb.Response:
    """What the bookie at ``address`` answers, whatever its status. Raises ``BookieUnavailable``."""
    request.header.version = pb.VERSION_THREE
    request.header.txnId = 1
    connecting = partial(SingleRequest, encode_frame(request))
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
