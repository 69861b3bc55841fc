"""Proves that each message of a range becomes one row, with what its producer said of it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.unit.geminga.arrow.stored import (
    batch_of,
    deliver,
    last_is,
    plain_batch,
    rows_of,
    said,
)
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, metadata

from geminga import (
    LOG_START,
    Client,
    LogPosition,
    MessageId,
    StringSchema,
    UnreadableMessage,
)
from geminga.arrow import METADATA_FIELDS, read_batches, read_table, record_batches
from geminga.arrow.record_batches import LOOK_BACK_ENTRIES, LOOK_BACK_FACTOR
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, KeyValue
from geminga_protocol.pulsar.messages.payload import encode_numbered_batch, encode_payload

TOPIC = "persistent://public/default/orders"
PUBLISHED = datetime.fromtimestamp(1_700_000_000, UTC)


async def test_a_message_says_when_and_where_it_was_published(
    client: Client, broker: FakeBroker
) -> None:
    alone = metadata()
    alone.partition_key, alone.event_time = "k", 1_600_000_000_123
    alone.properties.extend([KeyValue(key="a", value="1"), KeyValue(key="a", value="2")])
    deliver(broker, encode_payload(metadata(), b"0"), encode_payload(alone, b"1"))
    first, second = await rows_of(client)
    assert first == {
        "value": b"0",
        "__key": None,
        "__topic": TOPIC,
        "__messageId": MessageId(LEDGER, 0).to_bytes(),
        "__publishTime": PUBLISHED,
        "__eventTime": None,
        "__messageProperties": [],
    }
    assert second == {
        "value": b"1",
        "__key": b"k",
        "__topic": TOPIC,
        "__messageId": MessageId(LEDGER, 1).to_bytes(),
        "__publishTime": PUBLISHED,
        "__eventTime": datetime.fromtimestamp(1_600_000_000.123, UTC),
        "__messageProperties": [("a", "2")],
    }


async def test_each_message_of_a_batch_is_a_row(client: Client, broker: FakeBroker) -> None:
    deliver(
        broker,
        plain_batch(*[b"%d" % number for number in range(200)]),
        batch_of(
            (said(partition_key="k"), b"a"),
            (said(partition_key="AQI=", partition_key_b64_encoded=True), b"b"),
            (said(event_time=5, properties=[KeyValue(key="p", value="q")]), b"c"),
            (said(null_value=True), b""),
        ),
    )
    rows = await rows_of(client)
    assert [row["value"] for row in rows[:200]] == [b"%d" % number for number in range(200)]
    assert [row["value"] for row in rows[200:]] == [b"a", b"b", b"c", None]
    assert [row["__key"] for row in rows[199:]] == [None, b"k", b"\1\2", None, None]
    assert [row["__messageProperties"] for row in rows[199:]] == [[], [], [], [("p", "q")], []]
    assert rows[202]["__eventTime"] == datetime.fromtimestamp(0.005, UTC)
    ids = [MessageId(LEDGER, 0, n, batch_size=200).to_bytes() for n in range(200)]
    ids += [MessageId(LEDGER, 1, n, batch_size=4).to_bytes() for n in range(4)]
    assert [row["__messageId"] for row in rows] == ids


async def test_messages_that_were_compacted_away_are_no_rows(
    client: Client, broker: FakeBroker
) -> None:
    deliver(
        broker,
        batch_of(
            (said(partition_key="a", compacted_out=True), b""),
            (said(partition_key="b"), b"b"),
            (said(partition_key="c", compacted_out=True), b""),
            (said(partition_key="d", null_value=True), b""),
        ),
    )
    rows = await rows_of(client, columns=["__key", "value", "__messageId"])
    assert [(row["__key"], row["value"]) for row in rows] == [(b"b", b"b"), (b"d", None)]
    assert [row["__messageId"] for row in rows] == [
        MessageId(LEDGER, 0, n, batch_size=4).to_bytes() for n in (1, 3)
    ]


@pytest.mark.parametrize(
    ("start", "end", "values"),
    [
        (LogPosition(LEDGER, 0, 1), LogPosition(LEDGER, 1, 2), [b"b", b"c", b"d", b"e"]),
        (LogPosition(LEDGER, 0, 1), LogPosition(LEDGER, 0, 2), [b"b"]),
        (LogPosition(LEDGER, 0, 3), LogPosition(LEDGER, 1), []),
        (LogPosition(LEDGER, 1, 0), LogPosition(LEDGER, 2, 0), [b"d", b"e", b"f"]),
        (LogPosition(LEDGER, 1, 2), LogPosition(LEDGER, 2, 1), [b"f", b"alone"]),
        (LogPosition(LEDGER, 2, 1), None, []),
    ],
)
async def test_a_range_may_begin_and_end_in_the_midst_of_a_batch(
    client: Client,
    broker: FakeBroker,
    start: LogPosition,
    end: LogPosition | None,
    values: list[bytes],
) -> None:
    entries = [plain_batch(b"a", b"b", b"c"), plain_batch(b"d", b"e", b"f")]
    entries.append(encode_payload(metadata(), b"alone"))
    deliver(broker, *entries)
    rows = await rows_of(client, start=start, end=end, columns=["value", "__messageId"])
    assert [row["value"] for row in rows] == values
    whole = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    ids = {
        value: MessageId(LEDGER, entry, n, batch_size=3).to_bytes()
        for value, (entry, n) in zip([b"a", b"b", b"c", b"d", b"e", b"f"], whole, strict=True)
    }
    ids[b"alone"] = MessageId(LEDGER, 2).to_bytes()
    assert [row["__messageId"] for row in rows] == [ids[value] for value in values]


def chunk(number: int, body: bytes, uuid: str = "u", count: int = 3) -> bytes:
    part = metadata()
    part.uuid, part.chunk_id, part.num_chunks_from_msg = uuid, number, count
    part.total_chunk_msg_size = 100
    return encode_payload(part, body)


BETWEEN = encode_payload(metadata(), b"between")
CHUNKED = [chunk(0, b"ab"), BETWEEN, chunk(1, b"cd"), BETWEEN, chunk(2, b"ef"), BETWEEN]


async def test_a_message_in_chunks_is_one_row_at_its_last_chunk(
    client: Client, broker: FakeBroker
) -> None:
    deliver(broker, *CHUNKED)
    rows = await rows_of(client)
    assert [row["value"] for row in rows] == [b"between", b"between", b"abcdef", b"between"]
    chunked = MessageId(LEDGER, 4, first_chunk=MessageId(LEDGER, 0))
    assert rows[2]["__messageId"] == chunked.to_bytes()


@pytest.mark.parametrize("cut", range(7))
async def test_a_message_in_chunks_belongs_to_the_range_of_its_last_chunk(
    client: Client, broker: FakeBroker, cut: int
) -> None:
    deliver(broker, *CHUNKED)
    before = await rows_of(client, end=LogPosition(LEDGER, cut))
    behind = await rows_of(client, start=LogPosition(LEDGER, cut))
    assert [row["value"] for row in before + behind] == [
        b"between",
        b"between",
        b"abcdef",
        b"between",
    ]
    assert (b"abcdef" in [row["value"] for row in before]) == (cut > 4)


async def test_the_beginning_of_a_message_is_looked_for_further_and_further_back(
    client: Client, broker: FakeBroker
) -> None:
    count = 10 * LOOK_BACK_ENTRIES
    deliver(broker, chunk(0, b"a", count=2), *[BETWEEN] * count, chunk(1, b"b", count=2))
    rows = await rows_of(client, start=LogPosition(LEDGER, count + 1), columns=["value"])
    assert rows == [{"value": b"ab"}]
    asked = [
        command.subscribe.start_message_id for command in broker.of_type(BaseCommand.SUBSCRIBE)
    ]
    assert [each.entryId for each in asked] == [
        count,
        count - LOOK_BACK_ENTRIES,
        count - LOOK_BACK_FACTOR * LOOK_BACK_ENTRIES,
        2**64 - 1,
    ]


async def test_chunks_without_a_beginning_or_twice_are_no_message(
    client: Client, broker: FakeBroker
) -> None:
    entries = [chunk(1, b"x", "lost"), chunk(0, b"ab", count=2), chunk(0, b"ab", count=2)]
    entries += [chunk(2, b"x", "lost"), chunk(1, b"cd", count=2), chunk(1, b"cd", count=2)]
    deliver(broker, *entries)
    entries += [chunk(0, b"1"), chunk(1, b"2"), chunk(1, b"2"), chunk(0, b"-", "b"), chunk(2, b"3")]
    deliver(broker, *entries)
    for start in (LOG_START, LogPosition(LEDGER, 0)):
        rows = await rows_of(client, start=start, columns=["value"])
        assert rows == [{"value": b"abcd"}, {"value": b"123"}]


async def test_a_beginning_that_lies_too_far_back_makes_a_bad_record(
    client: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batches, "LOOK_BACK_ENTRIES_MAX", LOOK_BACK_ENTRIES)
    count = LOOK_BACK_ENTRIES
    deliver(broker, chunk(0, b"a", count=2), *[BETWEEN] * count, chunk(1, b"b", count=2))
    start = LogPosition(LEDGER, count + 1)
    with pytest.raises(UnreadableMessage, match="too far before"):
        await rows_of(client, start=start)
    rows = await rows_of(client, start=start, bad_records="permissive")
    assert [row["__corrupt"] for row in rows] == [b"b"]


async def test_record_batches_end_with_the_entry_that_fills_them(
    client: Client, broker: FakeBroker
) -> None:
    deliver(broker, *[plain_batch(*[b"x" * 100] * 10)] * 7)
    batches = read_batches(client, "orders", batch_rows=20, columns=["__topic", "value"])
    assert batches.schema == pa.schema([("__topic", pa.string()), ("value", pa.binary())])
    found: list[tuple[int, LogPosition]] = []
    async with batches:
        async for batch in batches:
            assert batch.schema == batches.schema
            found.append((batch.num_rows, batches.next_position))
    assert found == [
        (20, LogPosition(LEDGER, 2)),
        (20, LogPosition(LEDGER, 4)),
        (20, LogPosition(LEDGER, 6)),
        (10, LogPosition(LEDGER, 7)),
    ]
    assert batches.first_position == LogPosition(LEDGER, 0)


async def test_bytes_end_a_record_batch_too(client: Client, broker: FakeBroker) -> None:
    deliver(broker, *[encode_payload(metadata(), b"x" * 1000)] * 7)
    async with read_batches(client, "orders", batch_bytes=2500) as batches:
        assert [batch.num_rows async for batch in batches] == [3, 3, 1]


async def test_a_topic_without_messages_is_an_empty_table_with_all_columns(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 2**64 - 1)
    table = await read_table(client, "orders")
    assert table.num_rows == 0
    assert table.column_names == ["value", *METADATA_FIELDS]


async def test_a_message_that_cannot_be_opened_is_named(client: Client, broker: FakeBroker) -> None:
    encrypted = metadata()
    encrypted.encryption_keys.append(api.EncryptionKeys(key="k", value=b"v"))
    three = metadata()
    three.num_messages_in_batch = 3
    wrong_batch = encode_payload(three, encode_numbered_batch([b"a"], [b""], [0]))
    for payload, reason in (
        (encode_payload(metadata(), b"a")[:-1] + b"b", "checksum"),
        (encode_payload(encrypted, b"a"), "encrypted"),
        (wrong_batch, "takes 4 bytes"),
    ):
        deliver(broker, payload)
        with pytest.raises(UnreadableMessage, match=f"{LEDGER}:0 of {TOPIC}: .*{reason}"):
            await read_table(client, "orders")


async def test_reading_goes_on_before_a_message_that_cannot_be_decoded(
    client: Client, broker: FakeBroker
) -> None:
    bodies = (b"a", b"b", b"c", b"\xff", b"e")
    deliver(broker, *[encode_payload(metadata(), body) for body in bodies])
    schema = StringSchema().schema_info
    async with read_batches(client, "orders", schema=schema, batch_rows=2) as batches:
        assert (await anext(batches)).column("value").to_pylist() == ["a", "b"]
        with pytest.raises(UnreadableMessage, match=f"{LEDGER}:3:"):
            await anext(batches)
        # Behind what was returned: "c" was not.
        assert batches.next_position == LogPosition(LEDGER, 2)


def test_what_cannot_be_wanted_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="no columns"):
        read_batches(client, "orders", LOG_START, columns=["value", "__ledger"])
    with pytest.raises(ValueError, match="at least"):
        read_batches(client, "orders", batch_rows=0)


@pytest.mark.real_loop
def test_the_bare_client_imports_no_arrow() -> None:
    probe = "import geminga, sys; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
