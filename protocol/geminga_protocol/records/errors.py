"""What is wrong with a record that could not be read.

WireError
└── MalformedRecord       the bytes are not the record that should stand there
    └── UnsupportedRecord   they are, in a version or an encoding that we do not read
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.errors import WireError


class MalformedRecord(WireError):
    """A record is not what its format says; ``record`` names its kind."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, record: str, what: str) -> None:
        super().__init__(f"not a {record} record: {what}")
        self.record = record


class UnsupportedRecord(MalformedRecord):
    """A record that its format allows, in a version or an encoding that we do not read."""
