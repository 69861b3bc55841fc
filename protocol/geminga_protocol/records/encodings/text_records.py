"""Records in protobuf's text form, in which BookKeeper keeps cookies and auto-recovery's marks."""

from __future__ import annotations

import warnings
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from geminga_protocol.records.errors import MalformedRecord

AnyMessage = TypeVar("AnyMessage", bound=Message)


def render_text(message: Message) -> str:
    """A message as Java's ``TextFormat`` prints it: one field on each line, in ASCII."""
    # Upstream's bytes are ASCII: other characters are octal escapes.
    return text_format.MessageToString(message, as_utf8=False)


def parse_text(kind: type[AnyMessage], text: str, record: str) -> AnyMessage:
    """Parse a message's text form; ``record`` names it in errors. Raises ``MalformedRecord``."""
    message = kind()
    try:
        # Protobuf accepts an invalid escape, of which Python only warns; here it is an error. The
        # filters of warnings belong to the whole process, not to a thread or a task. So nothing in
        # between may wait.
        with warnings.catch_warnings(action="error"):
            text_format.Parse(text, message)
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        raise MalformedRecord(record, str(error)) from error
    if not message.IsInitialized():
        raise MalformedRecord(record, "a required field is missing")
    return message


def text_of_bytes(value: bytes, record: str) -> str:
    """Decode a record that is text. Raises ``MalformedRecord`` where it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(record, "it is not text") from error
