"""Errors of records that cannot be read.

WireError
└── MalformedRecord         the bytes are not the expected record
    └── UnsupportedRecord   a valid record, in a version or an encoding that Geminga does not read
"""

from __future__ import annotations

from typing import ClassVar

from geminga_protocol.errors import WireError


class MalformedRecord(WireError):
    """A record breaks its format; ``record`` names the kind of record."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, record: str, what: str) -> None:
        super().__init__(f"not a {record} record: {what}")
        self.record = record


class UnsupportedRecord(MalformedRecord):
    """A record is valid, but in a version or an encoding that Geminga does not read."""
