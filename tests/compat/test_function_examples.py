"""Proves that the Python examples of Apache Pulsar's distribution run unchanged as functions: with
the official client in their environment, and with the facade in its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.apache_java.marking import pulsar_home_or_skip
from tests.integration.processes.function_instances import Functions, publish, results

import geminga
import geminga_functions
from geminga_functions.instance.messages import Started
from pytest_geminga.clusters import Cluster

FACADE = Path(geminga_functions.__file__).parent / "facade"


@dataclass(frozen=True, slots=True)
class Example:
    """An example of the distribution, and what it makes of an input."""

    class_name: str
    given: bytes
    output: bytes | None = None
    published: bytes | None = None
    error: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    serde: str = ""


EXAMPLES = [
    Example("exclamation_function.ExclamationFunction", b"hello", b"hello!"),
    Example("native_exclamation_function", b"hello", b"hello!"),
    Example(
        "config_based_append_function.ConfigBasedAppendFunction",
        b"hello",
        b"hello?",
        config={"config-key": "?"},
    ),
    Example(
        "custom_object_function.CustomObjectFunction",
        b"1,2",
        b"12,26",
        serde="custom_object_function.CustomSerDe",
    ),
    Example("logging_function.LoggingFunction", b"hello", b"hello!"),
    Example("publish_function.PublishFunction", b"hello", published=b"hello!"),
    Example("typed_message_builder_publish.TypedMessageBuilderPublish", b"x", published=b"x!"),
    Example("user_exception.UserException", b"hello", error="Exception: this will not work"),
    Example("void_function.VoidFunction", b"hello"),
    Example("wordcount_function.WordCountFunction", b"a b a", b"a b a!"),
]


@pytest.fixture
async def client(geminga_standalone: Cluster) -> AsyncIterator[geminga.Client]:
    async with geminga.connect(geminga_standalone.service_url) as client:
        yield client


@pytest.fixture(params=["official client", "facade"])
def functions(
    request: pytest.FixtureRequest, geminga_standalone: Cluster, tmp_path: Path
) -> Functions:
    functions = Functions(geminga_standalone.service_url, geminga_standalone.web_url, tmp_path)
    functions.more_paths = [pulsar_home_or_skip() / "examples" / "python-examples"]
    if request.param == "facade":
        functions.more_paths.append(FACADE)
    return functions


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.class_name)
async def test_an_example_does_what_it_is_for(
    functions: Functions, client: geminga.Client, example: Example
) -> None:
    details, topic = functions.details, f"{functions.input}-more"
    details.userConfig = json.dumps({"publish-topic": topic, **example.config})
    details.source.inputSpecs[functions.input].serdeClassName = example.serde
    details.sink.serDeClassName = example.serde
    await publish(client, functions.input, example.given)
    async with functions.instance(example.class_name, "") as instance:
        await instance.receive(Started)
        if example.output is not None:
            assert (await results(client, functions.output, 1))[0].data == example.output
        if example.published is not None:
            assert (await results(client, topic, 1))[0].data == example.published
        while not (status := await instance.status()).total.received:
            pass
        if example.error:
            while not (status := await instance.status()).latest_user_exceptions:
                pass
            assert example.error in status.latest_user_exceptions[0].text
        else:
            assert (status.latest_user_exceptions, status.latest_system_exceptions) == ((), ())
        await instance.stop()


async def test_the_example_of_avro_reads_and_writes_records(
    functions: Functions, client: geminga.Client
) -> None:
    fields = [
        {"name": "baseValue", "type": ["null", "int"]},
        {"name": "objectValue", "type": ["null", "string"]},
    ]
    definition = {"type": "record", "name": "AvroTestObject", "fields": fields}
    schema = geminga.AvroSchema(dict, definition=definition)
    details = functions.details
    record = "avro_schema_test_function.AvroTestObject"
    details.source.inputSpecs[functions.input].schemaType = "avro"
    details.source.typeClassName = details.sink.typeClassName = record
    details.sink.schemaType = "avro"
    async with client.producer(functions.input, schema=schema) as producer:
        await producer.send({"baseValue": 5, "objectValue": "x"})
    async with functions.instance(
        "avro_schema_test_function.AvroSchemaTestFunction", ""
    ) as instance:
        await instance.receive(Started)
        (found,) = await results(client, functions.output, 1)
        assert schema.decode(found.data) == {"baseValue": 15, "objectValue": "x"}
        await instance.stop()
