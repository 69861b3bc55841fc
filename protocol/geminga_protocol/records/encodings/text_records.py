"""What records made of protobuf's text form share: BookKeeper keeps cookies and marks that way."""

from __future__ import annotations

import warnings
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from geminga_protocol.records.errors import MalformedRecord

AnyMessage = TypeVar("AnyMessage", bound=Message)


def render_text(message: Message) -> str:
    """A message as Java's ``TextFormat`` prints it: a field a line, all of it ASCII."""
    return text_format.MessageToString(message, as_utf8=False)


def parse_text(kind: type[AnyMessage], text: str, record: str) -> AnyMessage:
    """Parse a message's text form; ``record`` names it in errors. Raises ``MalformedRecord``."""
    message = kind()
    try:
        # What is written as an escape and is none, Python only warns of, and protobuf takes.
        with warnings.catch_warnings(action="error"):
            text_format.Parse(text, message)
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        raise MalformedRecord(record, str(error)) from error
    if not message.IsInitialized():
        raise MalformedRecord(record, "a required field is missing")
    return message


def text_of_bytes(value: bytes, record: str) -> str:
    """The text of a record. Raises ``MalformedRecord``."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(record, "it is not text") from error
