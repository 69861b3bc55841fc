"""How answers look: JSON as Pulsar's, and for every error its status and reason.

A refusal is ``{"reason": "…"}``, whose text admin tools show to people. Each application says which
status its errors get (``answer_errors``); a handler that must answer otherwise raises ``RestError``
itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.records.encodings.json_records import JsonRecord
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.coordination import CoordinationError
from geminga_runtime.errors import GemingaError
from geminga_server.errors import NotAuthorized, ServerUnreachable
from geminga_server.rest.errors import RestError, ServedElsewhere

log = logging.getLogger(__name__)

AnswerError = Callable[[Request, Exception], Awaitable[Response]]
Statuses = Mapping[type[GemingaError], int]

# The statuses of errors that every application may raise.
STATUSES: Statuses = {
    InvalidTopicName: 412,
    MalformedRecord: 400,
    NotAuthorized: 403,
    CoordinationError: 503,
    ServerUnreachable: 503,
}


class Json(Response):
    """JSON without spaces, characters as they are."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """The bytes of the body."""
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def json_record(record: JsonRecord) -> Response:
    """A record as it stands in ZooKeeper, which is also its form in REST."""
    return Response(record.encode(), media_type="application/json")


def text(value: str) -> Response:
    """A plain text, which upstream sends without quotes."""
    return Response(value, media_type="text/plain")


def no_content() -> Response:
    """The answer to a write that was done."""
    return Response(status_code=204)


def empty() -> Response:
    """The answer to a write for which upstream says 200, or to a read of an unset policy."""
    return Response(status_code=200)


def refusal(status: int, reason: str) -> Response:
    """The answer to a request that is refused."""
    return Json({"reason": reason}, status_code=status)


def answer_errors(
    statuses: Statuses, reasons: Mapping[type[GemingaError], str] | None = None
) -> AnswerError:
    """A handler that answers the errors of an application.

    ``statuses`` are by the class of the error, or a base of it; ``reasons`` replace an error's own
    text. An error of ours without a status is answered by 500 and logged; any other exception is
    answered by 500, and uvicorn logs it.
    """
    # An application may answer an error of all applications otherwise.
    known = {**STATUSES, **statuses}
    told = reasons or {}

    async def answer_error(request: Request, error: Exception) -> Response:
        match error:
            # 307, and not 302: the client has to repeat the method and the body.
            case ServedElsewhere():
                return Response(status_code=307, headers={"Location": error.location})
            case RestError():
                return refusal(error.status, error.reason)
            # The framework's own: no route, no such method.
            case HTTPException():
                return Json(
                    {"reason": error.detail}, status_code=error.status_code, headers=error.headers
                )
            case GemingaError():
                # The most derived class that has a status decides.
                status = next((known[kind] for kind in type(error).__mro__ if kind in known), 500)
                # An error that has no status was not foreseen: the log gets its trace.
                if status == 500:
                    log.error("request failed", exc_info=error, extra={"path": request.url.path})
                return refusal(status, told.get(type(error), str(error)))
            case _:
                return refusal(500, f"An unexpected error occurred in the server: {error!r}")

    return answer_error
