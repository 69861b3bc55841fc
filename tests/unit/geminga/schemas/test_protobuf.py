"""Proves that Protobuf messages are described as the official client describes them."""

from __future__ import annotations

import json
from base64 import b64decode

import pulsar.schema
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from geminga import ProtobufNativeSchema, SchemaType
from geminga.schemas.protobuf import class_of
from geminga_protocol.pulsar.api_pb2 import KeyValue, MessageMetadata

SCHEMA = ProtobufNativeSchema(KeyValue)


def test_a_message_comes_back() -> None:
    value = KeyValue(key="a", value="b")
    assert SCHEMA.decode(SCHEMA.encode(value)) == value


def test_the_definition_is_the_official_clients() -> None:
    official = json.loads(
        pulsar.schema.ProtobufNativeSchema(MessageMetadata).schema_info().schema()
    )
    ours = json.loads(ProtobufNativeSchema(MessageMetadata).schema_info.definition)
    described = [
        FileDescriptorSet.FromString(b64decode(each.pop("fileDescriptorSet")))
        for each in (official, ours)
    ]
    assert official == ours
    assert described[0] == described[1]


def test_a_definition_makes_a_class() -> None:
    made = class_of(SCHEMA.schema_info.definition)
    assert made.FromString(SCHEMA.encode(KeyValue(key="a", value="b"))).key == "a"  # type: ignore[attr-defined]
    assert SCHEMA.schema_info.type is SchemaType.PROTOBUF_NATIVE


@pytest.mark.parametrize(
    "definition",
    [b"", b"[]", b"{}", b'{"fileDescriptorSet":"!","rootMessageTypeName":"a"}'],
)
def test_a_definition_that_is_none_is_refused(definition: bytes) -> None:
    with pytest.raises(ValueError, match="no descriptors"):
        class_of(definition)


def test_values_and_payloads_that_are_no_such_message_are_refused() -> None:
    with pytest.raises(TypeError, match="KeyValue"):
        SCHEMA.encode(MessageMetadata())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"required|missing"):
        SCHEMA.encode(KeyValue(key="a"))
    with pytest.raises(ValueError, match="no KeyValue"):
        SCHEMA.decode(b"\xff")
