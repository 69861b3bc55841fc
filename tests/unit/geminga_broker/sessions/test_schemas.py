"""Proves what clients are told of schemas while none is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient

from geminga_protocol.pulsar import api_pb2 as api

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]

KINDS = ["None", "String", "Json"]


def schema(kind: str) -> api.Schema:
    return api.Schema(name="", schema_data=b"", type=api.Schema.Type.Value(kind))


@pytest.mark.parametrize("kind", KINDS)
async def test_any_schema_is_accepted_and_none_has_a_version(
    connect: Connect, settle: Settle, kind: str
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    request_id = client.ask("getOrCreateSchema", topic=TOPIC, schema=schema(kind))
    await settle()
    (answer,) = client.all_of("getOrCreateSchemaResponse")
    assert (answer.request_id, answer.HasField("error_code")) == (request_id, False)
    assert (answer.HasField("schema_version"), answer.schema_version) == (True, b"")


async def test_a_topic_that_is_not_there_has_no_schemas(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.ask("getOrCreateSchema", topic="t/n/absent", schema=schema("None"))
    await settle()
    (answer,) = client.all_of("getOrCreateSchemaResponse")
    assert answer.error_code == api.TopicNotFound
    assert "t/n/absent" in answer.error_message
