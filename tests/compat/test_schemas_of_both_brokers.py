"""Proves that a broker of Apache Pulsar's on our ZooKeeper and bookies serves the schemas that ours
stored there, and ours those that it added."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pulsar.schema as theirs
import requests
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from tests.apache_java.marking import pulsar_home_or_skip
from tests.apache_java.pulsar_broker import HOST, pulsar_broker
from tests.compat.clients import Broker, Letter, Reading, Writing, official, ours
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.part_process import running, wait_for_words

from geminga import (
    AutoConsumeSchema,
    AvroSchema,
    Int64Schema,
    JsonSchema,
    KeyValueSchema,
    ProtobufNativeSchema,
    StringSchema,
)
from geminga_cli.ports import ReservedPort


@dataclass
class First:
    id: int
    note: str | None = None


@dataclass
class Second:
    id: int
    note: str | None = None
    cups: int = 1


@dataclass
class Third:
    id: int
    cups: int = 1


class OfficialFourth(theirs.Record):  # type: ignore[misc]  # the official client ships no types
    """What is added by the other broker; reads all before it."""

    id = theirs.Long(required=True)
    cups = theirs.Long(required=True, default=1, required_default=True)
    drink = theirs.String(required_default=True)


FIRST, SECOND, THIRD = First(1, "tea"), Second(2, None, 3), Third(3)
make_official: Any = OfficialFourth
FOURTH = make_official(id=4, cups=2, drink="mate")
# The versions of each topic's schema, and a value that was written with each.
VERSIONS: Mapping[str, list[tuple[Any, Any]]] = {
    "text": [(StringSchema(), "é ☕")],
    "numbers": [(Int64Schema(), -7)],
    "json": [(JsonSchema(type(each)), each) for each in (FIRST, SECOND, THIRD)],
    "avro": [(AvroSchema(type(each)), each) for each in (FIRST, SECOND, THIRD)],
    "protobuf": [(ProtobufNativeSchema(Struct), Struct(fields={"é": Value(number_value=1.5)}))],
    "pairs": [
        (KeyValueSchema(StringSchema(), AvroSchema(type(each)), "SEPARATED"), ("key", each))
        for each in (FIRST, SECOND)
    ],
}
RECORDS: Mapping[str, Any] = {"json": theirs.JsonSchema, "avro": theirs.AvroSchema}
# Topics whose schema one of the brokers deletes, and one that Apache's adds.
DELETED_BY_OURS, DELETED_BY_APACHES, ADDED = "deleted-by-ours", "deleted-by-apaches", "added"
TOPICS = [*VERSIONS, DELETED_BY_OURS, DELETED_BY_APACHES, ADDED]


def topic_of(name: str) -> str:
    return f"persistent://public/default/{name}"


def registry(broker: Broker) -> dict[str, Any]:
    """All that REST says of the topics' schemas: the newest one, each version, all versions."""
    said: dict[str, Any] = {}
    for name in TOPICS:
        url = f"{broker.web_url}/admin/v2/schemas/public/default/{name}"
        newest = requests.get(f"{url}/schema", timeout=60)
        versions = requests.get(f"{url}/schemas", timeout=60).json()["getSchemaResponses"]
        each = [
            requests.get(f"{url}/schema/{one['version']}", timeout=60).json() for one in versions
        ]
        said[name] = (newest.status_code, newest.ok and newest.json(), versions, each)
    return said


def delete_schema(broker: Broker, name: str) -> None:
    broker.admin("DELETE", f"schemas/public/default/{name}/schema")


def plain(value: Any) -> Any:
    """A value without the class that its writer had for it."""
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Message):
        return value.SerializeToString()
    return asdict(value) if isinstance(value, (First, Second, Third)) else value


def check_reading(broker: Broker, added: Mapping[str, list[Any]]) -> None:
    """Whoever knows no schema reads each value by the version it was written with, and the official
    client reads all records by its own schema."""
    with ours(broker) as client:
        for name, versions in VERSIONS.items():
            wanted = [plain(value) for _, value in versions] + added.get(name, [])
            how = Reading(schema=AutoConsumeSchema())
            found = client.read(topic_of(name), len(wanted), how)
            assert [plain(letter.value) for letter in found] == wanted, name
    with official(broker) as client:
        for name, kind in RECORDS.items():
            count = len(VERSIONS[name]) + len(added.get(name, []))
            found = client.read(topic_of(name), count, Reading(schema=kind(OfficialFourth)))
            assert [letter.value.id for letter in found] == [*range(1, count + 1)]
        (text,) = client.read(topic_of("text"), 1, Reading(schema=theirs.StringSchema()))
        assert text.value == "é ☕"


@contextmanager
def apaches_broker(home: Path, directory: Path, data: Path) -> Generator[Broker]:
    """A broker of Apache Pulsar's on the ZooKeeper and the bookie of a standalone of ours."""
    with ExitStack() as stack:
        held = [stack.enter_context(ReservedPort(HOST, 0)).port for _ in range(3)]
        zookeeper = f"{HOST}:{held[0]}"
        own_ports = {
            "zookeeper": ("--port", str(held[0]), "--metrics-port", "0"),
            "bookie": ("--zookeeper", zookeeper, "--port", "0", "--http-port", "0"),
        }
        for part, options in own_ports.items():
            alone = running(part, "--data-dir", str(data / part), *options)
            wait_for_words(stack.enter_context(alone), f"{part} serves")
        stack.enter_context(pulsar_broker(home, directory, zookeeper, held[1:]))
        yield Broker(f"pulsar://{HOST}:{held[1]}", f"http://{HOST}:{held[2]}")


@contextmanager
def our_broker(data: Path) -> Generator[Broker]:
    """A standalone of ours."""
    cluster = StandaloneProcess.start(data)
    try:
        yield Broker(cluster.service_url, cluster.web_url)
    finally:
        cluster.stop()


def test_schemas_outlive_the_change_of_broker_in_both_directions(tmp_path: Path) -> None:
    home, data = pulsar_home_or_skip(), tmp_path / "data"
    with our_broker(data) as broker, ours(broker) as client:
        for name, versions in VERSIONS.items():
            for schema, value in versions:
                client.write(topic_of(name), [Letter(value)], Writing(schema=schema))
        for name in (DELETED_BY_OURS, DELETED_BY_APACHES):
            client.write(topic_of(name), [Letter(FIRST)], Writing(schema=JsonSchema(First)))
        delete_schema(broker, DELETED_BY_OURS)
        check_reading(broker, {})
        before = registry(broker)
    assert [len(said[2]) for said in before.values()] == [1, 1, 3, 3, 1, 2, 0, 1, 0]

    with apaches_broker(home, tmp_path, data) as broker, official(broker) as client:
        assert registry(broker) == before
        check_reading(broker, {})
        for name in (*RECORDS, DELETED_BY_OURS, ADDED):
            schema = RECORDS.get(name, theirs.AvroSchema)(OfficialFourth)
            client.write(topic_of(name), [Letter(FOURTH)], Writing(schema=schema))
        delete_schema(broker, DELETED_BY_APACHES)
        after = registry(broker)
    assert [len(said[2]) for said in after.values()] == [1, 1, 4, 4, 1, 2, 1, 0, 1]

    fourth = {"id": 4, "cups": 2, "drink": "mate"}
    with our_broker(data) as broker, ours(broker) as client:
        assert registry(broker) == after
        check_reading(broker, {name: [fourth] for name in RECORDS})
        (added,) = client.read(topic_of(ADDED), 1, Reading(schema=AutoConsumeSchema()))
        assert added.value == fourth
        # What is known is not stored again, and what is new is counted on.
        client.write(topic_of("avro"), [Letter(THIRD)], Writing(schema=AvroSchema(Third)))
        assert registry(broker) == after
        how = Writing(schema=JsonSchema(First))
        client.write(topic_of(DELETED_BY_APACHES), [Letter(FIRST)], how)
        (version,) = registry(broker)[DELETED_BY_APACHES][2]
        assert version["version"] == 2
