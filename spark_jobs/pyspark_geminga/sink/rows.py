"""What a row becomes: some columns are the value of the message, others its metadata.

The columns beginning with ``__`` are those that the source gives, with the Java connector's names:
``__key``, ``__eventTime``, ``__messageProperties`` and ``__topic`` are written. ``__messageId`` and
``__publishTime`` are accepted, so that rows can be copied, but ignored: brokers set them anew.
All other columns together are the value.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Protocol, TypeVar

import pyarrow as pa

from geminga import SchemaInfo, encode_attributes
from pyspark_geminga.sink.errors import InvalidColumn, InvalidRow

ValueT = TypeVar("ValueT")

# What becomes of the columns of a row:
#
#   no "__"                value -> payload
#   __key                  partition key, and the choice of a partition
#   __topic                the topic, unless the option names one
#   __eventTime            event time
#   __messageProperties    properties
#   other "__" names       refused, except those in NOT_WRITTEN
KEY, TOPIC, EVENT_TIME, PROPERTIES = "__key", "__topic", "__eventTime", "__messageProperties"
NOT_WRITTEN = ("__messageId", "__publishTime")


class ValueEncoder(Protocol):
    """Makes payloads of the columns that are the value."""

    @property
    def schema_info(self) -> SchemaInfo | None:
        """The schema of the payloads, which producers register; ``None`` for bytes without one."""
        ...

    def payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """A payload for each row; ``None`` for a message that is null."""
        ...


class RawEncoder:
    """The one column as it is, bytes or text, without a schema. Raises ``InvalidColumn``."""

    schema_info = None

    def __init__(self, columns: pa.Schema) -> None:
        if len(columns) != 1 or not (_is_text(columns.types[0]) or _is_bytes(columns.types[0])):
            raise InvalidColumn(", ".join(columns.names), "is not one of type binary or string")

    def payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """The bytes of each row."""
        column = batch.column(0)
        if not pa.types.is_binary(column.type):
            # Text as UTF-8, and the large types, whose offsets have 64 bits, as the plain one.
            column = column.cast(pa.binary())
        return column.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as they are stored, column by column: lists of the same length, or ``None`` for a column
    that no row has."""

    payloads: list[bytes]
    attributes: list[bytes]  # the encoded part of the metadata that is the row's own
    topics: list[str] | None = None
    keys: list[str | None] | None = None  # as text: producers hash that to choose a partition
    event_times_ms: list[int] | None = None  # 0 for a row without

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def size_bytes(self) -> int:
        """The bytes of payloads and attributes, without what entries add."""
        return sum(map(len, self.payloads)) + sum(map(len, self.attributes))

    def take(self, places: Sequence[int]) -> Rows:
        """The rows at these places, in this order."""
        return Rows(
            [self.payloads[at] for at in places],
            [self.attributes[at] for at in places],
            None if self.topics is None else [self.topics[at] for at in places],
            None if self.keys is None else [self.keys[at] for at in places],
            None if self.event_times_ms is None else [self.event_times_ms[at] for at in places],
        )


def in_stored_order(batches: Sequence[Rows]) -> Rows:
    """All rows, in an order that depends on nothing but what is stored of each.

    After a shuffle, rows come in another order each time a task runs, but a repeat has to send the
    same messages under the same sequence ids. Rows that compare equal are equal messages, so that
    their order does not matter. Within a topic rows are sorted by event time first: the messages of
    a key keep the order of what happened.
    """
    rows = Rows(
        [payload for batch in batches for payload in batch.payloads],
        [said for batch in batches for said in batch.attributes],
        _concatenated(batches, lambda batch: batch.topics, ""),
        _concatenated(batches, lambda batch: batch.keys, None),
        _concatenated(batches, lambda batch: batch.event_times_ms, 0),
    )
    topics, times = rows.topics or repeat(""), rows.event_times_ms or repeat(0)
    # Not strict: ``repeat`` has no end.
    stored = list(zip(topics, times, rows.attributes, rows.payloads, strict=False))
    return rows.take(sorted(range(len(rows)), key=stored.__getitem__))


def _concatenated(
    batches: Sequence[Rows], column: Callable[[Rows], list[ValueT] | None], absent: ValueT
) -> list[ValueT] | None:
    """A column of all batches; ``None`` where none of them has it."""
    columns = [column(batch) for batch in batches]
    if all(each is None for each in columns):
        return None
    return list(
        chain.from_iterable(
            [absent] * len(batch) if each is None else each
            for each, batch in zip(columns, batches, strict=True)
        )
    )


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Which columns of a query are what, by their names."""

    value: tuple[str, ...]  # the columns that make the payload
    # Which of the columns with metadata there are.
    key: bool
    topic: bool
    event_time: bool
    properties: bool

    @classmethod
    def of(cls, schema: pa.Schema, *, has_topic_option: bool) -> RowLayout:
        """The layout of rows with these columns; the option ``topic`` wins over ``__topic``.

        Raises ``InvalidColumn``.
        """
        for field in schema:
            # A type is checked when the query is planned: a task would fail only after rows were
            # stored.
            if field.name in _WRITTEN:
                is_right, wanted = _WRITTEN[field.name]
                if not is_right(field.type):
                    raise InvalidColumn(field.name, f"is {wanted}, and not {field.type}")
            elif field.name.startswith("__") and field.name not in NOT_WRITTEN:
                known = ", ".join((*_WRITTEN, *NOT_WRITTEN))
                raise InvalidColumn(field.name, f"is none that messages have: {known}")
        value = tuple(name for name in schema.names if not name.startswith("__"))
        if not value:
            raise InvalidColumn("value", "is missing: a message is made of at least one column")
        if len(set(schema.names)) < len(schema.names):
            raise InvalidColumn(", ".join(schema.names), "has a name twice")
        if not has_topic_option and TOPIC not in schema.names:
            raise InvalidColumn(TOPIC, "is missing, and the option topic as well: one is needed")
        return cls(
            value,
            KEY in schema.names,
            TOPIC in schema.names and not has_topic_option,
            EVENT_TIME in schema.names,
            PROPERTIES in schema.names,
        )

    def rows(self, batch: pa.RecordBatch, encoder: ValueEncoder) -> Rows:
        """What is stored of a record batch. Raises ``InvalidRow``, or what the encoder raises."""
        # Column by column from here on: nothing below loops over rows in Python unless a column
        # needs it.
        payloads = encoder.payloads(batch.select(list(self.value)))
        are_null: list[bool] | None = None
        # Arrow knows at once whether a column has nulls; to look for them takes 50 ns a row.
        if any(batch.column(name).null_count for name in self.value) and None in payloads:
            are_null = [payload is None for payload in payloads]
            # The null flag is in the attributes: a message that is null and an empty one differ.
            payloads = [payload or b"" for payload in payloads]
        # Columns without any value are left out, as if the query did not have them.
        keys: list[str | bytes | None] | None = None
        if self.key and batch.column(KEY).null_count < len(batch):
            keys = batch.column(KEY).to_pylist()
        times = _times_ms(batch.column(EVENT_TIME)) if self.event_time else None
        properties: list[dict[str, str] | None] | None = None
        if self.properties:
            column = batch.column(PROPERTIES)
            # ``items`` also has those of rows that are null or not in this slice. The check may
            # therefore refuse too much, but never too little.
            if len(column.items) and column.null_count < len(column):
                if column.items.null_count:
                    raise InvalidRow(
                        PROPERTIES, "has a value that is null, which messages cannot say"
                    )
                properties = [dict(pairs) if pairs else None for pairs in column.to_pylist()]
        if keys is None and times is None and properties is None and are_null is None:
            # Most queries write nothing but values: there is nothing to encode then.
            attributes = [b""] * len(payloads)
        else:
            attributes = encode_attributes(
                len(payloads),
                keys=keys,
                event_times_ms=times,
                properties=properties,
                are_null=are_null,
            )
        # Topics and keys stay beside the attributes, since they choose where the row goes; event
        # times, since rows are sorted by them.
        topics: list[str] | None = None
        if self.topic:
            column = batch.column(TOPIC)
            if column.null_count:
                raise InvalidRow(
                    TOPIC, "is null: the row goes to no topic, and there is no option topic"
                )
            topics = column.to_pylist()
        return Rows(
            payloads,  # type: ignore[arg-type]  # none of them is None any more
            attributes,
            topics,
            # Keys of bytes are stored in base64, and partitions are chosen by that text.
            None
            if keys is None
            else [b64encode(key).decode() if isinstance(key, bytes) else key for key in keys],
            None if times is None else [time or 0 for time in times],
        )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


# The columns that are written, which types they may have, and how Spark calls these.
_WRITTEN: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    KEY: (lambda kind: _is_text(kind) or _is_bytes(kind), "string or binary"),
    TOPIC: (_is_text, "string"),
    EVENT_TIME: (
        lambda kind: pa.types.is_int64(kind) or pa.types.is_timestamp(kind),
        "timestamp, or bigint for milliseconds since 1970",
    ),
    PROPERTIES: (
        lambda kind: pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type),
        "map<string,string>",
    ),
}


def _times_ms(column: pa.Array) -> list[int | None] | None:
    """Milliseconds since 1970, as messages have them; microseconds of timestamps are dropped."""
    if column.null_count == len(column):
        return None
    if pa.types.is_timestamp(column.type):
        # ``safe`` would raise for times that are no whole milliseconds.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    times: list[int | None] = column.to_pylist()
    # The field is unsigned on the wire.
    if min(time or 0 for time in times) < 0:
        raise InvalidRow(EVENT_TIME, "is before 1970, which messages cannot say")
    return times
