"""Errors of Pulsar's protocol, beyond those of frames and checksums.

GemingaError
├── WireError
│   ├── UnknownCommand      a command of a type that this version does not know
│   └── IncompleteCommand   a command without fields that its type demands
├── InvalidTopicName        a name that no topic or namespace can have
├── InvalidPattern          a pattern of topic names with a syntax error
└── UnsupportedPattern      a pattern that may be valid, but that brokers here do not match
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_runtime.errors import GemingaError


class UnknownCommand(WireError):
    """The command has a type that is newer than this version, or none (``number`` is None).

    Its frame was complete, so the stream can be read on.
    """

    code: ClassVar[str] = "UnsupportedVersionError"

    def __init__(self, number: int | None = None) -> None:
        is_missing = number is None
        super().__init__(
            "the command has no type" if is_missing else f"a command of type {number} is not known"
        )
        self.number = number


class IncompleteCommand(WireError):
    """``command`` lacks required fields: ``fields`` names them."""

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, command: BaseCommand, fields: tuple[str, ...]) -> None:
        self.command_type = BaseCommand.Type.Name(command.type)
        super().__init__(f"the command {self.command_type} lacks {', '.join(fields)}")
        self.command = command
        self.fields = fields


class InvalidTopicName(GemingaError):
    """A name from outside is one that no topic or namespace can have."""

    code: ClassVar[str] = "InvalidTopicName"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"invalid name {name!r}: {reason}")
        self.name = name
        self.reason = reason


class InvalidPattern(GemingaError):
    """A regular expression from outside has a syntax error."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a pattern of topic names: {reason}")
        self.reason = reason


class UnsupportedPattern(GemingaError):
    """A regular expression that this implementation does not match; its client must do so itself.

    Either matching could take longer than in proportion to the name's length, or RE2 and Java read
    the expression differently.
    """

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, reason: str) -> None:
        super().__init__(f"pattern not served, match it yourself: {reason}")
        self.reason = reason
