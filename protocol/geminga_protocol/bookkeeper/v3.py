"""BookKeeper's V3 requests and responses: protobuf messages, one in each frame.

Tools and Java clients speak V3 by default, and only V3 has the long poll for newly confirmed
entries, the explicit last-add-confirmed (LAC: the last entry of a ledger that readers may read)
and the forced sync of a ledger. This module parses frames and makes the response to a request with
its ids and its status; the bookie fills in the rest. Facts: ``BookkeeperProtocol.proto`` and the
``...ProcessorV3`` classes of Apache BookKeeper.
"""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import DecodeError

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FRAME_SIZE

# The answer of a bookie without authentication to a request to authenticate, in V2 and V3 alike.
AUTHENTICATION_DISABLED = pb.AuthMessage(authPluginName="AuthDisabledPlugin", payload=b"")

# The body of an explicit LAC begins with two ids, followed by a digest of the ledger's digest type:
# +-----------+----------------+--------+
# | ledger_id | last_confirmed | digest |
# |  i64      |  i64           |        |
# +-----------+----------------+--------+
EXPLICIT_LAC_IDS_BYTES = 16

# The V3 status of each V2 return code; only the names agree.
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

# By operation: the field of ``Request`` and the field of ``Response`` with its content, its bodies.
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
# The other answers name the ledger alone.
_WITH_ENTRY_ID = (pb.ADD_ENTRY, pb.READ_ENTRY)


class _Body(Protocol):
    """The fields that most bodies share."""

    status: pb.StatusCode.ValueType
    # The names are those of BookkeeperProtocol.proto.
    ledgerId: int  # noqa: N815
    entryId: int  # noqa: N815


def parse_request(frame: bytes) -> pb.Request:
    """Read a V3 request (a frame without its size). Raises ``WireError`` for other bytes."""
    try:
        request = pb.Request.FromString(frame)
    except DecodeError as error:
        raise WireError("a frame that is neither a V2 nor a V3 request") from error
    # The rest is checked by who serves it: each operation needs other fields.
    if not request.header.IsInitialized():
        raise WireError("a V3 request without a whole header")
    return request


def parse_response(frame: bytes) -> pb.Response:
    """Read a V3 response (a frame without its size). Raises ``WireError`` for other bytes."""
    try:
        response = pb.Response.FromString(frame)
    except DecodeError as error:
        raise WireError("a frame that is no V3 response") from error
    if not response.IsInitialized():
        # Protobuf reads an enum that is missing, or has an unknown value, as its first: EOK. To a
        # writer that would confirm an entry which the bookie may have refused.
        raise WireError("a V3 response without all that it must have")
    return response


def encode_frame(message: pb.Request | pb.Response) -> bytes:
    """A whole frame: the message behind its size."""
    content = message.SerializeToString()
    return FRAME_SIZE.pack(len(content)) + content


def status_of(return_code: int) -> pb.StatusCode.ValueType:
    """The V3 status of a V2 return code."""
    return _STATUS[return_code]


def has_body(request: pb.Request) -> bool:
    """Whether the request has the body that its operation needs."""
    names = _BODIES.get(request.header.operation)
    # An operation without a row in ``_BODIES`` (authentication, START_TLS, or one of a newer
    # version) has no body that the bookie could serve.
    return names is not None and request.HasField(names[0])  # type: ignore[arg-type]  # from a table


def ledger_of(request: pb.Request) -> int | None:
    """The ledger of a request with a body; None for a request about the bookie itself."""
    if request.header.operation == pb.GET_BOOKIE_INFO:
        return None
    return _body(request, _BODIES[request.header.operation][0]).ledgerId


def make_response(request: pb.Request, status: pb.StatusCode.ValueType = pb.EOK) -> pb.Response:
    """The response to a request with a body: header, ids, and ``status`` in both of its places."""
    header = request.header
    response = pb.Response(status=status)
    response.header.version = pb.VERSION_THREE
    response.header.operation = header.operation
    # By it the client finds the request that is answered: answers come in any order.
    response.header.txnId = header.txnId
    asked_name, answer_name = _BODIES[header.operation]
    # Both statuses are set: upstream's clients believe the one in the body where the outer one is
    # EOK, and the outer one otherwise.
    answer = _body(response, answer_name)
    answer.status = status
    if header.operation != pb.GET_BOOKIE_INFO:
        asked = _body(request, asked_name)
        answer.ledgerId = asked.ledgerId
        if header.operation in _WITH_ENTRY_ID:
            answer.entryId = asked.entryId
    return response


def make_bare_response(request: pb.Request, status: pb.StatusCode.ValueType) -> pb.Response:
    """The response to a request that is not served or has no body: its header and a status."""
    return pb.Response(header=request.header, status=status)


def set_status(response: pb.Response, status: pb.StatusCode.ValueType) -> None:
    """Change the status of a response of ``make_response``, in both of its places."""
    response.status = status
    _body(response, _BODIES[response.header.operation][1]).status = status


def _body(message: pb.Request | pb.Response, name: str) -> _Body:
    body: _Body = getattr(message, name)
    return body
