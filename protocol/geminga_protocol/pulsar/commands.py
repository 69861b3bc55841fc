"""Parses and encodes commands with protobuf: bytes to a complete ``BaseCommand``, and back.

SEND, its receipt, MESSAGE and ACK come once for every message; ``send.py``, ``message.py`` and
``ack.py`` parse and write their usual forms by hand. ``answers.py`` encodes a broker's responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Protocol, cast

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from geminga_protocol.errors import TruncatedFrame, WireError
from geminga_protocol.pulsar.api_pb2 import BaseCommand, CommandPing, CommandPong, KeyValue
from geminga_protocol.pulsar.errors import IncompleteCommand, UnknownCommand
from geminga_protocol.pulsar.frames import COMMAND_SIZE_BYTES
from geminga_protocol.pulsar.messages.integers import UINT64_MAX
from geminga_protocol.pulsar.messages.protobuf import check_text, holds_text, missing_fields

# +------------+--------------+-------------+
# | total size | command size | BaseCommand |      see frames.py
# |  u32       |  u32         |             |
# +------------+--------------+-------------+
FRAME_HEAD = Struct(">II")
COMMAND_SIZE = Struct(">I")

# How brokers begin a MESSAGE: type=9, and the tag of the field ``message``.
MESSAGE_START = b"\x08\x09\x4a"

# The request id in commands that a broker sends without a request, where the field is required.
NO_REQUEST_ID = UINT64_MAX

# A ``BaseCommand`` has one field for each type of command, its part. The number of the field is the
# number of the type.
PART_NAMES: Mapping[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.number > 1
}
assert all(number in PART_NAMES for number in BaseCommand.Type.values())

# The types whose part has a text field at any depth: only these can hold text that is not UTF-8.
_TYPES_WITH_TEXT = frozenset(
    field.number
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None and holds_text(field.message_type)
)

# Looked up once: an attribute of a protobuf class costs a search through its enums.
_ACK = BaseCommand.ACK
_MESSAGE = BaseCommand.MESSAGE
_VARINT = 0  # protobuf's wire type
_parse_base_command = BaseCommand.FromString
_read_command_bytes = COMMAND_SIZE.unpack_from


def parse_command(buffer: bytes, start: int, end: int) -> tuple[BaseCommand, int]:
    """Parse the command of the frame ``buffer[start:end]``, from the command size on.

    Returns the command and the position of its payload (``end`` if there is none). A returned
    command is complete: it has the part of its type and all required fields (except those of the
    ids in an ACK, which then read 0), and its text fields are UTF-8.

    Raises ``UnknownCommand``, ``IncompleteCommand`` or another ``WireError``.
    """
    command_start = start + COMMAND_SIZE_BYTES
    if command_start > end:
        raise TruncatedFrame("the command size", COMMAND_SIZE_BYTES, end - start)
    (command_bytes,) = _read_command_bytes(buffer, start)
    command_end: int = command_start + command_bytes
    if command_end > end:
        raise TruncatedFrame("the command", command_bytes, end - command_start)
    # A copy of the command alone: protobuf reads bytes, and no part of them.
    encoded = buffer[command_start:command_end]
    try:
        command = _parse_base_command(encoded)
    except DecodeError as error:
        raise WireError(f"not a command: {error}") from error
    # Stage 2: a command that protobuf can parse may still lack what its readers rely on. A MESSAGE,
    # the most frequent command of a consumer, has no text field to check: 1 us less.
    is_message = encoded.startswith(MESSAGE_START) and command.type == _MESSAGE
    if is_message and command.IsInitialized():
        return command, command_end
    command_type = _check_complete(command)
    # Where all bytes are ASCII, every text within them is UTF-8.
    if command_type in _TYPES_WITH_TEXT and not encoded.isascii():
        check_text(getattr(command, PART_NAMES[command_type]))
    return command, command_end


def encode_command(command: BaseCommand) -> bytes:
    """The whole frame of a command that has no payload."""
    encoded = command.SerializeToString()
    return FRAME_HEAD.pack(COMMAND_SIZE_BYTES + len(encoded), len(encoded)) + encoded


def key_values(properties: Mapping[str, str] | None) -> list[KeyValue]:
    """Properties as commands and metadata carry them."""
    return [KeyValue(key=key, value=value) for key, value in (properties or {}).items()]


# The same bytes each time: made once.
PING = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


def _check_complete(command: BaseCommand) -> BaseCommand.Type.ValueType:
    """Return the type of a complete command; raise ``UnknownCommand`` or ``IncompleteCommand``."""
    command_type = command.type
    part_name = PART_NAMES[command_type]
    has_part = command.HasField(part_name)  # type: ignore[arg-type]  # a literal for the stubs
    # ``type`` is a required field itself: a command without it reads as CONNECT, the first type.
    if has_part and command_type != _ACK and command.IsInitialized():
        return command_type
    if not command.HasField("type"):
        # Protobuf keeps an enum value that it does not know among the unknown fields.
        number = None
        for field in cast("Iterable[_UnknownField]", UnknownFieldSet(command)):
            if field.field_number == BaseCommand.TYPE_FIELD_NUMBER and field.wire_type == _VARINT:
                number = field.data
                break
        raise UnknownCommand(number)
    if not has_part:
        raise IncompleteCommand(command, (part_name,))
    # An ACK may have thousands of ids: looking into each would take 3x as long as parsing them.
    # These two are all that the handler of an ACK needs to answer; a message id without ledger or
    # entry reads 0:0.
    if (
        command_type == _ACK
        and command.ack.HasField("consumer_id")
        and command.ack.HasField("ack_type")
    ):
        return command_type
    raise IncompleteCommand(command, missing_fields(command))


class _UnknownField(Protocol):
    """A field of an ``UnknownFieldSet``, for which protobuf's stubs have no type."""

    field_number: int
    wire_type: int
    data: int  # of a varint
