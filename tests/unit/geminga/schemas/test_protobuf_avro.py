"""Proves that Protobuf messages have the Avro definition that Pulsar's Java client gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from tests.project_files import GOLDEN

from geminga import ProtobufSchema, SchemaType
from geminga.schemas.protobuf_avro import PARSING_INFO, avro_definition_of
from geminga_protocol.pulsar.api_pb2 import KeyValue

WRITTEN = GOLDEN / "schemas" / "protobuf"
RECORDED: list[dict[str, str]] = json.loads((WRITTEN / "definitions.json").read_text())["cases"]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> DescriptorPool:
    """The messages of the golden files."""
    out = tmp_path_factory.mktemp("descriptors") / "all"
    files = [str(path.relative_to(WRITTEN)) for path in sorted(WRITTEN.rglob("*.proto"))]
    included = Path(grpc_tools.__file__).parent / "_proto"
    words = [f"--proto_path={WRITTEN}", f"--proto_path={included}", "--include_imports"]
    assert protoc.main(["", *words, f"--descriptor_set_out={out}", *files]) == 0
    return pool_of(*FileDescriptorSet.FromString(out.read_bytes()).file)


def pool_of(*files: FileDescriptorProto) -> DescriptorPool:
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def message(*fields: Mapping[str, Any]) -> ProtobufSchema[Any]:
    """The schema of a message with these fields (``FieldDescriptorProto``)."""
    file = FileDescriptorProto(name="one.proto", syntax="proto2")
    made = file.message_type.add(name="One")
    for number, field in enumerate(fields, 1):
        made.field.add(number=number, label="LABEL_OPTIONAL", **field)
    made.nested_type.add(name="Part")
    return ProtobufSchema(GetMessageClass(pool_of(file).FindMessageTypeByName("One")))


def alike(definition: str) -> str:
    """Java writes a large number otherwise than Python."""
    return re.sub(r'"default":(-?\d+\.\d+(E\d+)?)', lambda said: str(float(said[1])), definition)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda case: str(case["message"]))
def test_the_definition_is_the_java_clients(
    recorded: dict[str, str], described: DescriptorPool
) -> None:
    made = described.FindMessageTypeByName(recorded["message"])
    info = ProtobufSchema(GetMessageClass(made)).schema_info
    ours, official = info.definition.decode(), recorded["definition"]
    assert alike(ours) == alike(official)
    assert json.loads(ours) == json.loads(official)
    assert info.properties[PARSING_INFO] == recorded["parsing_info"]
    assert info.type is SchemaType.PROTOBUF


def test_defaults_that_are_bytes_are_letters_as_in_avro() -> None:
    schema = message({"name": "raw", "type": "TYPE_BYTES", "default_value": r"\377a"})
    assert json.loads(schema.schema_info.definition)["fields"][0]["default"] == "\xffa"


@pytest.mark.parametrize(
    "field",
    [
        {"name": "grouped", "type": "TYPE_GROUP", "type_name": ".One.Part"},
        {"name": "endless", "type": "TYPE_DOUBLE", "default_value": "inf"},
        {"name": "no_number", "type": "TYPE_FLOAT", "default_value": "nan"},
    ],
    ids=lambda field: str(field["name"]),
)
def test_what_avro_has_no_form_for_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"One.{field['name']} "):
        message(field)


def test_a_definition_of_ones_own_takes_its_place() -> None:
    own = {"type": "record", "name": "Pair", "fields": []}
    info = ProtobufSchema(KeyValue, definition=own).schema_info
    assert json.loads(info.definition) == own
    assert info.definition != avro_definition_of(KeyValue.DESCRIPTOR)
    assert '"name":"value"' in info.properties[PARSING_INFO]
