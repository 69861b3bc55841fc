"""How answers look: JSON as Pulsar's, and for every error its status and reason.

A refusal is ``{"reason": "…"}``, whose text admin tools show to people. Which status the errors of
an application get is its own to say (``answer_errors``); a handler that must answer otherwise
raises ``RestError`` itself.
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

# What every application answers so.
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
    """A bare text, which upstream sends without quotes."""
    return Response(value, media_type="text/plain")


def no_content() -> Response:
    """A write that was done."""
    return Response(status_code=204)


def empty() -> Response:
    """A write that was done where upstream says 200, or a policy that is not set."""
    return Response(status_code=200)


def refusal(status: int, reason: str) -> Response:
    """Why not."""
    return Json({"reason": reason}, status_code=status)


def answer_errors(
    statuses: Statuses, reasons: Mapping[type[GemingaError], str] | None = None
) -> AnswerError:
    """What answers the errors that handlers raise.

    ``statuses`` are those of the application's errors and of what descends from them, ``reasons``
    what is told instead of an error's own text. An error of ours without a status is an answer 500
    and an event in the log, as any other exception is an answer 500.
    """
    known = {**STATUSES, **statuses}
    told = reasons or {}

    async def answer_error(request: Request, error: Exception) -> Response:
        match error:
            case ServedElsewhere():
                return Response(status_code=307, headers={"Location": error.location})
            case RestError():
                return refusal(error.status, error.reason)
            case HTTPException():
                return Json(
                    {"reason": error.detail}, status_code=error.status_code, headers=error.headers
                )
            case GemingaError():
                status = next((known[kind] for kind in type(error).__mro__ if kind in known), 500)
                if status == 500:
                    log.error("request failed", exc_info=error, extra={"path": request.url.path})
                return refusal(status, told.get(type(error), str(error)))
            case _:
                return refusal(500, f"An unexpected error occurred in the server: {error!r}")

    return answer_error
