"""Asks a bookie which entries of a ledger it has: one GET_LIST_OF_ENTRIES_OF_LEDGER request.

Facts: ``GetListOfEntriesOfLedgerProcessorV3`` of Apache BookKeeper; bookies of both kinds answer
it.
"""

from __future__ import annotations

from geminga_bookie.admin.one_question import ask
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import Run, decode_availability
from geminga_protocol.errors import WireError
from geminga_runtime.network import Network


async def ask_entry_list(
    network: Network, bookie_id: str, address: tuple[str, int], ledger_id: int
) -> list[Run]:
    """The runs of entries that the bookie at ``address`` has; none where it does not know the
    ledger. Raises ``BookieUnavailable``."""
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
