"""Parses protobuf messages from outside and checks what protobuf's parser lets pass.

The parser accepts messages without required fields and text fields that are not UTF-8. Here both
raise ``WireError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from geminga_protocol.errors import WireError

_MessageT = TypeVar("_MessageT", bound=Message)


def parse_message(kind: type[_MessageT], encoded: bytes) -> _MessageT:
    """Parse ``encoded`` as a message of type ``kind``.

    Raises ``WireError``, also for missing required fields and for text that is not UTF-8.
    """
    try:
        message = kind.FromString(encoded)
    except DecodeError as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error
    if not message.IsInitialized():
        raise WireError(f"a {kind.__name__} lacks {', '.join(missing_fields(message))}")
    # Text in ASCII is UTF-8. The test takes a fraction of the time of walking through the fields.
    if not encoded.isascii():
        check_text(message)
    return message


def missing_fields(message: Message) -> tuple[str, ...]:
    """The required fields that ``message`` lacks, as dotted names."""
    # Every message has the method; protobuf's stubs leave it out.
    return tuple(message.FindInitializationErrors())  # type: ignore[attr-defined]


def check_text(message: Message) -> None:
    """Raise ``WireError`` if a text field of ``message``, at any depth, is not UTF-8.

    Protobuf returns such a field as bytes. A message whose encoding is ASCII needs no check.
    """
    _check_text_fields(message, _text_fields(message.DESCRIPTOR))


def holds_text(descriptor: Descriptor) -> bool:
    """Whether messages of this type have a text field at any depth."""
    return bool(_text_fields(descriptor))


@dataclass(frozen=True, slots=True)
class _TextField:
    """A field that is text, or that is a message with text fields."""

    name: str
    is_repeated: bool
    # The fields of the message, by number; empty for a field that is text itself.
    inside: Mapping[int, _TextField]


@cache
def _text_fields(descriptor: Descriptor) -> Mapping[int, _TextField]:
    """The fields of a message type that are or contain text, by number."""
    fields: dict[int, _TextField] = {}
    for field in descriptor.fields:
        is_text = field.type == FieldDescriptor.TYPE_STRING
        inside: Mapping[int, _TextField] = {}
        # A message id may contain another message id (of a chunked message's first chunk): without
        # this condition the recursion would not end. Neither contains text.
        if field.message_type is not None and field.message_type is not descriptor:
            inside = _text_fields(field.message_type)
        if is_text or inside:
            fields[field.number] = _TextField(field.name, field.is_repeated, inside)
    return fields


def _check_text_fields(message: Message, fields: Mapping[int, _TextField]) -> None:
    # Most fields are not set: listing those that are takes half the time of asking for each.
    for descriptor, found in message.ListFields() if fields else ():
        field = fields.get(descriptor.number)
        if field is None:
            continue
        # A field that is text and not UTF-8 is returned as bytes by protobuf's C parser (upb) in
        # proto2; a field that has the type bytes is not among ``fields``.
        for value in found if field.is_repeated else (found,):
            if field.inside:
                _check_text_fields(cast(Message, value), field.inside)
            elif isinstance(value, bytes):
                raise WireError(f"{message.DESCRIPTOR.name}.{field.name} is not UTF-8")
