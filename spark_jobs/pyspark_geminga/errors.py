"""What can go wrong in the Spark connector.

GemingaError
└── ConnectorError
    ├── InvalidOption      an option that is unknown, missing, or contradicts another
    ├── InvalidOffset      a JSON value that is no offset of this source
    ├── AdminRefused       the REST side of the cluster answered with an error
    └── DataLost           messages that the query has to read were deleted

Spark shows them as the cause of a failed query: their texts say which option or which topic.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class ConnectorError(GemingaError):
    """Something went wrong in the Spark connector."""


class InvalidOption(ConnectorError):
    """An option of ``spark.read`` or ``readStream`` cannot be used; the text says what can."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option!r}: {reason}")
        self.option = option


class InvalidOffset(ConnectorError):
    """A JSON value is no offset that this source wrote, or that users may give."""


class AdminRefused(ConnectorError):
    """The REST side of the cluster answered with an error, or not in its JSON."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"{url} answers {status}: {reason}")
        # HTTP's, by which callers decide whether to ask again.
        self.status = status


class DataLost(ConnectorError):
    """Messages that the query has to read were deleted, or may have been.

    If a ledger was deleted while the query was down, it is unknown whether the query had read all
    of it. ``wanted`` is where the query has to go on, ``available`` the first position that the
    topic still has (``None`` where the topic is gone, or empty).
    """

    code: ClassVar[str] = "DataLost"

    def __init__(self, topic: str, wanted: object, available: object) -> None:
        found = (
            "the topic is gone, or empty"
            if available is None
            else f"the topic begins at {available}"
        )
        super().__init__(
            f"{topic} was read up to {wanted}, but {found}: messages between may have been "
            "deleted before they were read; failOnDataLoss=false goes on with what is there"
        )
        self.topic = topic
        self.wanted = wanted
        self.available = available
