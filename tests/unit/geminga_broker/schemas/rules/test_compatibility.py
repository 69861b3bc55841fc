"""Which schema may follow which: by every strategy as a real Pulsar 4.0.6 says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.project_files import GOLDEN

from geminga_broker.errors import BrokerError
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas.rules.compatibility import Version, check_following, version_of
from geminga_broker.schemas.rules.definitions import (
    Schema,
    check_definition,
    pair_definition,
    schema_type,
)
from geminga_protocol.pulsar.enums import SchemaType

FILE = GOLDEN / "schemas" / "verdicts.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text())["cases"]
STRATEGIES = [each for each in SchemaStrategy if each is not SchemaStrategy.UNDEFINED]


def schema_of(body: dict[str, Any]) -> Schema:
    kind = schema_type(body["type"])
    assert kind is not None
    definition = body["schema"].encode()
    if kind is SchemaType.KEY_VALUE:
        halves = json.loads(body["schema"])
        key, value = (json.dumps(halves[name]).encode() for name in ("key", "value"))
        definition = pair_definition(*(b"" if half == b'""' else half for half in (key, value)))
    return Schema(kind, definition, body["properties"])


def is_allowed(versions: list[Version], schema: Schema, strategy: SchemaStrategy) -> bool:
    try:
        check_definition(schema)
        check_following(versions, schema, strategy)
    except BrokerError:
        return False
    return True


def uploaded(versions: list[Version], schema: Schema, strategy: SchemaStrategy) -> int | None:
    try:
        found = version_of(versions, schema)
    except BrokerError:
        return None
    if found is not None:
        return found
    return len(versions) if is_allowed(versions, schema, strategy) else None


@pytest.mark.parametrize("case", CASES, ids=[each["name"] for each in CASES])
def test_the_verdict_is_that_of_a_real_broker(case: dict[str, Any]) -> None:
    versions = [Version(at, schema_of(body)) for at, body in enumerate(case["history"])]
    schema = schema_of(case["following"])
    ours = {
        each.value: (is_allowed(versions, schema, each), uploaded(versions, schema, each))
        for each in STRATEGIES
    }
    recorded = {
        name: (verdict["compatible"], verdict["uploaded"])
        for name, verdict in case["verdicts"].items()
    }
    assert ours == recorded


def test_there_are_cases_enough_and_both_verdicts_by_every_strategy_that_has_two() -> None:
    assert len(CASES) >= 40
    for each in STRATEGIES:
        verdicts = {case["verdicts"][each.value]["compatible"] for case in CASES}
        assert len(verdicts) == (1 if each is SchemaStrategy.ALWAYS_COMPATIBLE else 2)
