"""Values in Avro's binary form, by the schema that they were written with. Pure.

Facts: "Binary Encoding" of the Avro 1.11 specification. Values are Python's own: a record and a map
are dicts, an array is a list, an enum is its symbol, ``bytes`` and ``fixed`` are bytes. Numbers of
bytes and of items come from outside: what is read is bounded by the bytes that there are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from geminga_broker.schemas.judging.avro import INT_MAX, LONG_MAX, NO_DEFAULT, AvroType
from geminga_protocol.errors import WireError

# Recursive types make values as deep as they like; each level takes two of a thousand frames.
DEPTH_MAX = 100

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def decode_avro(kind: AvroType, payload: bytes) -> Any:  # noqa: ANN401 - whatever the schema says
    """The value that ``payload`` holds. Raises ``WireError`` for bytes that are none."""
    reader = _Reader(payload)
    try:
        value = reader.value(kind, 0)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise WireError("an Avro value is cut short, or its text is no UTF-8") from None
    if reader.at != len(payload):
        raise WireError(f"{len(payload) - reader.at} bytes follow an Avro value")
    return value


def encode_avro(kind: AvroType, value: object) -> bytes:
    """The payload of ``value``. A field that is missing gets its default, if that is null. Raises
    ``ValueError`` for what the schema cannot hold: also for a member that no field is for."""
    out = bytearray()
    _write(out, kind, value)
    return bytes(out)


# Reading


class _Reader:
    """Takes values from ``payload``, one behind the other."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.at = 0

    def value(self, kind: AvroType, depth: int) -> Any:  # noqa: ANN401 - as above
        if depth > DEPTH_MAX:
            raise WireError(f"an Avro value is more than {DEPTH_MAX} levels deep")
        if kind.kind in _PRIMITIVES:
            return _PRIMITIVES[kind.kind](self)
        match kind.kind:
            case "fixed":
                return self.take(kind.size)
            case "enum":
                return kind.symbols[self._index(len(kind.symbols))]
            case "union":
                return self.value(kind.branches[self._index(len(kind.branches))], depth + 1)
            case "array":
                return [self.value(kind.item, depth + 1) for _ in self._items()]
            case "map":
                return {self.text(): self.value(kind.item, depth + 1) for _ in self._items()}
            case _:
                fields = kind.fields.values()
                return {each.name: self.value(each.type, depth + 1) for each in fields}

    def take(self, size: int) -> bytes:
        taken = self._payload[self.at : self.at + size]
        if size < 0 or len(taken) < size:
            raise WireError("an Avro value is cut short")
        self.at += size
        return taken

    def number(self) -> int:
        """A varint of 10 bytes at most, zigzag: the sign is its last bit."""
        result = 0
        for shift in range(0, 70, 7):
            byte = self._payload[self.at]
            self.at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)
        raise WireError("a number of an Avro value has more than 10 bytes")

    def text(self) -> str:
        return self.take(self.number()).decode()

    def _index(self, count: int) -> int:
        index = self.number()
        if not 0 <= index < count:
            raise WireError(f"an Avro value chooses {index} of {count}")
        return index

    def _items(self) -> Iterator[None]:
        """Blocks of items; a negative count is followed by the block's size in bytes. An item takes
        a byte at least, but for nulls, of which no schema here has arrays."""
        while count := self.number():
            if count < 0:
                count = -count
                self.number()
            if count > len(self._payload) - self.at:
                raise WireError(f"{count} items of an Avro value are in fewer bytes")
            yield from (None for _ in range(count))


_PRIMITIVES: Mapping[str, Callable[[_Reader], Any]] = {
    "null": lambda _: None,
    "boolean": lambda reader: reader.take(1) != b"\0",
    "int": _Reader.number,
    "long": _Reader.number,
    "float": lambda reader: _FLOAT.unpack(reader.take(4))[0],
    "double": lambda reader: _DOUBLE.unpack(reader.take(8))[0],
    "bytes": lambda reader: reader.take(reader.number()),
    "string": _Reader.text,
}


# Writing


def _write(out: bytearray, kind: AvroType, value: Any) -> None:  # noqa: ANN401 - as above
    if not _is_of(kind, value):
        raise ValueError(f"{value!r} is no {kind}")
    _WRITERS[kind.kind](out, kind, value)


def _write_bytes(out: bytearray, _: AvroType, value: str | bytes) -> None:
    encoded = value.encode() if isinstance(value, str) else value
    _number(out, len(encoded))
    out += encoded


def _write_union(out: bytearray, kind: AvroType, value: object) -> None:
    chosen = next(at for at, each in enumerate(kind.branches) if _is_of(each, value))
    _number(out, chosen)
    _write(out, kind.branches[chosen], value)


def _write_array(out: bytearray, kind: AvroType, value: list[Any]) -> None:
    """One block, and the end: no block is empty."""
    if value:
        _number(out, len(value))
        for each in value:
            _write(out, kind.item, each)
    out.append(0)


def _write_map(out: bytearray, kind: AvroType, value: Mapping[str, Any]) -> None:
    if value:
        _number(out, len(value))
        for name, each in value.items():
            _write_bytes(out, kind, name)
            _write(out, kind.item, each)
    out.append(0)


def _write_record(out: bytearray, kind: AvroType, value: Mapping[str, Any]) -> None:
    if unknown := value.keys() - kind.fields.keys():
        raise ValueError(f"{kind} has no {', '.join(sorted(unknown))}")
    for each in kind.fields.values():
        if each.name in value:
            _write(out, each.type, value[each.name])
        elif each.default is not NO_DEFAULT and each.default is None:
            _write(out, each.type, None)
        else:
            raise ValueError(f"{each.name} of {kind} is missing")


def _number(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


_WRITERS: Mapping[str, Callable[[bytearray, AvroType, Any], None]] = {
    "null": lambda _, __, ___: None,
    "boolean": lambda out, _, value: out.append(value),
    "int": lambda out, _, value: _number(out, value),
    "long": lambda out, _, value: _number(out, value),
    "float": lambda out, _, value: out.extend(_FLOAT.pack(value)),
    "double": lambda out, _, value: out.extend(_DOUBLE.pack(value)),
    "string": _write_bytes,
    "bytes": _write_bytes,
    "fixed": lambda out, _, value: out.extend(value),
    "enum": lambda out, kind, value: _number(out, kind.symbols.index(value)),
    "union": _write_union,
    "array": _write_array,
    "map": _write_map,
    "record": _write_record,
}


def _is_of(kind: AvroType, value: object) -> bool:
    """Whether a value is of this type, as far as one sees without looking into it."""
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            greatest = INT_MAX if kind.kind == "int" else LONG_MAX
            is_number = isinstance(value, int) and not isinstance(value, bool)
            return is_number and -greatest - 1 <= value <= greatest  # type: ignore[operator]
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "enum":
            return value in kind.symbols
        case "bytes":
            return isinstance(value, bytes)
        case "fixed":
            return isinstance(value, bytes) and len(value) == kind.size
        case "array":
            return isinstance(value, list)
        case "union":
            return any(_is_of(each, value) for each in kind.branches)
        case _:
            return isinstance(value, dict)
