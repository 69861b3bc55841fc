"""Commands as protobuf has them: from bytes to a ``BaseCommand`` that can be relied on, and back.

SEND, its receipt and MESSAGE come once for every message and are written by hand in ``send.py``
and ``message.py``; what a broker answers is put together in ``answers.py``.
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

# A MESSAGE as brokers write it: its type, and the tag of the part of that type.
MESSAGE_START = b"\x08\x09\x4a"

# What stands for "no request" where a command of the broker's own accord wants a request id.
NO_REQUEST_ID = UINT64_MAX

# A command's part has the field number of its type.
PART_NAMES: Mapping[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.number > 1
}
assert all(number in PART_NAMES for number in BaseCommand.Type.values())

# Those whose part holds text somewhere.
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

    Returns it and where its payload begins (``end`` if there is none). A returned command is
    complete: the part of its type is there, the required fields are there (but for the ids in an
    ACK, which then read 0), and what should be text is text.

    Raises ``UnknownCommand``, ``IncompleteCommand`` or another ``WireError``.
    """
    command_start = start + COMMAND_SIZE_BYTES
    if command_start > end:
        raise TruncatedFrame("the command size", COMMAND_SIZE_BYTES, end - start)
    (command_bytes,) = _read_command_bytes(buffer, start)
    command_end: int = command_start + command_bytes
    if command_end > end:
        raise TruncatedFrame("the command", command_bytes, end - command_start)
    encoded = buffer[command_start:command_end]
    try:
        command = _parse_base_command(encoded)
    except DecodeError as error:
        raise WireError(f"not a command: {error}") from error
    # What a consumer gets most, and what holds no text: 1 us less for each.
    is_message = encoded.startswith(MESSAGE_START) and command.type == _MESSAGE
    if is_message and command.IsInitialized():
        return command, command_end
    command_type = _check_complete(command)
    if command_type in _TYPES_WITH_TEXT and not encoded.isascii():
        check_text(getattr(command, PART_NAMES[command_type]))
    return command, command_end


def encode_command(command: BaseCommand) -> bytes:
    """The whole frame of a command without payload."""
    encoded = command.SerializeToString()
    return FRAME_HEAD.pack(COMMAND_SIZE_BYTES + len(encoded), len(encoded)) + encoded


def key_values(properties: Mapping[str, str] | None) -> list[KeyValue]:
    """Properties as commands and metadata carry them."""
    return [KeyValue(key=key, value=value) for key, value in (properties or {}).items()]


PING = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


def _check_complete(command: BaseCommand) -> BaseCommand.Type.ValueType:
    """The type of a command that is complete; raises ``UnknownCommand``, ``IncompleteCommand``."""
    command_type = command.type
    part_name = PART_NAMES[command_type]
    has_part = command.HasField(part_name)  # type: ignore[arg-type]  # a literal for the stubs
    # The type is one of the required fields: without it the first type there is would read.
    if has_part and command_type != _ACK and command.IsInitialized():
        return command_type
    if not command.HasField("type"):
        raise UnknownCommand(_unknown_type(command))
    if not has_part:
        raise IncompleteCommand(command, (part_name,))
    # Looking into each id of an ACK would take 3x as long as parsing it.
    if (
        command_type == _ACK
        and command.ack.HasField("consumer_id")
        and command.ack.HasField("ack_type")
    ):
        return command_type
    raise IncompleteCommand(command, missing_fields(command))


def _unknown_type(command: BaseCommand) -> int | None:
    """The number that stands where the type should be; None if there is none."""
    unknown = cast("Iterable[_UnknownField]", UnknownFieldSet(command))
    for field in unknown:
        if field.field_number == BaseCommand.TYPE_FIELD_NUMBER and field.wire_type == _VARINT:
            return field.data
    return None


class _UnknownField(Protocol):
    """What the published stubs leave out."""

    field_number: int
    wire_type: int
    data: int  # of a varint
