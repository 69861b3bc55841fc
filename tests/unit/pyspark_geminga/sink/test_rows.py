"""Proves which columns become what of a message, and what cannot be written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from geminga.producers.outgoing.attributes import decode_attributes
from pyspark_geminga.sink.errors import InvalidColumn, InvalidRow
from pyspark_geminga.sink.rows import RawEncoder, RowLayout, Rows, in_stored_order

STAMP = pa.timestamp("us", tz="UTC")
TEXTS = pa.map_(pa.string(), pa.string())


def rows_of(
    columns: dict[str, tuple[pa.DataType, list[Any]]], *, has_topic_option: bool = True
) -> Rows:
    arrays = [pa.array(values, kind) for kind, values in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    layout = RowLayout.of(batch.schema, has_topic_option=has_topic_option)
    return layout.rows(batch, RawEncoder(pa.schema([(next(iter(columns)), batch.schema[0].type)])))


def test_a_value_alone_is_its_bytes() -> None:
    rows = rows_of({"value": (pa.binary(), [b"a", b""])})
    assert (rows.payloads, rows.attributes) == ([b"a", b""], [b"", b""])
    assert (rows.topics, rows.keys, rows.event_times_ms) == (None, None, None)
    assert rows_of({"text": (pa.string(), ["ü"])}).payloads == ["ü".encode()]


def test_a_null_value_is_a_null_message() -> None:
    rows = rows_of({"value": (pa.binary(), [b"a", None])})
    assert rows.payloads == [b"a", b""]
    assert not decode_attributes(rows.attributes[0]).is_null
    assert decode_attributes(rows.attributes[1]).is_null


def test_keys_times_and_properties_stand_in_the_attributes() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_999, UTC)
    rows = rows_of(
        {
            "value": (pa.binary(), [b"0", b"1", b"2"]),
            "__key": (pa.string(), ["k", None, ""]),
            "__eventTime": (STAMP, [moment, None, datetime(1970, 1, 1, tzinfo=UTC)]),
            "__messageProperties": (TEXTS, [[("b", "2"), ("a", "1")], None, []]),
        }
    )
    first, second, third = map(decode_attributes, rows.attributes)
    # Milliseconds, as messages have them: the Java connector writes microseconds here.
    assert (first.key, first.event_time_ms) == ("k", 1_767_323_045_678)
    assert first.properties == {"a": "1", "b": "2"}
    assert (second.key, second.event_time_ms, second.properties) == (None, None, {})
    assert (third.key, third.event_time_ms) == ("", None)
    assert rows.keys == ["k", None, ""]
    assert rows.event_times_ms == [1_767_323_045_678, 0, 0]


def test_an_event_time_may_be_milliseconds() -> None:
    rows = rows_of({"value": (pa.binary(), [b""]), "__eventTime": (pa.int64(), [77])})
    assert decode_attributes(rows.attributes[0]).event_time_ms == 77


def test_a_binary_key_is_stored_and_hashed_as_base64() -> None:
    rows = rows_of({"value": (pa.binary(), [b""]), "__key": (pa.binary(), [b"\xff"])})
    assert decode_attributes(rows.attributes[0]).key == b"\xff"
    assert rows.keys == ["/w=="]


def test_equal_properties_are_equal_bytes_in_whatever_order_they_come() -> None:
    rows = rows_of(
        {
            "value": (pa.binary(), [b"", b""]),
            "__messageProperties": (TEXTS, [[("b", "2"), ("a", "1")], [("a", "1"), ("b", "2")]]),
        }
    )
    assert rows.attributes[0] == rows.attributes[1] != b""


def test_a_slice_of_a_batch_has_its_own_rows() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"0", b"1", b"2"]),
            pa.array(["a", None, "c"]),
            pa.array([[("x", "0")], None, [("x", "2")]], TEXTS),
        ],
        names=["value", "__key", "__messageProperties"],
    )
    layout = RowLayout.of(batch.schema, has_topic_option=True)
    rows = layout.rows(batch.slice(2), RawEncoder(pa.schema([("value", pa.binary())])))
    assert rows.payloads == [b"2"]
    said = decode_attributes(rows.attributes[0])
    assert (said.key, said.properties) == ("c", {"x": "2"})


def test_the_topic_option_wins_over_the_column() -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "value": (pa.binary(), [b""]),
        "__topic": (pa.string(), ["orders"]),
    }
    assert rows_of(columns, has_topic_option=True).topics is None
    assert rows_of(columns, has_topic_option=False).topics == ["orders"]


def test_a_row_without_a_topic_is_refused() -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "value": (pa.binary(), [b"", b""]),
        "__topic": (pa.string(), ["orders", None]),
    }
    with pytest.raises(InvalidRow, match="'__topic' is null"):
        rows_of(columns, has_topic_option=False)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"value": pa.binary(), "__eventTime": pa.string()}, "'__eventTime' is timestamp, or"),
        ({"value": pa.binary(), "__key": pa.int32()}, "'__key' is string or binary, and not int32"),
        ({"value": pa.binary(), "__messageProperties": pa.string()}, "is map<string,string>"),
        ({"value": pa.binary(), "__partition": pa.int32()}, "is none that messages have: __key,"),
        ({"__key": pa.string()}, "a message is made of at least one column"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(
    columns: dict[str, pa.DataType], reason: str
) -> None:
    with pytest.raises(InvalidColumn, match=reason):
        RowLayout.of(pa.schema(list(columns.items())), has_topic_option=True)


@pytest.mark.parametrize("types", [[pa.int32()], [pa.binary(), pa.binary()]])
def test_raw_is_one_column_of_bytes_or_text(types: list[pa.DataType]) -> None:
    columns = [(str(number), kind) for number, kind in enumerate(types)]
    with pytest.raises(InvalidColumn, match="is not one of type binary or string"):
        RawEncoder(pa.schema(columns))


def test_a_row_needs_the_option_or_the_column_of_a_topic() -> None:
    with pytest.raises(InvalidColumn, match="the option topic as well"):
        RowLayout.of(pa.schema([("value", pa.binary())]), has_topic_option=False)


def test_the_former_id_and_publish_time_of_a_message_are_left_out() -> None:
    rows = rows_of(
        {
            "value": (pa.binary(), [b"a"]),
            "__messageId": (pa.binary(), [b"id"]),
            "__publishTime": (STAMP, [None]),
        }
    )
    assert (rows.payloads, rows.attributes) == ([b"a"], [b""])


def test_values_that_messages_cannot_have_are_refused() -> None:
    value: tuple[pa.DataType, list[Any]] = (pa.binary(), [b""])
    with pytest.raises(InvalidRow, match="before 1970"):
        rows_of({"value": value, "__eventTime": (pa.int64(), [-1])})
    with pytest.raises(InvalidRow, match="a value that is null"):
        rows_of({"value": value, "__messageProperties": (TEXTS, [[("a", None)]])})


def test_the_stored_order_depends_on_nothing_but_the_rows() -> None:
    def one(payload: bytes, said: bytes = b"", time: int | None = None) -> Rows:
        return Rows([payload], [said], None, None, None if time is None else [time])

    batches = [one(b"b"), one(b"a"), one(b"a", b"k"), one(b"z", time=5), one(b"c", time=4)]
    ordered = in_stored_order(batches)
    assert ordered == in_stored_order(batches[::-1])
    assert ordered.payloads == [b"a", b"b", b"a", b"c", b"z"]
    assert ordered.event_times_ms == [0, 0, 0, 4, 5]
    assert in_stored_order([one(b"b"), one(b"a")]).event_times_ms is None
