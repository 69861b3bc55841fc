"""Asks a bookie how much room it has: one GET_BOOKIE_INFO request.

Facts: ``BookieInfoReader`` and ``GetBookieInfoProcessorV3`` of Apache BookKeeper; bookies of both
kinds answer it.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_bookie.admin.one_question import ask
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_runtime.network import Network


@dataclass(frozen=True, slots=True)
class BookieSpace:
    """Of all ledger directories of a bookie together."""

    free_bytes: int
    total_bytes: int


async def ask_space(network: Network, bookie_id: str, address: tuple[str, int]) -> BookieSpace:
    """How much room the bookie at ``address`` has. Raises ``BookieUnavailable``."""
    response = await ask(network, bookie_id, address, _request())
    if response.status != pb.EOK or not response.HasField("getBookieInfoResponse"):
        raise BookieUnavailable(bookie_id, f"it answered with status {response.status}")
    info = response.getBookieInfoResponse
    return BookieSpace(info.freeDiskSpace, info.totalDiskCapacity)


def _request() -> pb.Request:
    wanted = pb.GetBookieInfoRequest
    request = pb.Request()
    request.header.operation = pb.GET_BOOKIE_INFO
    request.getBookieInfoRequest.requested = wanted.TOTAL_DISK_CAPACITY | wanted.FREE_DISK_SPACE
    return request
