"""Parses records that are protobuf messages: strictly, and with ``MalformedRecord`` as error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from geminga_protocol.records.errors import MalformedRecord

AnyMessage = TypeVar("AnyMessage", bound=Message)


def parse_message(kind: type[AnyMessage], value: bytes, record: str) -> AnyMessage:
    """Parse ``value`` as a message of type ``kind``; ``record`` names it in errors.

    Raises ``MalformedRecord`` for bytes that are no such message, and for a message without one of
    its required fields, which protobuf's parser accepts.
    """
    # Unknown fields are kept by protobuf inside the message, but the values made of it drop them: a
    # record that is written back has the fields that this version knows.
    try:
        message = kind.FromString(value)
    except DecodeError as error:
        raise MalformedRecord(record, str(error)) from error
    if not message.IsInitialized():
        raise MalformedRecord(record, "a required field is missing")
    return message


def text_of(field: object, record: str) -> str:
    """A string field as text.

    Protobuf returns bytes where it is not UTF-8: they raise ``MalformedRecord``.
    """
    if isinstance(field, str):
        return field
    raise MalformedRecord(record, f"text that is not UTF-8: {field!r}")


def texts_of(fields: Iterable[object], record: str) -> tuple[str, ...]:
    """``text_of`` for a repeated string field."""
    return tuple(text_of(field, record) for field in fields)
