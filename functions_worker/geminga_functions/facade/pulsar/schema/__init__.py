"""``pulsar.schema``: records of functions that are written for the official client.

A record declares its fields as attributes of its class. ``type_class_name`` of a function with the
schema ``json`` or ``avro`` names one. The definitions are those of the official client, so that
both agree on the schema of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

from geminga import BytesSchema, StringSchema

__all__ = [
    "Array",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "Long",
    "Map",
    "Null",
    "Record",
    "String",
    "StringSchema",
]


class Field:
    """A field of a record; optional, unless it is ``required``.

    With ``required_default`` the Avro definition contains the default.
    """

    # The name of the type in Avro, and the Python types of its values.
    avro: ClassVar[str] = "null"
    types: ClassVar[tuple[type, ...]] = ()

    def __init__(
        self,
        default: Any = None,  # noqa: ANN401 - of the field's type
        required: bool = False,  # noqa: FBT001, FBT002 - as the official client has it
        required_default: bool = False,  # noqa: FBT001, FBT002 - as the official client has it
    ) -> None:
        self.default = default
        self.required = required
        self.required_default = required_default

    def definition(self, defined: set[str]) -> Any:  # noqa: ANN401, ARG002 - Avro
        """The type of the field in Avro. Names in ``defined`` need no second definition."""
        return self.avro

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any value
        """The value for the field. Raises ``TypeError`` for a value of another type."""
        if value is not None and not isinstance(value, self.types):
            raise TypeError(f"{name} is of type {self.avro}, and not {type(value).__name__}")
        return value


def _primitive(name: str, avro: str, *types: type) -> type[Field]:
    made = type(name, (Field,), {"avro": avro, "types": types, "__doc__": f"Avro's ``{avro}``."})
    made.__module__ = __name__
    return made


# The Python types are those that the official client accepts: a whole number is a float, too, where
# Avro has a float.
Null = _primitive("Null", "null", type(None))
Boolean = _primitive("Boolean", "boolean", bool)
Integer = _primitive("Integer", "int", int)
Long = _primitive("Long", "long", int)
Float = _primitive("Float", "float", float, int)
Double = _primitive("Double", "double", float, int)
Bytes = _primitive("Bytes", "bytes", bytes)
String = _primitive("String", "string", str)


class Record:
    """A record: subclasses declare its fields as attributes."""

    # These two are set by subclasses, as with the official client.
    _avro_namespace: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    # In the order of their declaration; those of a base class come first.
    _fields: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        declared = {
            name: made
            for name, value in vars(cls).items()
            if (made := _field_of(value)) is not None
        }
        # A new mapping for each class: a subclass must not add fields to its base.
        cls._fields = {**cls._fields, **declared}

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - of the fields' types
        for name, field in self._fields.items():
            setattr(self, name, values.get(name, field.default))

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - of the field's type
        # A misspelt field would otherwise be lost without a word when the record is encoded.
        if name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        # At once, not when it is encoded: the traceback shows who has set it.
        object.__setattr__(self, name, self._fields[name].checked(name, value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"

    @classmethod
    def schema(cls) -> Any:  # noqa: ANN401 - Avro
        """The definition of the record in Avro."""
        return cls.definition(set())

    @classmethod
    def definition(cls, defined: set[str]) -> Any:  # noqa: ANN401 - Avro
        """As ``schema``, or the name alone of a record that is in ``defined``."""
        prefix = f"{cls._avro_namespace}." if cls._avro_namespace is not None else ""
        # Avro allows one definition of a name; a record that contains itself refers to it.
        if prefix + cls.__name__ in defined:
            return prefix + cls.__name__
        # Before its fields, one of which may be a record of this class.
        defined.add(prefix + cls.__name__)
        made: dict[str, Any] = {"type": "record", "name": cls.__name__}
        if cls._avro_namespace is not None:
            made["namespace"] = cls._avro_namespace
        made["fields"] = []
        # The order of fields is part of a schema in Avro: payloads have no names.
        for name in sorted(cls._fields) if cls._sorted_fields else cls._fields:
            field = cls._fields[name]
            kind = field.definition(defined)
            entry = {"name": name, "type": kind if field.required else ["null", kind]}
            # Not otherwise, even if there is a default: the definition must equal that of the
            # official client.
            if field.required_default:
                default = field.default
                entry["default"] = default.name if isinstance(default, Enum) else default
            made["fields"].append(entry)
        return made


class _RecordField(Field):
    def __init__(self, record: type[Record]) -> None:
        super().__init__()
        self._record = record

    def definition(self, defined: set[str]) -> Any:  # noqa: ANN401 - Avro
        return self._record.definition(defined)

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any value
        # A decoded payload has dicts for inner records.
        if isinstance(value, dict):
            return self._record(**value)
        if value is not None and not isinstance(value, self._record):
            raise TypeError(f"{name} is a {self._record.__name__}, and not {type(value).__name__}")
        return value


class CustomEnum(Field):
    """A member of an ``Enum``, by its name in Avro."""

    def __init__(self, enum: type[Enum], **options: Any) -> None:  # noqa: ANN401 - as Field's
        super().__init__(**options)
        self._enum = enum

    def definition(self, defined: set[str]) -> Any:  # noqa: ANN401 - Avro
        """As ``Field.definition``."""
        # Avro allows one definition of a name here, too.
        if self._enum.__name__ in defined:
            return self._enum.__name__
        defined.add(self._enum.__name__)
        return {
            "type": "enum",
            "name": self._enum.__name__,
            # Names, not values: Avro has symbols alone.
            "symbols": [e.name for e in self._enum],
        }

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any value
        """As ``Field.checked``; a name becomes its member."""
        if isinstance(value, str) and value in self._enum.__members__:
            return self._enum[value]
        if value is not None and not isinstance(value, self._enum):
            raise TypeError(f"{name} is a {self._enum.__name__}, and not {value!r}")
        return value


class Array(Field):
    """A list of values of one type."""

    def __init__(self, array_type: Any, **options: Any) -> None:  # noqa: ANN401 - a field
        super().__init__(**options)
        self._of = _inner(array_type)

    def definition(self, defined: set[str]) -> Any:  # noqa: ANN401 - Avro
        """As ``Field.definition``."""
        return {"type": "array", "items": self._of.definition(defined)}

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any value
        """As ``Field.checked``."""
        return None if value is None else [self._of.checked(name, each) for each in value]


class Map(Field):
    """A dictionary with text as its keys, and values of one type."""

    def __init__(self, value_type: Any, **options: Any) -> None:  # noqa: ANN401 - a field
        super().__init__(**options)
        self._of = _inner(value_type)

    def definition(self, defined: set[str]) -> Any:  # noqa: ANN401 - Avro
        """As ``Field.definition``."""
        return {"type": "map", "values": self._of.definition(defined)}

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any value
        """As ``Field.checked``."""
        if value is None:
            return None
        return {key: self._of.checked(name, each) for key, each in value.items()}


def _field_of(value: object) -> Field | None:
    """The field that an attribute of a record declares, None for other attributes."""
    if isinstance(value, Field):
        return value
    # The official client takes an instance of a record as a declaration, and also its class.
    if isinstance(value, Record):
        return _RecordField(type(value))
    if isinstance(value, type) and issubclass(value, Record):
        return _RecordField(value)
    if isinstance(value, type) and issubclass(value, Enum):
        return CustomEnum(value)
    return None


def _inner(value: object) -> Field:
    made = _field_of(value)
    if made is None:
        raise TypeError(f"{value!r} is no field, and no record")
    return made
