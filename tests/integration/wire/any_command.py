"""Commands of every type, whole by protobuf's rules: the plainest, the fullest, and any at all.

Made from the descriptors, so that a command added to the protocol is fuzzed from that day on.
"""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import PART_NAMES

TOPIC = "persistent://public/default/fuzz"
DEPTH_MAX = 4
REPEATED_MAX = 3

_INTEGER_BITS = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_FIXED32: (0, (1 << 32) - 1),
}
# Words that mean something where text is expected, beside any other text.
_WORDS = (TOPIC, "fuzz", "public/default", "persistent://public/default/a/b %?", "://", "")


def plainest(kind: int) -> api.BaseCommand:
    """The command of that type with its required fields only: ones, and names of one topic."""
    command, part = _empty(kind)
    _fill_plainly(part, depth=0, is_full=False)
    return command


def fullest(kind: int) -> api.BaseCommand:
    """The same with every field, those of the messages inside it too."""
    command, part = _empty(kind)
    _fill_plainly(part, depth=0, is_full=True)
    return command


def _empty(kind: int) -> tuple[api.BaseCommand, Message]:
    """A command of that type, and the message inside it."""
    command = api.BaseCommand(type=kind)  # type: ignore[arg-type]  # any number of the enum
    part: Message = getattr(command, PART_NAMES[kind])
    part.SetInParent()
    return command, part


def _fields(message: Message) -> list[FieldDescriptor]:
    """Its fields; the stubs offer the C implementation's descriptors beside these."""
    return cast("list[FieldDescriptor]", message.DESCRIPTOR.fields)


def _fill_plainly(message: Message, *, depth: int, is_full: bool) -> None:
    for field in _fields(message):
        if not field.is_required and (not is_full or depth == DEPTH_MAX):
            continue
        value = getattr(message, field.name)
        if field.message_type is not None:
            inner = value.add() if field.is_repeated else value
            inner.SetInParent()
            _fill_plainly(inner, depth=depth + 1, is_full=is_full)
        elif field.is_repeated:
            value.append(_plain(field))
        else:
            setattr(message, field.name, _plain(field))


def _plain(field: FieldDescriptor) -> object:
    if field.type == FieldDescriptor.TYPE_STRING:
        return TOPIC if "topic" in field.name else "fuzz"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"fuzz"
    if field.enum_type is not None:
        return field.enum_type.values[0].number
    return 1


@st.composite
def any_command(draw: st.DrawFn) -> api.BaseCommand:
    """A command of any type with any content that its schema allows."""
    kind = draw(st.sampled_from(sorted(PART_NAMES)))
    command, part = _empty(kind)
    _fill(draw, part, depth=0)
    return command


def _fill(draw: st.DrawFn, message: Message, *, depth: int) -> None:
    for field in _fields(message):
        if not field.is_required and (depth == DEPTH_MAX or not draw(st.booleans())):
            continue
        if field.is_repeated:
            for _ in range(draw(st.integers(0, REPEATED_MAX))):
                _add(draw, message, field, depth=depth)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(draw, inner, depth=depth + 1)
        else:
            setattr(message, field.name, draw(_scalar(field)))


def _add(draw: st.DrawFn, message: Message, field: FieldDescriptor, *, depth: int) -> None:
    values = getattr(message, field.name)
    if field.message_type is not None:
        _fill(draw, values.add(), depth=depth + 1)
    else:
        values.append(draw(_scalar(field)))


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([each.number for each in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(_WORDS) | st.text(max_size=20)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=20)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats()
    low, high = _INTEGER_BITS[field.type]
    return st.integers(0, 3) | st.integers(low, high)
