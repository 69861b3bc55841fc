"""The V3 requests of the ledger client and of auto-recovery, for what V2 does not have.

These are the long poll for newly confirmed entries, the explicit last-add-confirmed (LAC), and the
list of a ledger's entries. The connection that sends a request sets its transaction id. Facts:
``PerChannelBookieClient`` and ``DigestManager`` of Apache BookKeeper; the bytes of an explicit LAC
are equal to theirs in a ledger with CRC32C.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY
from geminga_protocol.bookkeeper.v3 import EXPLICIT_LAC_IDS_BYTES, status_of

# +-----------+----------------+--------+
# | ledger_id | last_confirmed | crc32c |      of the 16 bytes before it
# |  i64      |  i64           |  u32   |
# +-----------+----------------+--------+
_LAC_IDS = Struct(">qq")
_LAC_DIGEST = Struct(">I")
assert _LAC_IDS.size == EXPLICIT_LAC_IDS_BYTES

# The inverse of ``v3.status_of``.
_RETURN_CODES = {int(status_of(code)): code for code in ReturnCode}


def long_poll_request(ledger_id: int, previous_lac: int, timeout_ms: int) -> pb.Request:
    """Wait until an entry behind ``previous_lac`` is confirmed, then return the LAC and that entry.

    After ``timeout_ms`` the bookie answers without an entry.
    """
    request = _request(pb.READ_ENTRY)
    asked = request.readRequest
    asked.flag = pb.ReadRequest.ENTRY_PIGGYBACK
    asked.ledgerId = ledger_id
    asked.entryId = LAST_ENTRY
    asked.previousLAC = previous_lac
    asked.timeOut = timeout_ms
    return request


def read_lac_request(ledger_id: int) -> pb.Request:
    """Ask for the explicit LAC that the writer stored, and for the newest entry."""
    request = _request(pb.READ_LAC)
    request.readLacRequest.ledgerId = ledger_id
    return request


def write_lac_request(ledger_id: int, last_confirmed: int, master_key: bytes) -> pb.Request:
    """Store the LAC of a ledger without an entry: its writer has no further entry to carry it."""
    request = _request(pb.WRITE_LAC)
    asked = request.writeLacRequest
    asked.ledgerId = ledger_id
    asked.lac = last_confirmed
    asked.masterKey = master_key
    asked.body = encode_explicit_lac(ledger_id, last_confirmed)
    return request


def list_entries_request(ledger_id: int) -> pb.Request:
    """Ask which entries of the ledger the bookie has."""
    request = _request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER)
    request.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
    return request


def encode_explicit_lac(ledger_id: int, last_confirmed: int) -> bytes:
    """The 20 bytes of an explicit LAC in a ledger with CRC32C; bookies store them unread."""
    ids = _LAC_IDS.pack(ledger_id, last_confirmed)
    return ids + _LAC_DIGEST.pack(crc32c(ids))


def return_code_of(status: int) -> ReturnCode:
    """The V2 return code of a V3 status; EBADREQ for a status that is not known."""
    return _RETURN_CODES.get(status, ReturnCode.EBADREQ)


def _request(operation: pb.OperationType.ValueType) -> pb.Request:
    # 0 is a placeholder: see the module.
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=0)
    return pb.Request(header=header)
