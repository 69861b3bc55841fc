"""``geminga admin schemas``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geminga_cli.admin.errors import InvalidUse
from geminga_cli.admin.operation import (
    Given,
    Operation,
    UrlPath,
    gets,
    option,
    path,
    place,
    sends,
    switch,
)
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import topic


def _topic(text: str) -> UrlPath:
    """A topic as part of a URL: the paths of schemas leave out whether it is persistent."""
    return UrlPath(topic(text).partition("/")[2])


TOPIC = place("topic", "the topic's name", _topic)
FILE = option(
    "-f",
    "--filename",
    read=Path,
    required=True,
    metavar="FILE",
    help='a JSON file: {"type": "AVRO", "schema": "…", "properties": {}}',
)
KNOWN = ("type", "schema", "properties")


def _get(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """A schema, with its definition as JSON where it is some."""
    if given.all_version:
        if given.version is not None:
            raise InvalidUse("--version and --all-version do not go together")
        answer = service.ask("GET", path("schemas/{topic}/schemas", given))
        return [_opened(each) for each in answer["getSchemaResponses"]]
    where = "schemas/{topic}/schema" + ("" if given.version is None else "/{version}")
    return _opened(service.ask("GET", path(where, given)))


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        return {**schema, "data": json.loads(schema["data"])}
    except (KeyError, TypeError, ValueError):
        return schema


def _payload(given: Given) -> dict[str, Any]:
    """What the file holds; a definition may stand in it as JSON or as text."""
    try:
        content = json.loads(given.filename.read_text())
    except (OSError, ValueError) as error:
        raise InvalidUse(f"{given.filename} holds no JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        raise InvalidUse(f"{given.filename} should hold an object with type, schema, properties")
    if not isinstance(content.get("schema", ""), str):
        content["schema"] = json.dumps(content["schema"])
    return {"schema": "", "properties": {}} | {
        name: content[name] for name in content if name in KNOWN
    }


OPERATIONS = (
    Operation(
        "get",
        "show a topic's schema",
        (
            TOPIC,
            option(
                "-v", "--version", read=int, metavar="NUMBER", help="which (default: the newest)"
            ),
            switch("-a", "--all-version", help="all there were"),
        ),
        _get,
    ),
    Operation(
        "metadata",
        "show how a topic's schema is stored",
        (TOPIC,),
        gets("schemas/{topic}/metadata"),
    ),
    Operation(
        "upload",
        "give a topic a schema",
        (TOPIC, FILE),
        sends("POST", "schemas/{topic}/schema", _payload),
    ),
    Operation(
        "compatibility",
        "ask whether a topic may get a schema",
        (TOPIC, FILE),
        sends("POST", "schemas/{topic}/compatibility", _payload),
    ),
    Operation(
        "delete",
        "delete a topic's schemas",
        (TOPIC, switch("-f", "--force", help="their records too")),
        sends("DELETE", "schemas/{topic}/schema", query={"force": "force"}),
    ),
)
