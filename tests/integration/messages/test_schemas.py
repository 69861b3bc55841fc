"""The official client's schemas: registered, checked, read back, over restarts too."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pulsar
import pytest
from pulsar.schema import BytesSchema, Integer, JsonSchema, Record, String, StringSchema
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

RECEIVE_TIMEOUT_MS = 60_000
NAMESPACE = "/admin/v2/namespaces/public/schemas"

StartStandalone = Callable[..., StandaloneProcess]


class First(Record):  # type: ignore[misc]  # the official client ships no types
    """An order as it was first written."""

    id = Integer()
    note = String()


class Later(Record):  # type: ignore[misc]  # as above
    """An order without the note, which reads earlier ones; those cannot read it."""

    id = Integer()


def new_topic(namespace: str = "public/default") -> str:
    return f"persistent://{namespace}/schemas-{uuid.uuid4().hex[:8]}"


def schema_path(topic: str) -> str:
    return "/admin/v2/schemas/" + topic.removeprefix("persistent://") + "/schema"


def test_messages_are_read_with_the_schema_that_they_were_written_with(
    standalone: StandaloneProcess,
) -> None:
    topic = new_topic()
    with client_of(standalone.service_url) as client:
        consumer = client.subscribe(topic, "all", schema=JsonSchema(First))
        producer = client.create_producer(topic, schema=JsonSchema(First))
        producer.send(First(id=7))
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        assert message.value().id == 7
        assert message.schema_version() == "\0" * 8
        client.create_producer(topic, schema=JsonSchema(First))
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=StringSchema())
        with pytest.raises(pulsar.IncompatibleSchema):
            client.subscribe(topic, "text", schema=StringSchema())
        client.create_producer(topic, schema=BytesSchema()).send(b'{"id":8}')
        assert consumer.receive(RECEIVE_TIMEOUT_MS).value().id == 8
    status, shown = rest(standalone.web_service_url, "GET", schema_path(topic))
    assert (status, shown["version"], shown["type"]) == (200, 0, "JSON")


def test_the_schema_evolves_as_the_namespace_allows(standalone: StandaloneProcess) -> None:
    url = standalone.web_service_url
    rest(url, "PUT", NAMESPACE)
    strategy = f"{NAMESPACE}/schemaCompatibilityStrategy"
    assert rest(url, "PUT", strategy, "ALWAYS_INCOMPATIBLE")[0] == 204
    topic = new_topic("public/schemas")
    with client_of(standalone.service_url) as client:
        client.create_producer(topic, schema=JsonSchema(First)).send(First(id=1))
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=JsonSchema(Later))
        assert rest(url, "PUT", strategy, "BACKWARD")[0] == 204
        later = patiently(lambda: client.create_producer(topic, schema=JsonSchema(Later)))
        later.send(Later(id=2))
        consumer = client.subscribe(
            topic,
            "all",
            schema=JsonSchema(Later),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        received = [consumer.receive(RECEIVE_TIMEOUT_MS) for _ in range(2)]
        assert [each.value().id for each in received] == [1, 2]
        assert [each.schema_version()[-1] for each in received] == ["\0", "\1"]
    versions = rest(url, "GET", f"{schema_path(topic)}s")[1]["getSchemaResponses"]
    assert [each["version"] for each in versions] == [0, 1]


def patiently(create: Callable[[], Any]) -> Any:
    """Brokers hear of policies by a watch: the first attempts may come before."""

    def attempt() -> Any:
        with suppress(pulsar.IncompatibleSchema):
            return create()
        return None

    return eventually(attempt, bool)


def test_schemas_outlive_a_killed_broker_and_go_with_their_topic(
    start_standalone: StartStandalone,
) -> None:
    cluster = start_standalone()
    topic = new_topic()
    with client_of(cluster.service_url) as client:
        client.create_producer(topic, schema=JsonSchema(First)).send(First(id=7))
    cluster.wait_restarted("broker", cluster.kill_part("broker"))
    with client_of(cluster.service_url) as client:
        client.create_producer(topic, schema=JsonSchema(First)).close()
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=StringSchema())
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=JsonSchema(First))
        assert reader.read_next(RECEIVE_TIMEOUT_MS).value().id == 7
    path = "/admin/v2/" + topic.replace("://", "/")
    assert rest(cluster.web_service_url, "DELETE", f"{path}?force=true")[0] == 204
    assert rest(cluster.web_service_url, "GET", schema_path(topic))[0] == 404
