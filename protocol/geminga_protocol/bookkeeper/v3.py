"""BookKeeper's V3 requests and responses: protobuf messages, one a frame.

Tools and Java clients speak V3 by default; it has what V2 lacks (long poll of last-add-confirmed,
force, explicit last-add-confirmed). Here frames become messages and a request's answer gets its
shape; what is answered is the bookie's decision. Facts: ``BookkeeperProtocol.proto`` and the
``...ProcessorV3`` classes of Apache BookKeeper.
"""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import DecodeError

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FRAME_SIZE

# What a bookie without authentication calls its way of authenticating, in V2 and V3 alike.
AUTHENTICATION_DISABLED = pb.AuthMessage(authPluginName="AuthDisabledPlugin", payload=b"")

# What the body of an explicit last-add-confirmed begins with, whatever the ledger's digest:
# +-----------+----------------+--------+
# | ledger_id | last_confirmed | digest |
# |  i64      |  i64           |        |
# +-----------+----------------+--------+
EXPLICIT_LAC_IDS_BYTES = 16

_STATUS: dict[int, pb.StatusCode.ValueType] = {
    ReturnCode.EOK: pb.EOK,
    ReturnCode.ENOLEDGER: pb.ENOLEDGER,
    ReturnCode.ENOENTRY: pb.ENOENTRY,
    ReturnCode.EBADREQ: pb.EBADREQ,
    ReturnCode.EIO: pb.EIO,
    ReturnCode.EUA: pb.EUA,
    ReturnCode.EBADVERSION: pb.EBADVERSION,
    ReturnCode.EFENCED: pb.EFENCED,
    ReturnCode.EREADONLY: pb.EREADONLY,
    ReturnCode.ETOOMANYREQUESTS: pb.ETOOMANYREQUESTS,
    ReturnCode.EUNKNOWNLEDGERSTATE: pb.EUNKNOWNLEDGERSTATE,
}

# Where an operation's request and response stand in their messages.
_BODIES: dict[int, tuple[str, str]] = {
    pb.ADD_ENTRY: ("addRequest", "addResponse"),
    pb.READ_ENTRY: ("readRequest", "readResponse"),
    pb.WRITE_LAC: ("writeLacRequest", "writeLacResponse"),
    pb.READ_LAC: ("readLacRequest", "readLacResponse"),
    pb.FORCE_LEDGER: ("forceLedgerRequest", "forceLedgerResponse"),
    pb.GET_BOOKIE_INFO: ("getBookieInfoRequest", "getBookieInfoResponse"),
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: (
        "getListOfEntriesOfLedgerRequest",
        "getListOfEntriesOfLedgerResponse",
    ),
}
_WITH_ENTRY_ID = (pb.ADD_ENTRY, pb.READ_ENTRY)


class _Body(Protocol):
    """What the messages in a request or a response have in common, where they have it."""

    status: pb.StatusCode.ValueType
    ledgerId: int  # noqa: N815 the published name
    entryId: int  # noqa: N815 the same


def parse_request(frame: bytes) -> pb.Request:
    """Read a V3 request (a frame without its size). Raises ``WireError`` where it is none."""
    try:
        request = pb.Request.FromString(frame)
    except DecodeError as error:
        raise WireError("a frame that is neither a V2 nor a V3 request") from error
    if not request.header.IsInitialized():
        raise WireError("a V3 request without a whole header")
    return request


def parse_response(frame: bytes) -> pb.Response:
    """Read a V3 response (a frame without its size). Raises ``WireError`` where it is none."""
    try:
        response = pb.Response.FromString(frame)
    except DecodeError as error:
        raise WireError("a frame that is no V3 response") from error
    if not response.IsInitialized():
        # A status that is missing, or that we do not know, would read as EOK.
        raise WireError("a V3 response without all that it must have")
    return response


def encode_frame(message: pb.Request | pb.Response) -> bytes:
    """A whole message with its size."""
    content = message.SerializeToString()
    return FRAME_SIZE.pack(len(content)) + content


def status_of(return_code: int) -> pb.StatusCode.ValueType:
    """What V3 calls a V2 return code."""
    return _STATUS[return_code]


def has_body(request: pb.Request) -> bool:
    """Whether the request carries the message that its operation is about."""
    names = _BODIES.get(request.header.operation)
    return names is not None and request.HasField(names[0])  # type: ignore[arg-type]  # from a table


def ledger_of(request: pb.Request) -> int | None:
    """The ledger that a request with a body is about; None where it is about the bookie."""
    if request.header.operation == pb.GET_BOOKIE_INFO:
        return None
    return _body(request, _BODIES[request.header.operation][0]).ledgerId


def make_response(request: pb.Request, status: pb.StatusCode.ValueType = pb.EOK) -> pb.Response:
    """The answer to a request with a body: its header, the status twice, the ids asked for."""
    header = request.header
    response = pb.Response(status=status)
    response.header.version = pb.VERSION_THREE
    response.header.operation = header.operation
    response.header.txnId = header.txnId
    asked_name, answer_name = _BODIES[header.operation]
    answer = _body(response, answer_name)
    answer.status = status
    if header.operation != pb.GET_BOOKIE_INFO:
        asked = _body(request, asked_name)
        answer.ledgerId = asked.ledgerId
        if header.operation in _WITH_ENTRY_ID:
            answer.entryId = asked.entryId
    return response


def make_bare_response(request: pb.Request, status: pb.StatusCode.ValueType) -> pb.Response:
    """The answer to what is not served, or has no body: the header as it came, and a status."""
    return pb.Response(header=request.header, status=status)


def set_status(response: pb.Response, status: pb.StatusCode.ValueType) -> None:
    """Change the status of what ``make_response`` made, in both places."""
    response.status = status
    _body(response, _BODIES[response.header.operation][1]).status = status


def _body(message: pb.Request | pb.Response, name: str) -> _Body:
    body: _Body = getattr(message, name)
    return body
