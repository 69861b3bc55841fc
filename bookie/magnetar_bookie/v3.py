"""V3 requests: told apart from V2, refused with an answer that V3 clients understand.

Serving them (long-poll of last-add-confirmed, force, explicit last-add-confirmed) is later work.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from magnetar_protocol.bookkeeper.requests_pb2 import EBADVERSION, Request, Response
from magnetar_protocol.errors import WireError
from magnetar_protocol.framing import FRAME_SIZE


def refuse_v3(frame: bytes) -> bytes:
    """The answer, with its size, to the V3 request ``frame``: this version is not spoken.

    Raises ``WireError`` where the frame is no V3 request.
    """
    try:
        request = Request.FromString(frame)
    except DecodeError as error:
        raise WireError("a frame that is neither a V2 nor a V3 request") from error
    if not request.header.IsInitialized():
        raise WireError("a V3 request without a whole header")
    response = Response(header=request.header, status=EBADVERSION).SerializeToString()
    return FRAME_SIZE.pack(len(response)) + response
