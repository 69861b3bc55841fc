"""Makes payloads of messages out of columns, and the schema that describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa

from geminga.arrow.kinds import LOCAL_US, TIME, UTC_US
from geminga.arrow.payloads import KeyValueCodec, codec_of
from geminga.arrow.records import RecordCodec
from geminga.schemas.avro import AvroSchema
from geminga.schemas.json_schema import JsonSchema
from geminga.schemas.schema import BytesSchema, SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

PayloadKind = Literal["auto", "avro", "json"]

# The name that Spark and Pulsar's connector for it give to the record of all columns.
RECORD_NAME = "topLevelRecord"

# The schemas of single columns: those of Pulsar's connector for Spark, and local dates and times.
_SINGLE: Mapping[pa.DataType, SchemaInfo | None] = {
    pa.binary(): None,
    pa.large_binary(): None,
    pa.string(): SchemaInfo(SchemaType.STRING, "String"),
    pa.large_string(): SchemaInfo(SchemaType.STRING, "String"),
    pa.bool_(): SchemaInfo(SchemaType.BOOLEAN, "Boolean"),
    pa.int8(): SchemaInfo(SchemaType.INT8, "INT8"),
    pa.int16(): SchemaInfo(SchemaType.INT16, "INT16"),
    pa.int32(): SchemaInfo(SchemaType.INT32, "INT32"),
    pa.int64(): SchemaInfo(SchemaType.INT64, "INT64"),
    pa.float32(): SchemaInfo(SchemaType.FLOAT, "Float"),
    pa.float64(): SchemaInfo(SchemaType.DOUBLE, "Double"),
    pa.date32(): SchemaInfo(SchemaType.DATE, "Date"),
    UTC_US: SchemaInfo(SchemaType.TIMESTAMP, "Timestamp"),
    LOCAL_US: SchemaInfo(SchemaType.LOCAL_DATE_TIME, "LocalDateTime"),
    TIME: SchemaInfo(SchemaType.LOCAL_TIME, "LocalTime"),
}


def payload_schema(columns: pa.Schema, kind: PayloadKind = "auto") -> SchemaInfo | None:
    """The schema of messages whose values are made of these columns; ``None`` for bytes.

    ``kind`` is ``"avro"`` or ``"json"`` for records, whose fields are the columns. With ``"auto"``
    a single column of a simple type is the value itself (a timestamp to the millisecond), and other
    columns make an Avro record. Raises ``ValueError`` without any column, or for one of a type that
    Avro does not have; ``MissingExtra`` for Avro without its package.
    """
    if not len(columns):
        raise ValueError("a message needs at least one column for its value")
    # A single plain column is the value itself, which clients without Avro can read.
    if kind == "auto" and len(columns) == 1 and columns.types[0] in _SINGLE:
        return _SINGLE[columns.types[0]]
    definition = definition_of(columns, RECORD_NAME)
    if kind == "json":
        return JsonSchema(object, definition=definition).schema_info
    return AvroSchema(object, definition=definition).schema_info


# Avro's types of columns.
_AVRO_TYPES: Mapping[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    TIME: {"type": "long", "logicalType": "time-micros"},
    UTC_US: {"type": "long", "logicalType": "timestamp-micros"},
    LOCAL_US: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def definition_of(fields: pa.Schema | pa.StructType, name: str) -> Any:  # noqa: ANN401 - JSON
    """Avro's definition of a record with these columns; nested records have their columns' names.

    Columns that may be null become unions with null, which is their default: messages that were
    written before such a column was added have null in it. Raises ``ValueError`` for a type that
    Avro does not have.
    """
    described: list[Any] = []
    for field in fields:
        kind = _type_of(field.type, f"{name}.{field.name}")
        # Null stands first: Avro takes a default for one of the first branch of a union.
        if field.nullable:
            described.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            described.append({"name": field.name, "type": kind})
    # A nested record has the names of those around it as its namespace: two columns may have
    # records whose fields have the same name.
    space, _, last = name.rpartition(".")
    made = {"type": "record", "name": last, "fields": described}
    return {**made, "namespace": space} if space else made


def _type_of(kind: pa.DataType, where: str) -> Any:  # noqa: ANN401 - JSON
    # Items and values have no default, so that a union of theirs may have its members in any order.
    def may_be_null(field: pa.Field) -> Any:  # noqa: ANN401 - JSON
        inner = _type_of(field.type, where)
        return ["null", inner] if field.nullable else inner

    # In this order: a type that is here has a fixed form; the others are families of types, with a
    # unit, a scale or an item type.
    if kind in _AVRO_TYPES:
        return _AVRO_TYPES[kind]
    # Other resolutions are cast to that of the definition when rows are written.
    if pa.types.is_timestamp(kind):
        return _AVRO_TYPES[LOCAL_US if kind.tz is None else UTC_US]
    if pa.types.is_time(kind):
        return _AVRO_TYPES[TIME]
    if pa.types.is_decimal(kind):
        logical = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **logical}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": may_be_null(kind.value_field)}
    if pa.types.is_map(kind) and kind.key_type in (pa.string(), pa.large_string()):
        return {"type": "map", "values": may_be_null(kind.item_field)}
    if pa.types.is_struct(kind):
        return definition_of(kind, where)
    raise ValueError(f"the column {where.partition('.')[2]} is of type {kind}, which Avro has not")


class PayloadEncoder(BytesSchema):
    """Makes a payload of each row of ``columns``, for messages with the schema ``info``:

        encoder = PayloadEncoder(payload_schema(table.schema), table.schema)
        async with client.producer("orders", schema=encoder) as producer:
            for batch in table.to_batches():
                for payload in encoder.payloads(batch):
                    await producer.ready()
                    producer.send_nowait(payload)

    It is itself a schema for ``Client.producer``, whose values are payloads already; brokers are
    told its ``schema_info``. Raises ``ValueError`` where the columns do not fit the schema.
    """

    def __init__(self, info: SchemaInfo | None, columns: pa.Schema) -> None:
        super().__init__(info)
        self._codec = codec_of(info, columns.names)
        self._is_record = isinstance(self._codec, RecordCodec | KeyValueCodec)
        # A codec of single values takes one column; there is no record that could name several.
        if not self._is_record and len(columns) != 1:
            raise ValueError(
                f"{'bytes' if info is None else info.type.name} are made of one column, and not of "
                f"{len(columns)}: {', '.join(columns.names)}"
            )
        # Columns that the schema does not have are refused by ``codec_of``.
        if isinstance(self._codec, RecordCodec):
            missing = [name for name in self._codec.required if name not in columns.names]
            if missing:
                raise ValueError(f"the schema wants the fields {missing}, and there is no column")
        # Types that never fit are refused now, and not with the first message.
        kind = pa.struct(list(columns)) if self._is_record else columns.types[0]
        self._codec.encode(pa.nulls(1, kind))

    def payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """A payload for each row of the columns. Where a single column is null it is ``None``: the
        message has a null value.

        Raises ``ValueError`` for values that do not fit the schema.
        """
        if not self._is_record:
            return self._codec.encode(batch.column(0))
        return self._codec.encode(batch.to_struct_array())
