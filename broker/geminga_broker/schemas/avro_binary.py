"""Encodes and decodes values in Avro's binary form, by the schema of their writer. Pure.

Facts: "Binary Encoding" of the Avro 1.11 specification. Values are Python's own: a record and a map
are dicts, an array is a list, an enum is its symbol, ``bytes`` and ``fixed`` are bytes. Lengths and
numbers of items come from outside: reading is bounded by the bytes that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from geminga_broker.schemas.rules.avro import INT_MAX, LONG_MAX, NO_DEFAULT, AvroType
from geminga_protocol.errors import WireError

# Values of recursive types may have any depth; each level takes two of the interpreter's thousand
# frames. The interpreter's limit must not be what ends a value of a client.
DEPTH_MAX = 100

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def decode_avro(kind: AvroType, payload: bytes) -> Any:  # noqa: ANN401 - whatever the schema says
    """The value in ``payload``. Raises ``WireError`` for bytes that are no value of the type."""
    # Bytes of any origin: whatever is wrong with them ends as ``WireError``.
    reader = _Reader(payload)
    try:
        value = reader.value(kind, 0)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise WireError("an Avro value is cut short, or its text is no UTF-8") from None
    # A value does not say how long it is: bytes behind it mean that its schema was another one.
    if reader.at != len(payload):
        raise WireError(f"{len(payload) - reader.at} bytes follow an Avro value")
    return value


def encode_avro(kind: AvroType, value: object) -> bytes:
    """The payload of ``value``. A missing field gets its default, if that is null.

    Raises ``ValueError`` for a value that is not of the type; so is a record with unknown members.
    """
    out = bytearray()
    _write(out, kind, value)
    return bytes(out)


# Reading


@dataclass(slots=True, eq=False)
class _Reader:
    """Reads ``payload`` from ``at`` on."""

    payload: bytes
    at: int = 0

    def value(self, kind: AvroType, depth: int) -> Any:  # noqa: ANN401 - as above
        """Read a value that lies within ``depth`` others."""
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
                # A record is its fields in the order of the schema, without names.
                fields = kind.fields.values()
                return {each.name: self.value(each.type, depth + 1) for each in fields}

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        # A slice beyond the end is shorter than asked for, and never longer than the payload.
        taken = self.payload[self.at : self.at + size]
        if size < 0 or len(taken) < size:
            raise WireError("an Avro value is cut short")
        self.at += size
        return taken

    #     | 1 bbbbbbb | 1 bbbbbbb | 0 bbbbbbb |   7 bits in each byte, the lowest first; 0: the last
    def number(self) -> int:
        """Read a varint of at most 10 bytes; zigzag: its lowest bit is the sign."""
        result = 0
        for shift in range(0, 70, 7):
            byte = self.payload[self.at]
            self.at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)
        raise WireError("a number of an Avro value has more than 10 bytes")

    def text(self) -> str:
        """Read a string."""
        return self.take(self.number()).decode()

    def _index(self, count: int) -> int:
        """Read an index into ``count`` symbols or branches."""
        index = self.number()
        if not 0 <= index < count:
            raise WireError(f"an Avro value chooses {index} of {count}")
        return index

    def _items(self) -> Iterator[None]:
        """Yield once for each item of an array or a map, whose items come in blocks."""
        #     | n | item ... item |   | -n | bytes | item ... item |   | 0 |
        while count := self.number():
            if count < 0:
                # Then the block's size in bytes follows, for readers that skip it.
                count = -count
                self.number()
            # An item takes at least a byte, except for nulls, of which no schema here has arrays.
            # Without this a few bytes could ask for a loop of 2^63 rounds.
            if count > len(self.payload) - self.at:
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
    # A null has no bytes; numbers are varints, floats little-endian.
    match kind.kind:
        case "null":
            pass
        case "boolean":
            out.append(value)
        case "int" | "long":
            _write_number(out, value)
        case "float":
            out += _FLOAT.pack(value)
        case "double":
            out += _DOUBLE.pack(value)
        case "string" | "bytes":
            _write_bytes(out, value)
        case "fixed":
            out += value
        case "enum":
            _write_number(out, kind.symbols.index(value))
        case "union":
            # The first branch that fits, which is found: ``_is_of`` has looked for it.
            chosen = next(at for at, each in enumerate(kind.branches) if _is_of(each, value))
            _write_number(out, chosen)
            _write(out, kind.branches[chosen], value)
        case "array" | "map":
            _write_items(out, kind, value)
        case _:
            _write_record(out, kind, value)


def _write_items(out: bytearray, kind: AvroType, value: list[Any] | Mapping[str, Any]) -> None:
    """Write an array or a map: one block with all items, unless there are none, and the end."""
    if value:
        _write_number(out, len(value))
    for each in value:
        if isinstance(value, Mapping):
            _write_bytes(out, each)
            _write(out, kind.item, value[each])
        else:
            _write(out, kind.item, each)
    # A block of 0 items ends the value.
    out.append(0)


def _write_record(out: bytearray, kind: AvroType, value: Mapping[str, Any]) -> None:
    """Write the fields in the order of the schema, without names."""
    if unknown := value.keys() - kind.fields.keys():
        raise ValueError(f"{kind} has no {', '.join(sorted(unknown))}")
    for each in kind.fields.values():
        if each.name in value:
            _write(out, each.type, value[each.name])
        elif each.default is not NO_DEFAULT and each.default is None:
            _write(out, each.type, None)
        else:
            raise ValueError(f"{each.name} of {kind} is missing")


def _write_bytes(out: bytearray, value: str | bytes) -> None:
    encoded = value.encode() if isinstance(value, str) else value
    _write_number(out, len(encoded))
    out += encoded


def _write_number(out: bytearray, value: int) -> None:
    """Write a varint, zigzag: 0, -1, 1, -2 become 0, 1, 2, 3, so that small numbers stay short."""
    # For a long the shift by 63 gives 0 or -1, also in Python, as ``_is_of`` has bounded the value.
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _is_of(kind: AvroType, value: object) -> bool:
    """Whether ``value`` is of a type, as far as can be told without its items and fields."""
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            greatest = INT_MAX if kind.kind == "int" else LONG_MAX
            return (
                isinstance(value, int)
                and not isinstance(value, bool)  # Python's booleans are integers
                and -greatest - 1 <= value <= greatest
            )
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
