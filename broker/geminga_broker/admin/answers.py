"""How answers look: JSON as Pulsar's, and for every error its status and reason.

A refusal is ``{"reason": "…"}``, whose text admin tools show to people. Errors that have a meaning
of their own in REST get their status here; a handler that must answer otherwise raises
``RestError`` itself.
"""

from __future__ import annotations

import json
import logging

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from geminga_broker.admin.errors import RestError, ServedElsewhere
from geminga_broker.errors import (
    NotAllowed,
    ServiceNotReady,
    StorageUnavailable,
    SubscriptionNotFound,
    TopicBusy,
    TopicExists,
    TopicFenced,
    TopicNotFound,
)
from geminga_broker.metadata.errors import (
    ClusterExists,
    ClusterNotFound,
    NamespaceExists,
    NamespaceNotFound,
    PartitionedTopicNotFound,
    TenantExists,
    TenantNotEmpty,
    TenantNotFound,
    TooFewPartitions,
)
from geminga_broker.ownership.errors import InvalidBundles, NotOwned
from geminga_broker.policies.errors import ConflictingPolicies, InvalidPolicy
from geminga_broker.schemas.errors import IncompatibleSchema, InvalidSchema, SchemaNotFound
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.json_records import JsonRecord
from geminga_runtime.coordination import CoordinationError
from geminga_runtime.errors import GemingaError
from geminga_server.errors import NotAuthorized

log = logging.getLogger(__name__)

_STATUS: dict[type[GemingaError], int] = {
    TopicNotFound: 404,
    SubscriptionNotFound: 404,
    NamespaceNotFound: 404,
    TenantNotFound: 404,
    ClusterNotFound: 404,
    PartitionedTopicNotFound: 404,
    SchemaNotFound: 404,
    TopicExists: 409,
    NamespaceExists: 409,
    TenantExists: 409,
    TenantNotEmpty: 409,
    ClusterExists: 409,
    IncompatibleSchema: 409,
    TopicBusy: 412,
    InvalidTopicName: 412,
    TooFewPartitions: 422,
    InvalidSchema: 422,
    ConflictingPolicies: 412,
    InvalidBundles: 400,
    InvalidPolicy: 400,
    MalformedRecord: 400,
    NotAllowed: 405,
    NotAuthorized: 403,
    NotOwned: 503,
    TopicFenced: 503,
    StorageUnavailable: 503,
    ServiceNotReady: 503,
    CoordinationError: 503,
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


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer for an error that a handler raised."""
    match error:
        case ServedElsewhere():
            return Response(status_code=307, headers={"Location": error.location})
        case RestError():
            return refusal(error.status, error.reason)
        case TopicExists():
            return refusal(409, "This topic already exists")
        case HTTPException():
            return Json(
                {"reason": error.detail}, status_code=error.status_code, headers=error.headers
            )
        case GemingaError():
            status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
            if status == 500:
                log.error("request failed", exc_info=error, extra={"path": request.url.path})
            return refusal(status, str(error))
        case _:
            return refusal(500, f"An unexpected error occurred in the server: {error!r}")
