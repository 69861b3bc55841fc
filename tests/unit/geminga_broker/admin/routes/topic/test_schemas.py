"""Proves that schemas are uploaded, shown, compared and deleted over REST as upstream has it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

SCHEMA = "/admin/v2/schemas/public/default/t/schema"
OTHERS = "/admin/v2/schemas/public/default/t"
NS = "/admin/v2/namespaces/public/default"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
FEWER = {**ORDER, "fields": []}


def body(kind: str, definition: str = "", **properties: str) -> dict[str, Any]:
    return {"type": kind, "schema": definition, "properties": properties}


def avro(described: Any) -> dict[str, Any]:
    return body("AVRO", json.dumps(described))


def without_time(shown: dict[str, Any]) -> dict[str, Any]:
    assert shown.pop("timestamp") > 1_700_000_000_000
    return shown


async def test_a_schema_is_uploaded_and_shown(client: httpx.AsyncClient) -> None:
    uploaded = await client.post(SCHEMA, json={"type": "STRING", "schema": "", "properties": None})
    assert (uploaded.status_code, uploaded.json()) == (200, {"version": {"version": 0}})
    shown = {"version": 0, "type": "STRING", "data": "", "properties": {}}
    for path in (SCHEMA, f"{SCHEMA}/0", f"{OTHERS}-partition-3/schema"):
        assert without_time((await client.get(path)).json()) == shown
    (only,) = (await client.get(f"{OTHERS}/schemas")).json()["getSchemaResponses"]
    assert without_time(only) == shown
    assert (await client.post(SCHEMA, json=body("STRING"))).json()["version"] == {"version": 0}


async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    await client.post(SCHEMA, json=body("STRING"))
    for path in (f"{OTHERS}x/schema", f"{SCHEMA}/1", f"{SCHEMA}/-1"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (404, {"reason": "Schema not found"})
    assert (await client.get(f"{SCHEMA}/first")).status_code == 404
    assert (await client.get(f"{OTHERS}x/schemas")).json() == {"getSchemaResponses": []}
    missing = await client.get(f"{OTHERS}x/metadata")
    assert (missing.status_code, missing.content) == (200, b"")


async def test_metadata_names_the_ledger_entry_of_each_version(client: httpx.AsyncClient) -> None:
    await client.post(SCHEMA, json=body("STRING"))
    assert (await client.delete(SCHEMA)).json() == {"version": 1}
    places = [{"ledgerId": at, "entryId": 0, "version": at} for at in (0, 1)]
    metadata = (await client.get(f"{OTHERS}/metadata")).json()
    assert metadata == {"info": places[1], "index": places}


async def test_a_deleted_schema_is_gone_and_numbers_go_on(client: httpx.AsyncClient) -> None:
    assert (await client.post(SCHEMA, json=body("STRING"))).status_code == 200
    assert (await client.delete(SCHEMA)).json() == {"version": 1}
    for path in (SCHEMA, f"{SCHEMA}/0", f"{SCHEMA}/1"):
        assert (await client.get(path)).status_code == 404
    assert (await client.post(SCHEMA, json=body("INT32"))).json() == {"version": {"version": 2}}
    assert (await client.delete(f"{SCHEMA}?force=true")).json() == {"version": -1}
    assert (await client.post(SCHEMA, json=body("INT8"))).json() == {"version": {"version": 0}}


async def test_the_strategy_of_the_namespace_decides(client: httpx.AsyncClient) -> None:
    await client.post(SCHEMA, json=avro(ORDER))
    strategy = f"{NS}/schemaCompatibilityStrategy"
    assert (await client.get(strategy)).json() == "UNDEFINED"
    refused = await client.post(f"{OTHERS}/compatibility", json=avro(FEWER))
    assert refused.status_code == 409
    assert "by FULL: version 0 cannot read it: field Order.id" in refused.json()["reason"]
    assert (await client.post(SCHEMA, json=avro(FEWER))).status_code == 409
    assert (await client.put(strategy, json="BACKWARD")).status_code == 204
    allowed = await client.post(f"{OTHERS}/compatibility", json=avro(FEWER))
    assert allowed.status_code == 202
    assert allowed.json() == {"schemaCompatibilityStrategy": "BACKWARD", "compatibility": True}
    assert (await client.post(SCHEMA, json=avro(FEWER))).json() == {"version": {"version": 1}}


async def test_the_version_of_a_schema_is_told(client: httpx.AsyncClient) -> None:
    await client.post(SCHEMA, json=avro(ORDER))
    for asked, version in ((avro(ORDER), 0), (avro(FEWER), -1), (body("AVRO", "{"), -1)):
        answer = await client.post(f"{OTHERS}/version", json=asked)
        assert (answer.status_code, answer.json()) == (200, {"version": version})


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (body("AVRO", "{"), 422, "Invalid schema definition data for AVRO schema"),
        (body("AVRO", '["null","int"]'), 422, "Avro schema typed [UNION] is not supported"),
        (body("INT8", "x"), 422, "Invalid schema definition data for INT8 schema"),
        (body("AUTO_CONSUME"), 422, "AUTO_CONSUME is a client-side schema type"),
        (body("NOPE"), 422, "Unknown schema type : NOPE"),
        (body("KEY_VALUE", "x"), 422, "a pair should be a JSON object"),
        (body("PROTOBUF_NATIVE", "{}"), 422, "deserialize ProtobufNative Schema failed"),
        ({"type": "STRING"}, 400, "a type and a schema"),
        ({"type": "STRING", "schema": "", "properties": {"a": 1}}, 400, "values are strings"),
        (None, 400, "cannot be empty"),
        ([], 400, "JSON object"),
        (body("AVRO", "x" * 2_000_000), 413, "longer than"),
    ],
)
async def test_what_is_no_schema_is_refused(
    client: httpx.AsyncClient, sent: Any, status: int, said: str
) -> None:
    for path in (SCHEMA, f"{OTHERS}/compatibility"):
        answer = await client.post(path, content=b"" if sent is None else json.dumps(sent))
        assert answer.status_code == status
        assert said in answer.json()["reason"]
    assert (await client.get(SCHEMA)).status_code == 404


async def test_no_schema_is_uploaded_into_a_namespace_that_is_not_there(
    client: httpx.AsyncClient,
) -> None:
    path = SCHEMA.replace("default", "absent")
    answer = await client.post(path, json=body("STRING"))
    assert (answer.status_code, answer.json()) == (404, {"reason": "Namespace does not exist"})
    assert (await client.delete(path)).status_code == 404


async def test_a_pair_is_shown_as_its_halves(client: httpx.AsyncClient) -> None:
    kinds = {"key.schema.type": "AVRO", "value.schema.type": "STRING"}
    pair = body("KEY_VALUE", json.dumps({"key": ORDER, "value": ""}), **kinds)
    assert (await client.post(SCHEMA, json=pair)).status_code == 200
    shown = (await client.get(SCHEMA)).json()
    assert json.loads(shown["data"]) == {"key": ORDER, "value": ""}
    assert (shown["type"], shown["properties"]) == ("KEY_VALUE", kinds)


async def test_a_partitioned_topic_takes_its_schema_with_it(client: httpx.AsyncClient) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    assert (await client.put(f"{topic}/partitions", json=2)).status_code == 204
    await client.post(SCHEMA, json=body("STRING"))
    assert (await client.delete(f"{topic}/partitions")).status_code == 204
    assert (await client.get(SCHEMA)).status_code == 404


async def test_policies_of_schemas_are_set_and_shown(client: httpx.AsyncClient) -> None:
    older = f"{NS}/schemaAutoUpdateCompatibilityStrategy"
    assert (await client.get(older)).content == b""
    assert (await client.put(older, json="Backward")).status_code == 204
    assert (await client.get(older)).json() == "Backward"
    for name, unset in (("isAllowAutoUpdateSchema", True), ("schemaValidationEnforced", False)):
        assert (await client.get(f"{NS}/{name}")).json() is unset
        assert (await client.post(f"{NS}/{name}", json=not unset)).status_code == 204
        assert (await client.get(f"{NS}/{name}")).json() is not unset
    strategy = f"{NS}/schemaCompatibilityStrategy"
    for wrong in ("Backward", 7):
        assert (await client.put(strategy, json=wrong)).status_code == 400
    assert (await client.put(strategy, json="FORWARD_TRANSITIVE")).status_code == 204
    assert (await client.put(strategy)).status_code == 204
    assert (await client.get(strategy)).json() == "UNDEFINED"
