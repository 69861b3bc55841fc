"""``/admin/v2/schemas``: the versions of a topic's schema; upload, compare, delete.

Any broker answers: schemas are stored apart from the topics that brokers own. An incompatible or
invalid schema is refused in the same way by all calls: upstream does so for uploads, and answers
comparisons with 500 and a stack trace.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.routes.topic.topics import require_namespace
from geminga_broker.admin.services import Services
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas.errors import InvalidSchema
from geminga_broker.schemas.rules.definitions import (
    Schema,
    key_and_value,
    pair_definition,
    schema_type,
)
from geminga_broker.schemas.storage import StoredSchema
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.schemas import SchemaIndex
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json, empty
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import TopicArg, flag, integer_in_path, object_body

router = APIRouter(prefix="/admin/v2/schemas/{tenant}/{namespace}/{topic}")

# Upstream's number for a version that does not exist.
NO_VERSION = -1


@router.get("/schema", dependencies=[on_topic(Action.READ)])
async def get_schema(topic: TopicArg, services: ServicesArg) -> Response:
    """The newest version."""
    # Raises ``SchemaNotFound`` where there is none, or it was deleted.
    return Json(_shown(await services.schemas.version(topic)))


@router.get("/schema/{version}", dependencies=[on_topic(Action.READ)])
async def get_schema_by_version(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """One version, by its number."""
    number = integer_in_path(request, "version")
    return Json(_shown(await services.schemas.version(topic, number)))


@router.get("/schemas", dependencies=[on_topic(Action.READ)])
async def get_all_schemas(topic: TopicArg, services: ServicesArg) -> Response:
    """All versions since the schema was last deleted, the oldest first."""
    versions = await services.schemas.versions(topic)
    return Json({"getSchemaResponses": [_shown(each) for each in versions]})


@router.get("/metadata", dependencies=[on_topic(Action.READ)])
async def get_schema_metadata(topic: TopicArg, services: ServicesArg) -> Response:
    """The ledger entry that stores each version, also of deleted ones; nothing without a schema."""
    locator = await services.schemas.locator(topic)
    # The topic never had a schema, or it was deleted for good.
    if locator is None:
        return empty()
    return Json({"info": _place(locator.newest), "index": list(map(_place, locator.versions))})


@router.post("/schema", dependencies=[on_topic(Action.PRODUCE)])
async def post_schema(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Upload a schema; one that the topic has already keeps its version number."""
    schema = await _schema_body(request)
    strategy = await _strategy(services, topic)
    number = await services.schemas.put(topic, schema, strategy)
    return Json({"version": {"version": number}})


@router.delete("/schema", dependencies=[on_topic(Action.ADMINISTER)])
async def delete_schema(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Mark the schema as deleted; with ``force`` delete all versions for good."""
    if flag(request, "force"):
        # Without a version of its own: there is no schema any more that could have one.
        await services.schemas.delete_all(topic)
        return Json({"version": NO_VERSION})
    await require_namespace(services, topic.namespace)
    return Json({"version": await services.schemas.delete(topic)})


@router.post("/compatibility", dependencies=[on_topic(Action.READ)])
async def test_compatibility(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Whether a schema may be the next version; answers 409 with the reason where it may not."""
    schema = await _schema_body(request)
    strategy = await _strategy(services, topic)
    await services.schemas.check(topic, schema, strategy)
    # Refusals come as errors: an answer without an error is always "compatible".
    answer = {"schemaCompatibilityStrategy": strategy.value, "compatibility": True}
    return Json(answer, status_code=202)


@router.post("/version", dependencies=[on_topic(Action.READ)])
async def get_version_of_schema(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """The version number of a given schema; -1 where the topic does not have it."""
    schema = await _schema_body(request)
    try:
        number = await services.schemas.find(topic, schema)
    # What is no schema is no version of the topic's.
    except InvalidSchema:
        number = None
    return Json({"version": NO_VERSION if number is None else number})


async def _strategy(services: Services, topic: TopicName) -> SchemaStrategy:
    await require_namespace(services, topic.namespace)
    # Resolved without loading the topic.
    return (await services.policies.of(topic)).schemas.strategy


# Documents


def _shown(stored: StoredSchema) -> dict[str, Any]:
    info = stored.info
    schema = Schema(info.type, info.definition, info.properties)
    if schema.type is SchemaType.KEY_VALUE:
        # The definition of a pair is binary: its halves are shown as a JSON object. Compact, as
        # upstream prints it, with characters beyond ASCII as they are.
        data = json.dumps(_pair(schema), separators=(",", ":"), ensure_ascii=False)
    else:
        # A definition is JSON or Protobuf's own; bytes that are no UTF-8 must not make the answer
        # fail.
        data = schema.definition.decode(errors="replace")
    return {
        "version": stored.version,
        "type": info.type.name,
        "timestamp": info.created_ms,
        "data": data,
        "properties": dict(info.properties),
    }


def _pair(schema: Schema) -> dict[str, Any]:
    """The definitions of a pair's key and value, "" for types without one; each may be a pair."""
    shown: dict[str, Any] = {}
    for name, half in zip(("key", "value"), key_and_value(schema), strict=True):
        if half.type is SchemaType.KEY_VALUE:
            shown[name] = _pair(half)
        else:
            # Types without a definition, such as a string, are told by the properties of the pair.
            shown[name] = json.loads(half.definition) if half.type.is_struct else ""
    return shown


def _place(index: SchemaIndex) -> dict[str, int]:
    ledger_id, entry_id = index.position
    return {"ledgerId": ledger_id, "entryId": entry_id, "version": index.version}


# Bodies


async def _schema_body(request: Request) -> Schema:
    """The body: a type, a definition, properties (or null). Raises ``RestError`` 400,
    ``InvalidSchema``."""
    body = await object_body(request)
    if body is None:
        raise RestError(400, "The request entity cannot be empty.")
    name, text, properties = body.get("type"), body.get("schema"), body.get("properties") or {}
    if not isinstance(name, str) or not isinstance(text, str):
        raise RestError(400, "The body should have a type and a schema, both strings")
    if not isinstance(properties, dict) or not all(
        isinstance(each, str) for each in properties.values()
    ):
        raise RestError(400, "The properties should be a JSON object whose values are strings")
    # None for a type that this broker does not know.
    kind = schema_type(name)
    if kind is None:
        raise InvalidSchema(f"Unknown schema type : {name}")
    if kind is not SchemaType.KEY_VALUE:
        return Schema(kind, text.encode(), properties)
    try:
        # The halves in JSON become the binary form that is stored, and that clients send.
        halves = json.loads(text)
        key, value = halves["key"], halves["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidSchema("a pair should be a JSON object of a key and a value") from None
    return Schema(kind, pair_definition(_half_body(key), _half_body(value)), properties)


def _half_body(half: object) -> bytes:
    """The definition of one half of a pair; "" stands for a type without one."""
    if half == "":
        return b""
    return json.dumps(half, separators=(",", ":"), ensure_ascii=False).encode()
