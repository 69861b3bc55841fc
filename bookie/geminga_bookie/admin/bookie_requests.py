"""One request to one bookie over V3, on a connection of its own: for tools, which ask rarely.

Facts: ``BookieInfoReader``, ``GetBookieInfoProcessorV3`` and
``GetListOfEntriesOfLedgerProcessorV3`` of Apache BookKeeper. Java's bookies answer all of them too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from geminga_ledger.connections.single_request import SingleRequest
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import Run, decode_availability
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_protocol.errors import WireError
from geminga_runtime.network import Network

# For connecting and the answer together.
ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class BookieSpace:
    """The room of all ledger directories of a bookie together."""

    free_bytes: int
    total_bytes: int


async def ask_space(network: Network, bookie_id: str, address: tuple[str, int]) -> BookieSpace:
    """Ask the bookie at ``address`` how much room it has. Raises ``BookieUnavailable``."""
    wanted = pb.GetBookieInfoRequest
    request = pb.Request()
    request.header.operation = pb.GET_BOOKIE_INFO
    request.getBookieInfoRequest.requested = wanted.TOTAL_DISK_CAPACITY | wanted.FREE_DISK_SPACE
    response = await ask(network, bookie_id, address, request)
    if response.status != pb.EOK or not response.HasField("getBookieInfoResponse"):
        raise BookieUnavailable(bookie_id, f"it answered with status {response.status}")
    info = response.getBookieInfoResponse
    return BookieSpace(info.freeDiskSpace, info.totalDiskCapacity)


async def ask_entry_list(
    network: Network, bookie_id: str, address: tuple[str, int], ledger_id: int
) -> list[Run]:
    """Ask the bookie at ``address`` which entries of a ledger it has, as runs of ids.

    There are none where the bookie does not know the ledger. Raises ``BookieUnavailable``.
    """
    request = pb.Request()
    request.header.operation = pb.GET_LIST_OF_ENTRIES_OF_LEDGER
    request.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
    response = await ask(network, bookie_id, address, request)
    if response.status == pb.ENOLEDGER:
        return []
    if response.status != pb.EOK or not response.HasField("getListOfEntriesOfLedgerResponse"):
        raise BookieUnavailable(bookie_id, f"it answered with status {response.status}")
    content = response.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger
    try:
        return decode_availability(content)
    except WireError as error:
        raise BookieUnavailable(bookie_id, str(error)) from error


async def ask(
    network: Network, bookie_id: str, address: tuple[str, int], request: pb.Request
) -> pb.Response:
    """Send ``request`` to the bookie at ``address``; return its answer, whatever the status.

    Fills in the header's version and transaction id. Raises ``BookieUnavailable``.
    """
    request.header.version = pb.VERSION_THREE
    # There is one request for each connection, so any id will do.
    request.header.txnId = 1
    connecting = partial(SingleRequest, encode_frame(request))
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            # The request goes out as soon as there is a connection (``SingleRequest``).
            transport, asking = await network.connect(connecting, *address)
            try:
                return await asking.answer
            finally:
                transport.close()
    except TimeoutError as error:
        raise BookieUnavailable(bookie_id, f"no answer within {ANSWER_TIMEOUT_S:g} s") from error
    except (OSError, UnicodeError, WireError) as error:
        raise BookieUnavailable(bookie_id, str(error)) from error
