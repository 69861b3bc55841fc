"""Topics as Arrow tables: what the official client publishes becomes rows, whole and in order, also
when a range is read in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pulsar
import pulsar.schema
import pyarrow as pa
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

import geminga
from geminga import LOG_START, LogPosition
from geminga.arrow import PayloadEncoder, PayloadKind, payload_schema, read_table

NAMESPACE = "persistent://public/default"
LARGE = bytes(range(256)) * 40_000  # in three chunks
READ_TIMEOUT_MS = 60_000


def publish_all_kinds(client: Any, topic: str, number: int) -> None:
    """A message alone, one with all that it may say, a compressed batch, and one in chunks."""
    plain = client.create_producer(topic, batching_enabled=False)
    plain.send(b"alone %d" % number)
    plain.send(
        b"says all",
        partition_key="key",
        event_timestamp=1_600_000_000_123,
        properties={"a": "1", "b": str(number)},
    )
    plain.close()
    batched = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for each in range(150):
        key = f"key {each}" if each % 3 == 0 else None
        batched.send_async(b"batched %d" % each, None, partition_key=key)
    batched.flush()
    batched.close()
    chunking = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    chunking.send(LARGE)
    chunking.close()


def messages_of(client: Any, topic: str) -> list[Any]:
    """All messages, as the official client reads them."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: list[Any] = []
    while reader.has_message_available():
        found.append(reader.read_next(READ_TIMEOUT_MS))
    return found


def parsed(encoded: bytes) -> geminga.MessageId:
    return geminga.MessageId.from_bytes(encoded)


async def test_rows_are_what_the_official_client_reads(standalone: StandaloneProcess) -> None:
    topic = f"{NAMESPACE}/arrow-kinds"
    path = "/admin/v2/persistent/public/default/arrow-kinds"
    with client_of(standalone.service_url) as official:
        for number in range(3):
            publish_all_kinds(official, topic, number)
            # The next one goes into a ledger of its own.
            assert rest(standalone.web_service_url, "PUT", f"{path}/unload") == (204, None)
        published = messages_of(official, topic)
        expected = [
            {
                "value": each.data(),
                "__key": each.partition_key().encode() or None,
                "__topic": topic,
                "__publishTime": each.publish_timestamp() * 1000,
                "__eventTime": each.event_timestamp() * 1000 or None,
                "__messageProperties": sorted(each.properties().items()),
            }
            for each in published
        ]
        ids = [parsed(each.message_id().serialize()) for each in published]
    async with geminga.connect(standalone.service_url) as client:
        table = await read_table(client, topic)
        found_ids = [parsed(each) for each in table.column("__messageId").to_pylist()]
        assert found_ids == ids
        assert [each.batch_size for each in found_ids] == [each.batch_size for each in ids]
        for name in ("__publishTime", "__eventTime"):
            number = table.schema.get_field_index(name)
            table = table.set_column(number, name, table.column(name).cast(pa.int64()))
        rows = table.drop_columns(["__messageId"]).to_pylist()
        assert [
            {**row, "__messageProperties": sorted(row["__messageProperties"])} for row in rows
        ] == (expected)
        await _assert_that_pieces_are_the_whole(client, topic, table, found_ids)


async def _assert_that_pieces_are_the_whole(
    client: geminga.Client, topic: str, table: Any, ids: list[geminga.MessageId]
) -> None:
    """Cut at entries, in the midst of batches, and where a ledger ends."""
    cuts = [LogPosition(each.ledger_id, each.entry_id, each.batch_index) for each in ids[3::40]]
    cuts += [LogPosition(each.ledger_id, each.entry_id + 1) for each in ids[1::100]]
    cuts += [LogPosition(each.ledger_id + 1, 0) for each in ids[::150]]
    chunked = [each for each in ids if each.first_chunk is not None]
    assert chunked
    cuts += [LogPosition(each.ledger_id, each.entry_id) for each in chunked]  # the last chunk
    values: list[bytes] = []
    start = LOG_START
    for cut in (*sorted(set(cuts)), None):
        piece = await read_table(client, topic, start, cut, columns=["value"])
        values += piece.column("value").to_pylist()
        start = cut or start
    assert values == table.column("value").to_pylist()


@dataclass
class Before:
    id: int
    gone: str = ""


@dataclass
class Now:
    id: int
    at: datetime | None = None
    note: str | None = None


class Sale(pulsar.schema.Record):  # type: ignore[misc]  # the official client has no types
    item = pulsar.schema.String()
    price = pulsar.schema.Double()


async def test_rows_have_the_columns_of_the_newest_schema(standalone: StandaloneProcess) -> None:
    topic = f"{NAMESPACE}/arrow-versions"
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    async with geminga.connect(standalone.service_url) as client:
        assert await client.schema(topic) is None
        async with client.producer(topic, schema=geminga.AvroSchema(Before)) as producer:
            await producer.send(Before(1, "x"))
        async with client.producer(topic, schema=geminga.AvroSchema(Now)) as later:
            await later.send(Now(2, moment, "y"))
        table = await read_table(client, topic, schema=await client.schema(topic))
        assert table.select(["id", "at", "note"]).to_pylist() == [
            {"id": 1, "at": None, "note": None},
            {"id": 2, "at": moment, "note": "y"},
        ]


@pytest.mark.parametrize("kind", ["avro", "json"])
async def test_the_official_client_and_tables_read_each_other_s_records(
    standalone: StandaloneProcess, kind: PayloadKind
) -> None:
    topic = f"{NAMESPACE}/arrow-records-{kind}"
    schema = {"avro": pulsar.schema.AvroSchema, "json": pulsar.schema.JsonSchema}[kind](Sale)
    with client_of(standalone.service_url) as official:
        producer = official.create_producer(topic, schema=schema)
        for number in range(3):
            producer.send(Sale(item=f"tea {number}", price=number / 2))
        async with geminga.connect(standalone.service_url) as client:
            info = await client.schema(topic)
            table = await read_table(client, topic, schema=info, columns=["price", "item"])
            assert table.to_pylist() == [
                {"price": number / 2, "item": f"tea {number}"} for number in range(3)
            ]
            encoder = PayloadEncoder(info, table.schema)
            async with client.producer(topic, schema=encoder) as back:
                for batch in table.to_batches():
                    for payload in encoder.payloads(batch):
                        assert payload is not None
                        await back.send(payload)
        reader = official.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
        sales = [reader.read_next(READ_TIMEOUT_MS).value() for _ in range(6)]
        assert [(sale.item, sale.price) for sale in sales[3:]] == [
            (f"tea {number}", number / 2) for number in range(3)
        ]


async def test_columns_bring_a_schema_of_their_own(standalone: StandaloneProcess) -> None:
    topic = f"{NAMESPACE}/arrow-own"
    columns = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    rows = [{"id": 1, "tags": ["a", None]}, {"id": None, "tags": None}]
    batch = pa.RecordBatch.from_pylist(rows, schema=columns)
    encoder = PayloadEncoder(payload_schema(columns), columns)
    async with geminga.connect(standalone.service_url) as client:
        async with client.producer(topic, schema=encoder) as producer:
            for payload in encoder.payloads(batch):
                assert payload is not None
                await producer.send(payload)
        info = await client.schema(topic)
        table = await read_table(client, topic, schema=info, columns=columns.names)
    assert table.to_pylist() == rows
