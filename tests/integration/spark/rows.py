"""Rows as the source gives them, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from geminga import MessageId

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
SCHEMA = (
    "value binary, __key binary, __topic string, __messageId binary, __publishTime timestamp, "
    "__eventTime timestamp, __messageProperties map<string, string>"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A stored message; times are seconds since noon of a day, ``place`` its ledger, entry
    and index in a batch."""

    value: bytes
    key: bytes | None = None
    topic: str = "t"
    place: tuple[int, int, int] = (1, 1, -1)
    published_s: float = 0
    event_s: float | None = None


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """The rows with the raw source's columns."""
    return spark.createDataFrame(
        [
            (
                row.value,
                row.key,
                row.topic,
                MessageId(*row.place).to_bytes(),
                NOON + timedelta(seconds=row.published_s),
                None if row.event_s is None else NOON + timedelta(seconds=row.event_s),
                {"row": str(number)},
            )
            for number, row in enumerate(rows)
        ],
        SCHEMA,
    )
