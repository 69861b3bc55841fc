"""JSON objects as dataclasses: the fields of a record define the names and types of its members.

A field is the member with the field's name in camel case, or with the name that ``Named`` gives in
``Annotated``. Its type is the member's: ``bool``, ``int``, ``float``, ``str``, another record,
``tuple[T, ...]`` for an array, ``Mapping[str, T]`` for an object with arbitrary names, ``object``
for any JSON. A field that is None is left out, as Jackson leaves out nulls. A missing member reads
as None where the type allows it, otherwise as the field's default. Members without a field are kept
in ``other`` and written back, so that a record passes through an older Geminga without loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import islice
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from geminga_protocol.records.encodings.json_text import parse_object, render
from geminga_protocol.records.errors import MalformedRecord

# Jackson reads numbers that are written as text, so some clients send them. A Java long has up to
# 19 digits.
_WHOLE_NUMBER = re.compile(r"\s*[-+]?[0-9]{1,19}\s*", re.ASCII)

# Encoding or decoding the loads of 100 bundles, the largest members that occur, takes half a
# millisecond.
MEMBERS_PER_PART = 100


class Named(str):
    """The member's name where it is not the field's name in camel case."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRecord:
    """The base of records in JSON; ``other`` has the members that are no fields."""

    other: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The record's bytes."""
        return render(to_document(self))

    def encode_in_parts(self) -> Iterator[bytes]:
        """The record's bytes in parts, each of which takes about a millisecond at most.

        For a record whose objects have thousands of members: between the parts a caller on the
        event loop lets other tasks run.
        """
        # What goes before the next member.
        begin = b"{"
        for member in _members(type(self)):
            value = getattr(self, member.field_name)
            # Left out, and the comma stays with the next member that is there.
            if value is None:
                continue
            yield begin + render(member.name) + b":"
            begin = b","
            if not isinstance(value, Mapping) or len(value) <= MEMBERS_PER_PART:
                yield render(_to_json(value))
                continue
            items = iter(value.items())
            inner_begin = b"{"
            while part := dict(islice(items, MEMBERS_PER_PART)):
                # Without its braces: the parts together are one object.
                yield inner_begin + render(_to_json(part))[1:-1]
                inner_begin = b","
            yield b"}"
        rest = render(self.other)[1:-1]
        # ``begin`` is still "{" where no member was written; the object is opened in any case.
        yield (begin if rest or begin == b"{" else b"") + rest + b"}"

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record. Raises ``MalformedRecord``."""
        return of_document(cls, parse_object(value, cls.__name__))

    @classmethod
    def decode_in_parts(cls, value: bytes) -> Generator[None, None, Self]:
        """Read a record in parts, each of which takes about a millisecond at most.

        The generator yields between the parts and returns the record. Raises ``MalformedRecord``.
        """
        document = parse_object(value, cls.__name__)
        yield
        large: dict[str, dict[str, object]] = {}
        for member in _members(cls):
            members = document.get(member.name)
            if member.is_mapping and isinstance(members, dict) and len(members) > MEMBERS_PER_PART:
                # Taken out, so that ``of_document`` below does not decode it again, in one go.
                del document[member.name]
                decoded = large[member.field_name] = {}
                items = iter(members.items())
                while part := dict(islice(items, MEMBERS_PER_PART)):
                    decoded.update(member.decode(part, member.where))
                    yield
        # ``of_document`` gave these fields their defaults. A mapping without a default would count
        # as missing there.
        return replace(of_document(cls, document), **cast("dict[str, Any]", large))


AnyRecord = TypeVar("AnyRecord", bound=JsonRecord)
Decode = Callable[[object, str], Any]


class _Member(NamedTuple):
    """What is known of one field."""

    field_name: str
    # The name in JSON.
    name: str
    # How errors name the field.
    where: str
    decode: Decode
    # A missing or null member reads as None.
    is_optional: bool
    # A missing member is an error: the field has no default.
    is_required: bool
    is_mapping: bool


def to_document(record: JsonRecord) -> dict[str, object]:
    """A record as a JSON object, with its members in the order of the fields."""
    document: dict[str, object] = {}
    for member in _members(type(record)):
        value = getattr(record, member.field_name)
        if value is not None:
            # By the exact type: most members are plain, and ``_to_json`` would take longer.
            plain = type(value) in _SIMPLE_DECODERS
            document[member.name] = value if plain else _to_json(value)
    document.update(record.other)
    return document


def of_document(kind: type[AnyRecord], document: Mapping[str, object]) -> AnyRecord:
    """Make a record from the members of a JSON object. Raises ``MalformedRecord``."""
    # Members are taken out of the copy one by one: what is left has no field.
    other = dict(document)
    values: dict[str, Any] = {}
    for member in _members(kind):
        value = other.pop(member.name, None)
        if value is not None:
            values[member.field_name] = member.decode(value, member.where)
        elif member.is_optional:
            # Null, or absent. A field with a default that is not None and the type ``T | None``
            # becomes None too: that is how Jackson reads a document which leaves out nulls.
            values[member.field_name] = None
        elif member.is_required:
            raise MalformedRecord(kind.__name__, f"{member.name} is missing")
    return kind(**values, other=other)


# Filled when a class is first read or written, which costs a look at its type hints.
_KNOWN_MEMBERS: dict[type[JsonRecord], tuple[_Member, ...]] = {}


def _members(kind: type[JsonRecord]) -> tuple[_Member, ...]:
    """The members of a class of records, from the table or found now."""
    known = _KNOWN_MEMBERS.get(kind)
    if known is not None:
        return known
    # Annotations are text in these modules (``from __future__ import annotations``): only this call
    # makes types of them.
    hints = get_type_hints(kind, include_extras=True)
    members: list[_Member] = []
    for each in fields(kind):
        if each.name == "other":
            continue
        hint = hints[each.name]
        first, *others = each.name.split("_")
        name = first + "".join(word.capitalize() for word in others)
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            name = next((str(note) for note in notes if isinstance(note, Named)), name)
        is_required = each.default is MISSING and each.default_factory is MISSING
        # ``object`` stands for any JSON, null included.
        is_optional = hint is object or NoneType in get_args(hint)
        where = f"{kind.__name__} {name}"
        is_mapping = get_origin(hint) is Mapping
        decode = _decoder_of(hint)
        members.append(
            _Member(each.name, name, where, decode, is_optional, is_required, is_mapping)
        )
    known = _KNOWN_MEMBERS[kind] = tuple(members)
    return known


def _to_json(value: object) -> object:
    """A field's value with all records in it as objects, ready for ``render``."""
    match value:
        case JsonRecord():
            return to_document(value)
        case Mapping():
            return {name: _to_json(member) for name, member in value.items()}
        # Lists come from ``other``, where JSON's arrays were never converted.
        case tuple() | list():
            return [_to_json(item) for item in value]
        case _:
            return value


def _decoder_of(hint: Any) -> Decode:  # noqa: ANN401 - a type hint has no type of its own
    """A function that makes a value of the type ``hint`` from JSON."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # ``T | None``: null never comes here, ``of_document`` takes it for a missing member.
        (hint,) = (each for each in arguments if each is not NoneType)
        return _decoder_of(hint)
    if origin is tuple:
        decode_item = _decoder_of(arguments[0])

        def decode_array(value: object, where: str) -> tuple[object, ...]:
            if not isinstance(value, list):
                raise MalformedRecord(where, f"{value!r} is no array")
            return tuple(decode_item(item, where) for item in value)

        return decode_array
    if origin is Mapping:
        decode_member = _decoder_of(arguments[1])

        def decode_mapping(value: object, where: str) -> dict[str, object]:
            members = _decode_object(value, where)
            return {name: decode_member(member, where) for name, member in members.items()}

        return decode_mapping
    if isinstance(hint, type) and issubclass(hint, JsonRecord):
        kind: type[JsonRecord] = hint
        return lambda value, where: of_document(kind, _decode_object(value, where))
    return _SIMPLE_DECODERS[hint]


def _decode_object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise MalformedRecord(where, f"{value!r} is no object")
    return value


def _decode_int(value: object, where: str) -> int:
    # To Python, True and False are numbers.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    raise MalformedRecord(where, f"{value!r} is no whole number")


def _decode_float(value: object, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            # JSON's whole numbers have any length.
            raise MalformedRecord(where, "a number out of range") from error
    # Jackson writes what JSON has no number for as text.
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(str(value))
    raise MalformedRecord(where, f"{value!r} is no number")


def _decode_bool(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise MalformedRecord(where, f"{value!r} is neither true nor false")


def _decode_str(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    raise MalformedRecord(where, f"{value!r} is no text")


_SIMPLE_DECODERS: Mapping[object, Decode] = {
    bool: _decode_bool,
    int: _decode_int,
    float: _decode_float,
    str: _decode_str,
    object: lambda value, _where: value,
}
