"""Proves that rows have the columns of a topic's schema, each message read by the version that it
was written with, and that bad records become what the reader wants of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.geminga.arrow.stored import deliver, plain_batch, rows_of
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, metadata
from tests.unit.geminga.schema_answers import tells

from geminga import (
    AvroSchema,
    Client,
    KeyValueSchema,
    MessageId,
    StringSchema,
    UnreadableMessage,
)
from geminga.arrow import CORRUPT, METADATA_FIELDS, read_batches, read_table
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload


def record(*fields: dict[str, Any]) -> AvroSchema[Any]:
    return AvroSchema(object, definition={"type": "record", "name": "R", "fields": fields})


ID, NOTE = {"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}
BEFORE, NOW = record(ID), record(ID, NOTE)
VERSIONS = {b"\0": BEFORE.schema_info, b"\1": NOW.schema_info}


def written(payload: bytes, version: bytes | None) -> bytes:
    described = metadata()
    if version is not None:
        described.schema_version = version
    return encode_payload(described, payload)


async def test_each_message_is_read_by_its_version_which_is_asked_for_once(
    client: Client, broker: FakeBroker
) -> None:
    asked: list[bytes] = []
    broker.on(BaseCommand.GET_SCHEMA, tells({**VERSIONS, b"": NOW.schema_info}, asked))
    deliver(
        broker,
        written(BEFORE.encode({"id": 1}), b"\0"),
        written(NOW.encode({"id": 2, "note": "x"}), b"\1"),
        written(BEFORE.encode({"id": 3}), b"\0"),
        written(NOW.encode({"id": 4, "note": "y"}), None),
    )
    schema = await client.schema("orders")
    assert schema == NOW.schema_info
    rows = await rows_of(client, schema=schema, columns=["note", "id"])
    assert rows == [
        {"note": "", "id": 1},
        {"note": "x", "id": 2},
        {"note": "", "id": 3},
        {"note": "y", "id": 4},
    ]
    assert asked == [b"", b"\0", b"\1"]


async def test_without_columns_of_the_payload_no_schema_is_asked_for(
    client: Client, broker: FakeBroker
) -> None:
    asked: list[bytes] = []
    broker.on(BaseCommand.GET_SCHEMA, tells(VERSIONS, asked))
    deliver(broker, written(b"damaged", b"\0"))
    rows = await rows_of(client, schema=NOW.schema_info, columns=["__key"])
    assert rows == [{"__key": None}]
    assert asked == []


async def test_a_topic_without_a_schema_has_none(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.GET_SCHEMA, tells({}, []))
    assert await client.schema("orders") is None
    assert await client.schema("orders", b"\7") is None


def bad_and_good(broker: FakeBroker) -> list[bytes]:
    """A batch with a bad record in it, an entry that is damaged, one whose schema is gone, and a
    good one."""
    broker.on(BaseCommand.GET_SCHEMA, tells({}, []))
    good = NOW.encode({"id": 1, "note": ""})
    damaged = encode_payload(metadata(), good)[:-1] + b"!"
    entries = [plain_batch(good, b"\xff", good), damaged, written(good, b"\7"), written(good, None)]
    deliver(broker, *entries)
    return entries


async def test_a_bad_record_fails_the_reader_by_default(client: Client, broker: FakeBroker) -> None:
    entries = bad_and_good(broker)
    deliver(broker, entries[0], entries[3])
    with pytest.raises(
        UnreadableMessage, match=f"message {LEDGER}:0:-1:1 of .*none of this schema"
    ):
        await read_table(client, "orders", schema=NOW.schema_info)


async def test_bad_records_may_be_rows_without_a_value(client: Client, broker: FakeBroker) -> None:
    bad_and_good(broker)
    table = await read_table(client, "orders", schema=NOW.schema_info, bad_records="permissive")
    assert table.column_names == ["id", "note", *METADATA_FIELDS, CORRUPT.name]
    good = NOW.encode({"id": 1, "note": ""})
    rows = table.select(["id", "__corrupt"]).to_pylist()
    assert [row["id"] for row in rows] == [1, None, 1, None, None, 1]
    assert [row["__corrupt"] for row in rows[:3]] == [None, b"\xff", None]
    assert rows[3]["__corrupt"].endswith(good[:-1] + b"!")
    assert [row["__corrupt"] for row in rows[4:]] == [good, None]
    assert table.column("__messageId").to_pylist()[3] == MessageId(LEDGER, 1).to_bytes()
    times = table.column("__publishTime").to_pylist()
    assert [time is None for time in times] == [False, False, False, True, False, False]


async def test_bad_records_may_be_left_out(client: Client, broker: FakeBroker) -> None:
    bad_and_good(broker)
    rows = await rows_of(client, schema=NOW.schema_info, bad_records="drop", columns=["id"])
    assert rows == [{"id": 1}] * 3


async def test_what_is_left_out_makes_no_empty_record_batch(
    client: Client, broker: FakeBroker
) -> None:
    good = NOW.encode({"id": 1, "note": ""})
    deliver(broker, *[written(b"\xff", None)] * 3, written(good, None))
    options: dict[str, Any] = {"schema": NOW.schema_info, "bad_records": "drop", "batch_rows": 1}
    async with read_batches(client, "orders", **options) as batches:
        assert [batch.num_rows async for batch in batches] == [1]


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
async def test_the_key_of_a_pair_may_stand_in_the_message_s_key(
    client: Client, broker: FakeBroker, encoding: str
) -> None:
    schema = KeyValueSchema(StringSchema(), NOW, encoding)
    value = {"id": 1, "note": "x"}
    described = metadata()
    payload = schema.encode(("k", value))
    if encoding == "SEPARATED":
        described.partition_key, payload = "k", NOW.encode(value)
    nothing = metadata()
    nothing.partition_key, nothing.null_value = "k", True
    deliver(broker, encode_payload(described, payload), encode_payload(nothing, b""))
    first, second = await rows_of(client, schema=schema.schema_info, columns=["key", "value"])
    assert first == {"key": "k", "value": value}
    assert second == {"key": "k" if encoding == "SEPARATED" else None, "value": None}


def test_columns_are_those_of_the_schema_or_the_metadata(client: Client) -> None:
    batches = read_batches(client, "orders", schema=NOW.schema_info)
    assert batches.schema.names == ["id", "note", *METADATA_FIELDS]
    assert batches.schema.field("id") == pa.field("id", pa.int64())
    info = NOW.schema_info
    with pytest.raises(ValueError, match="no columns"):
        read_batches(client, "orders", schema=info, columns=["value"])
    with pytest.raises(ValueError, match="no columns"):
        read_batches(client, "orders", schema=info, columns=["__corrupt"], bad_records="drop")
    with pytest.raises(ValueError, match="fail, permissive or drop"):
        read_batches(client, "orders", bad_records="ignore")  # type: ignore[arg-type]
