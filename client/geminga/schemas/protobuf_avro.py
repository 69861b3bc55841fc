"""The Avro definition of a Protobuf message, which topics of type PROTOBUF have.

It is the one that Pulsar's Java client makes with avro-protobuf, letter by letter except for the
exponents of numbers: registries compare the texts of versions, and with another text a topic would
have two versions of the same message. Therefore namespaces are the names of Java's classes, and
unsigned numbers are signed ones.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

# The property with what generic readers need beyond the definition: numbers and types of fields.
PARSING_INFO = "__PARSING_INFO__"

_STRING = {"type": "string", "avro.java.string": "String"}
_SINGLE: Mapping[int, Any] = {
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: _STRING,
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_UINT32: "int",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_FIXED32: "int",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_INT64: "long",
    FieldDescriptor.TYPE_UINT64: "long",
    FieldDescriptor.TYPE_SINT64: "long",
    FieldDescriptor.TYPE_FIXED64: "long",
    FieldDescriptor.TYPE_SFIXED64: "long",
}
_TYPE_NAMES = FieldDescriptorProto.DESCRIPTOR.enum_types_by_name["Type"].values_by_number
_BITS = {"int": 32, "long": 64}
# A record with one of these names would be taken for the type: it is always written with its
# namespace.
_TYPES_OF_AVRO = frozenset(
    [
        *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
        *("record", "enum", "array", "map", "union", "fixed"),
    ]
)


def avro_definition_of(descriptor: Descriptor) -> bytes:
    """The definition in JSON. Raises ``ValueError`` for fields that Avro cannot have: groups, and
    defaults that are infinite or no number."""
    return _json(_Definitions().of(descriptor, None))


def parsing_info_of(descriptor: Descriptor) -> str:
    """The value of the property ``PARSING_INFO`` in JSON."""
    described: list[dict[str, Any]] = []
    for field in descriptor.fields:
        label = "REQUIRED" if field.is_required else "OPTIONAL"
        described.append(
            {
                "number": field.number,
                "name": field.name,
                "type": _TYPE_NAMES[field.type].name.removeprefix("TYPE_"),
                "label": "LABEL_" + ("REPEATED" if field.is_repeated else label),
                "definition": None,
            }
        )
    return _json(described).decode()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


@dataclasses.dataclass(slots=True, eq=False)
class _Definitions:
    """Defines each record and enum where it comes first, and names it from then on.

    ``around`` is the namespace of the record around a type, ``None`` without one.
    """

    # The full names of those that were defined, or are being defined.
    defined: set[str] = dataclasses.field(default_factory=set[str])

    def of(self, described: Descriptor | EnumDescriptor, around: str | None) -> Any:  # noqa: ANN401 - JSON
        name, namespace = described.name, _namespace(described)
        full = name if namespace is None else f"{namespace}.{name}"
        if full in self.defined:
            is_short = namespace in (None, around) and name not in _TYPES_OF_AVRO
            return name if is_short else full
        # Before its fields: a message may contain itself, and is named there.
        self.defined.add(full)
        # The order of the keys is that of Java's writer, as the text is compared.
        is_enum = isinstance(described, EnumDescriptor)
        made: dict[str, Any] = {"type": "enum" if is_enum else "record", "name": name}
        if namespace != around:
            made["namespace"] = namespace or ""
        if isinstance(described, EnumDescriptor):
            made["symbols"] = [value.name for value in described.values]
        else:
            made["fields"] = [self._field(field, namespace) for field in described.fields]
        return made

    def _field(self, field: FieldDescriptor, around: str | None) -> dict[str, Any]:
        if field.type == FieldDescriptor.TYPE_GROUP:
            raise ValueError(
                f"{field.full_name} is a group, which PROTOBUF schemas cannot describe"
            )
        if field.message_type is not None:
            kind = self.of(field.message_type, around)
        elif field.enum_type is not None:
            kind = self.of(field.enum_type, around)
        else:
            kind = _SINGLE[field.type]
        # In this order: a map is a repeated field of messages, and a repeated field is never null.
        if field.is_repeated:
            return {"name": field.name, "type": {"type": "array", "items": kind}, "default": []}
        # A required field is always there: it has no default.
        if field.is_required:
            return {"name": field.name, "type": kind}
        if field.message_type is not None:
            return {"name": field.name, "type": ["null", kind], "default": None}
        return {"name": field.name, "type": kind, "default": _default(field)}


def _default(field: FieldDescriptor) -> object:
    """What a reader has where the field is missing, as JSON."""
    value: Any = field.default_value
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bytes):
        return value.decode("latin-1")  # Avro's JSON has a letter for each byte
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"the default of {field.full_name} is {value}, which JSON cannot say")
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            return value
        # Java writes the fewest digits that give this number in 32 bits; Python would write those
        # of the same number in 64 bits, and the texts would differ.
        texts = (f"{value:.{digits}g}" for digits in range(1, 10))
        bits_32 = struct.pack(">f", value)
        return next(float(text) for text in texts if struct.pack(">f", float(text)) == bits_32)
    if isinstance(value, int) and not isinstance(value, bool):
        bits = _BITS[_SINGLE[field.type]]
        # Java has no unsigned numbers: large ones are negative there.
        return value - (1 << bits) if value >> (bits - 1) == 1 else value
    return value


def _namespace(described: Descriptor | EnumDescriptor) -> str | None:
    """The package and the Java class that contain the class of a message; a dot precedes the class
    even without a package."""
    options = described.file.GetOptions()
    # The class around the class of a message: of nested messages the outer ones, and around all of
    # them that of the file, unless each message has a file of its own (``java_multiple_files``).
    classes: list[str] = []
    containing = described.containing_type
    while containing is not None:
        classes.insert(0, containing.name)
        containing = containing.containing_type
    if options.java_outer_classname and not options.java_multiple_files:
        classes.insert(0, options.java_outer_classname)
    elif not options.java_multiple_files:
        words = PurePosixPath(described.file.name).stem.split("_")
        classes.insert(0, "".join(word.capitalize() for word in words))
    package = options.java_package if options.HasField("java_package") else described.file.package
    return ".".join([package, "$".join(classes)] if classes else [package]) or None
