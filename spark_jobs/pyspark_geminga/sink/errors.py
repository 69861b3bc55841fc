"""What keeps rows from being written.

ConnectorError
├── InvalidColumn      a column that messages do not have, or not with this type
├── InvalidRow         a row that no message can be made of
├── IncompleteInput    the stage before the sink failed
├── NotDeduplicated    exactly-once was asked of a topic that stores repeats
└── EpochOutOfOrder    a topic has a later batch of the query than the one to be written
"""

from __future__ import annotations

from pyspark_geminga.errors import ConnectorError


class InvalidColumn(ConnectorError):
    """A column of what is written cannot be used; the text says what can."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column!r} {reason}")
        self.column = column


class InvalidRow(ConnectorError):
    """No message can be made of a row: one of its columns has a value that messages cannot have."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"a row's {column!r} {reason}")
        self.column = column


class IncompleteInput(ConnectorError):
    """A task did not get all of its rows: the stage before it failed, which Spark reports."""

    def __init__(self) -> None:
        super().__init__("the rows of this task ended too early, because the stage before failed")


class NotDeduplicated(ConnectorError):
    """``semantics=dedup`` was asked of a topic that stores repeated messages."""

    def __init__(self, topic: str, status: str) -> None:
        super().__init__(
            f"{topic} does not deduplicate (its broker says {status!r}), so that semantics=dedup "
            "would store rows twice after a failure: turn it on for the namespace (pulsar-admin "
            "namespaces set-deduplication --enable tenant/namespace) or use at-least-once"
        )
        self.topic = topic
        self.status = status


class EpochOutOfOrder(ConnectorError):
    """A topic has messages of a later batch than the one that is to be written now: the rows of
    this one would be dropped as repeats."""

    def __init__(self, topic: str, producer: str, epoch: int, stored_epoch: int) -> None:
        super().__init__(
            f"{topic} has batch {stored_epoch} of {producer} already, and would drop all rows of "
            f"batch {epoch}: was the query started from an old copy of its checkpoint? Start it "
            "with a new checkpoint; it then counts as another query"
        )
        self.topic = topic
        self.epoch = epoch
        self.stored_epoch = stored_epoch
