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


def schema_topic(text: str) -> UrlPath:
    """A topic as part of a URL; the paths of schemas have no domain (``persistent``)."""
    return UrlPath(topic(text).partition("/")[2])


TOPIC = place("topic", "the topic's name", schema_topic)
FILE = option(
    "-f",
    "--filename",
    read=Path,
    required=True,
    metavar="FILE",
    help='a JSON file: {"type": "AVRO", "schema": "…", "properties": {}}',
)
# Members of the file that REST takes; ``pulsar-admin`` drops others, too.
KNOWN = ("type", "schema", "properties")


def get_schema(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """A topic's schema, or with ``--all-version`` all versions of it."""
    if given.all_version:
        if given.version is not None:
            raise InvalidUse("--version and --all-version do not go together")
        # ``GetAllVersionsSchemaResponse``.
        answer = service.ask("GET", path("schemas/{topic}/schemas", given))
        return [_with_json(each) for each in answer["getSchemaResponses"]]
    where = "schemas/{topic}/schema" + ("" if given.version is None else "/{version}")
    return _with_json(service.ask("GET", path(where, given)))


def _with_json(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with its definition decoded if that is JSON."""
    try:
        # Primitive schemas have no definition, or one that is no JSON.
        return {**schema, "data": json.loads(schema["data"])}
    except (KeyError, TypeError, ValueError):
        return schema


def schema_of_file(given: Given) -> dict[str, Any]:
    """The schema in the file; its definition may be JSON in it, or text."""
    try:
        content = json.loads(given.filename.read_text())
    except (OSError, ValueError) as error:
        raise InvalidUse(f"{given.filename} holds no JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        raise InvalidUse(f"{given.filename} should hold an object with type, schema, properties")
    # REST takes a definition as text inside the JSON, which is tedious to write by hand.
    if not isinstance(content.get("schema", ""), str):
        content["schema"] = json.dumps(content["schema"])
    # ``PostSchemaPayload``: all three members, however little the file has.
    return {"schema": "", "properties": {}} | {
        name: content[name] for name in content if name in KNOWN
    }


# ``SchemasResourceBase`` of Pulsar.
OPERATIONS = (
    Operation(
        "get",
        "show a topic's schema",
        (
            TOPIC,
            option(
                "-v",
                "--version",
                read=int,
                metavar="NUMBER",
                help="the version (default: the newest)",
            ),
            switch("-a", "--all-version", help="all versions"),
        ),
        get_schema,
    ),
    Operation(
        "metadata",
        "show the metadata of a topic's schema",
        (TOPIC,),
        gets("schemas/{topic}/metadata"),
    ),
    # Refused where the compatibility strategy of the namespace forbids it (409); the same schema
    # again is no new version.
    Operation(
        "upload",
        "add a schema to a topic",
        (TOPIC, FILE),
        sends("POST", "schemas/{topic}/schema", schema_of_file),
    ),
    Operation(
        "compatibility",
        "check whether a schema may be added to a topic",
        (TOPIC, FILE),
        sends("POST", "schemas/{topic}/compatibility", schema_of_file),
    ),
    # A version is added that marks the deletion; with --force, the record and its ledgers go.
    Operation(
        "delete",
        "delete a topic's schemas",
        (TOPIC, switch("-f", "--force", help="delete their records, too")),
        sends("DELETE", "schemas/{topic}/schema", query={"force": "force"}),
    ),
)
