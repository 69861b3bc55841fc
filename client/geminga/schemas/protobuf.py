"""Messages of Protobuf: classes that protoc generated, or made of the topic's own descriptors."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Generic, TypeVar, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, EncodeError, Message

from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

MessageT = TypeVar("MessageT", bound=Message)


class ProtobufNativeSchema(Generic[MessageT]):
    """Values are messages of a generated class. The topic gets its descriptors, so that consumers
    without the class can read them (``ProtobufNativeSchemaData`` of Pulsar's Java client)."""

    def __init__(self, message: type[MessageT]) -> None:
        self._class = message
        self.schema_info = SchemaInfo(
            SchemaType.PROTOBUF_NATIVE,
            "PROTOBUF_NATIVE",
            definition_of(cast("Descriptor", message.DESCRIPTOR)),
        )

    def encode(self, value: MessageT, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for a message without a required field."""
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
        """Raises ``ValueError`` for what is no such message."""
        try:
            return self._class.FromString(payload)
        except DecodeError as wrong:
            raise ValueError(f"the payload is no {self._class.__name__}: {wrong}") from wrong

    def __repr__(self) -> str:
        return f"ProtobufNativeSchema({self._class.__name__})"


def definition_of(descriptor: Descriptor) -> bytes:
    """The descriptors of a message and of all that it needs, each behind what it needs itself."""
    files: dict[str, FileDescriptorProto] = {}

    def add(file: FileDescriptor) -> None:
        if file.name not in files:
            for needed in file.dependencies:
                add(needed)
            made = FileDescriptorProto()
            file.CopyToProto(made)
            files[file.name] = made

    add(descriptor.file)
    described = FileDescriptorSet(file=files.values()).SerializeToString(deterministic=True)
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
        pool = descriptor_pool.DescriptorPool()
        for file in described.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(content["rootMessageTypeName"])
    except (KeyError, TypeError, ValueError, DecodeError) as wrong:
        raise ValueError(f"these are no descriptors of a Protobuf message: {wrong}") from wrong
    return message_factory.GetMessageClass(found)
