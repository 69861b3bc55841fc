"""Protobuf messages: of classes that protoc generated, or that are made of the topic's schema."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, EncodeError, Message

from geminga.schemas.protobuf_avro import (
    PARSING_INFO,
    avro_definition_of,
    parsing_info_of,
)
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

MessageT = TypeVar("MessageT", bound=Message)


class _MessageSchema(Generic[MessageT]):
    """Values are messages of a class that protoc generated."""

    def __init__(self, message: type[MessageT], schema_info: SchemaInfo) -> None:
        self._class = message
        self.schema_info = schema_info

    def encode(self, value: MessageT, /) -> bytes:
        """The message in Protobuf's binary form. Raises ``TypeError``, or ``ValueError`` for a
        message without a required field."""
        # Another message may encode to bytes that this class reads, as something else.
        if not isinstance(value, self._class):
            raise TypeError(
                f"the value should be of type {self._class.__name__}, and not "
                f"{type(value).__name__}"
            )
        try:
            return value.SerializeToString()
        except EncodeError as wrong:
            raise ValueError(str(wrong)) from wrong

    def decode(self, payload: bytes, /) -> MessageT:
        """The message in a payload; raises ``ValueError`` for one that is no such message."""
        try:
            return self._class.FromString(payload)
        except DecodeError as wrong:
            raise ValueError(f"the payload is no {self._class.__name__}: {wrong}") from wrong

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._class.__name__})"


class ProtobufNativeSchema(_MessageSchema[MessageT]):
    """Values are messages of a class that protoc generated: ``ProtobufNativeSchema(Order)``.

    The topic's schema has the descriptors of the class, so that consumers without the class can
    read the messages (``ProtobufNativeSchemaData`` of Pulsar's Java client).
    """

    def __init__(self, message: type[MessageT]) -> None:
        definition = definition_of(cast("Descriptor", message.DESCRIPTOR))
        super().__init__(
            message, SchemaInfo(SchemaType.PROTOBUF_NATIVE, "PROTOBUF_NATIVE", definition)
        )


class ProtobufSchema(_MessageSchema[MessageT]):
    """Values are messages of a class that protoc generated: ``ProtobufSchema(Order)``.

    The topic's schema has an Avro definition of the class, made as Pulsar's Java client makes it,
    or the ``definition`` that is given, an Avro record: for example the one that Go programs use.
    Pulsar's brokers do not compare PROTOBUF schemas with each other. ``ProtobufNativeSchema`` is
    better for new topics: its definition can be checked, and has the numbers of the fields.
    """

    def __init__(
        self, message: type[MessageT], *, definition: Mapping[str, Any] | None = None
    ) -> None:
        """Raises ``ValueError`` for a message that Avro has no form for: one with groups, or with
        defaults that are infinite or no number."""
        descriptor = cast("Descriptor", message.DESCRIPTOR)
        made = (
            avro_definition_of(descriptor)
            if definition is None
            else json.dumps(definition).encode()
        )
        # An Avro definition has no numbers of fields, without which no payload can be read.
        properties = {PARSING_INFO: parsing_info_of(descriptor)}
        super().__init__(message, SchemaInfo(SchemaType.PROTOBUF, "PROTOBUF", made, properties))


def definition_of(descriptor: Descriptor) -> bytes:
    """The descriptors of a message's file and of the files that it imports, each of them behind its
    own imports."""
    files: dict[str, FileDescriptorProto] = {}

    def add(file: FileDescriptor) -> None:
        if file.name not in files:
            # Imports first: a pool takes a file only when it knows those that the file imports.
            for needed in file.dependencies:
                add(needed)
            made = FileDescriptorProto()
            file.CopyToProto(made)
            files[file.name] = made

    add(descriptor.file)
    # Deterministic: registries compare definitions byte by byte.
    described = FileDescriptorSet(file=files.values()).SerializeToString(deterministic=True)
    # The names of the three are those of Java's ``ProtobufNativeSchemaData``.
    return json.dumps(
        {
            "fileDescriptorSet": b64encode(described).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
    ).encode()


def class_of(definition: bytes) -> type[Message]:
    """A class for the message that ``definition_of`` defines; raises ``ValueError``."""
    try:
        content = json.loads(definition)
        described = FileDescriptorSet.FromString(b64decode(content["fileDescriptorSet"]))
        # A pool of its own: other topics may have other messages of the same name.
        pool = descriptor_pool.DescriptorPool()
        # In their order, in which each file stands behind those that it imports.
        for file in described.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(content["rootMessageTypeName"])
    # A definition comes from the registry, where any program may have put it: a pool raises
    # ``TypeError`` for files that do not fit to each other.
    except (KeyError, TypeError, ValueError, DecodeError) as wrong:
        raise ValueError(f"these are no descriptors of a Protobuf message: {wrong}") from wrong
    # The class keeps the pool alive.
    return message_factory.GetMessageClass(found)
