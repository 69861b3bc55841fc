"""The columns of a read, by the topics' schemas and the options."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from geminga import SchemaInfo, SchemaType
from pyspark_geminga.errors import ConnectorError, InvalidOption
from pyspark_geminga.source import row_schema
from pyspark_geminga.source.decisions.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema

RECORD = b'{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
AVRO = SchemaInfo(SchemaType.AVRO, "orders", RECORD)
METADATA = [
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
]


class FakeCluster:
    """Topics with these schemas; stands in for the client, its loop and the view."""

    def __init__(self, schemas: Iterable[SchemaInfo | None]) -> None:
        self.schemas = {f"topic{number}": info for number, info in enumerate(schemas)}
        self.client = self

    async def topics(self) -> list[str]:
        return list(self.schemas)

    async def schema(self, topic: str) -> SchemaInfo | None:
        return self.schemas[topic]

    def run(self, work: object) -> object:
        import asyncio

        return asyncio.run(work)  # type: ignore[arg-type]


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets the schemas of the topics that are read: ``has_schemas(topics, AVRO, None)``."""
    return monkeypatch


def has_schemas(topics: pytest.MonkeyPatch, *schemas: SchemaInfo | None) -> None:
    cluster = FakeCluster(schemas)
    topics.setattr(row_schema, "task_client", lambda _: cluster)
    topics.setattr(row_schema, "BrokerView", lambda *_: cluster)


def options(**more: str) -> SourceOptions:
    given = {"service.url": "pulsar://x", "topic": "a", **more}
    return SourceOptions.of(given, is_streaming=False)


@pytest.mark.real_loop
def test_payload_columns_come_first(topics: pytest.MonkeyPatch) -> None:
    has_schemas(topics, AVRO, SchemaInfo(SchemaType.AVRO, "another name", RECORD))
    rows = RowSchema.of_topics(options())
    assert rows.columns.names == ["id", *METADATA]
    assert rows.columns["id"].dataType.simpleString() == "bigint"
    assert rows.info is not None


@pytest.mark.real_loop
def test_without_a_schema_there_is_one_column_of_bytes(topics: pytest.MonkeyPatch) -> None:
    has_schemas(topics, None)
    rows = RowSchema.of_topics(options(metadataColumns="__topic, __key", badRecord="permissive"))
    assert rows.columns.simpleString() == (
        "struct<value:binary,__topic:string,__key:binary,__corrupt:binary>"
    )
    assert rows.arrow.field("value").type == pa.binary()


def test_raw_values_need_no_schema() -> None:
    rows = RowSchema.of_topics(options(valueMode="raw", metadataColumns="none"))
    assert (rows.info, rows.columns.names) == (None, ["value"])


def test_metadata_alone_needs_no_schema() -> None:
    columns = StructType().add("__publishTime", "timestamp").add("__key", "binary")
    rows = RowSchema.of_user(columns, options())
    assert rows.info is None
    assert rows.arrow.field("__publishTime").type == pa.timestamp("us", tz="UTC")


@pytest.mark.real_loop
def test_topics_of_different_schemas_are_read_as_bytes_or_apart(
    topics: pytest.MonkeyPatch,
) -> None:
    has_schemas(topics, AVRO, None)
    with pytest.raises(ConnectorError, match="topic0 and topic1 have different schemas"):
        RowSchema.of_topics(options())
    rows = RowSchema.of_topics(options(allowDifferentTopicSchemas="true", metadataColumns="none"))
    assert rows.columns.simpleString() == "struct<value:binary>"


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (("idd", "long"), "no column 'idd', but id, __key"),
        (("id", "string"), "'id' is bigint, and not"),
    ],
)
def test_columns_that_there_are_not_are_refused(
    topics: pytest.MonkeyPatch, column: tuple[str, str], words: str
) -> None:
    has_schemas(topics, AVRO)
    with pytest.raises(InvalidOption, match=words):
        RowSchema.of_user(StructType().add(*column), options())


def test_metadata_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidOption, match="__keys: there are __key"):
        RowSchema.of_topics(options(valueMode="raw", metadataColumns="__keys"))
