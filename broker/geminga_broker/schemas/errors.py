"""Why a schema is refused, or not found.

GemingaError
└── BrokerError
    ├── InvalidSchema         the definition is not valid
    ├── IncompatibleSchema    the schema may not follow those that the topic has
    └── SchemaNotFound        the topic has no schema, or not this version
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError


class InvalidSchema(BrokerError):
    """The definition of a schema is not valid for its type, or too large to be compared."""

    code: ClassVar[str] = "IncompatibleSchema"


class IncompatibleSchema(BrokerError):
    """The schema may not be used with those that the topic has."""

    code: ClassVar[str] = "IncompatibleSchema"


class SchemaNotFound(BrokerError):
    """The topic has no schema, or not the version that was asked for."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self) -> None:
        super().__init__("Schema not found")
