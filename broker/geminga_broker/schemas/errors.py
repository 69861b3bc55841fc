"""Why a schema is refused, or not found.

GemingaError
└── BrokerError
    ├── InvalidSchema         the definition is none
    ├── IncompatibleSchema    it may not follow the schemas that the topic has
    └── SchemaNotFound        the topic has no schema, or not this version
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError


class InvalidSchema(BrokerError):
    """The definition of a schema is not one of its type, or too large to be judged."""

    code: ClassVar[str] = "IncompatibleSchema"


class IncompatibleSchema(BrokerError):
    """The schema may not be used with those the topic has."""

    code: ClassVar[str] = "IncompatibleSchema"


class SchemaNotFound(BrokerError):
    """The topic has no schema, or has not the version that was asked for."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self) -> None:
        super().__init__("Schema not found")
