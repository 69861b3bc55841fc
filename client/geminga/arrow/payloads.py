"""The codec of any schema, and the columns of the payloads that it describes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from geminga.arrow.codecs import (
    PRIMITIVES,
    Codec,
    Errors,
    Payloads,
    PrimitiveCodec,
    RawCodec,
    StringCodec,
    VersionRun,
)
from geminga.arrow.records import AvroCodec, JsonCodec
from geminga.schemas.key_value import KeyValueEncoding, join, parts_of, split
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

# The column of payloads that are no records.
VALUE = pa.field("value", pa.binary())
KEY_VALUE = ("key", "value")


class KeyValueCodec(Codec):
    """Pairs of a key and a value, each with a schema of its own: a struct of both.

    Where the keys are in the metadata of messages (``is_separated``), the owner joins them with the
    payloads (``key_value.join``) before it decodes these.
    """

    def __init__(self, info: SchemaInfo) -> None:
        """Raises ``ValueError`` for a schema without those of its key and value."""
        self.is_separated = info.properties.get("kv.encoding.type") == KeyValueEncoding.SEPARATED
        self._parts = [codec_of(part) for part in parts_of(info)]
        columns = [part.column for part in self._parts]
        self.column = pa.struct(list(zip(KEY_VALUE, columns, strict=True)))

    def wants(self, version: bytes | None, /) -> bool:
        """Must this version be learned, for the key or for the value?"""
        return any(part.wants(version) for part in self._parts)

    def learn(self, version: bytes, writer: SchemaInfo | None, /) -> None:
        """Learn how keys and values of a version are read."""
        # A version of another type cannot be read: both parts refuse its payloads.
        infos: Sequence[SchemaInfo | None] = (None, None)
        if writer is not None and writer.type is SchemaType.KEY_VALUE:
            infos = parts_of(writer)
        for part, info in zip(self._parts, infos, strict=True):
            part.learn(version, info)

    def decode(
        self, payloads: Payloads, errors: Errors, versions: Sequence[VersionRun], /
    ) -> pa.Array:
        """Keys and values; both are null where one of them cannot be read."""
        # Split first, so that keys and values are decoded as columns, each many at a time.
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for row, payload in enumerate(payloads):
            pair: tuple[bytes | None, bytes | None] = (None, None)
            if payload is not None:
                try:
                    pair = split(payload)
                except ValueError as wrong:
                    errors[row] = str(wrong)
            pairs.append(pair)
        # Both parts note their errors for the same rows: a row with one bad half is null as a
        # whole.
        columns = [
            part.decode([pair[number] for pair in pairs], errors, versions)
            for number, part in enumerate(self._parts)
        ]
        # Null as a whole: a pair of null and null is another value.
        is_null = pa.array(
            [payload is None or row in errors for row, payload in enumerate(payloads)], pa.bool_()
        )
        return pa.StructArray.from_arrays(columns, fields=list(self.column), mask=is_null)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """Pairs as one payload each. Raises ``ValueError``, also where keys are in the metadata."""
        if self.is_separated:
            raise ValueError("keys that stand apart from their values are not written")
        # In either order: columns are taken by their names.
        names = {field.name for field in column.type}
        if names != set(KEY_VALUE):
            raise ValueError(f"a pair is made of the columns key and value, not of {sorted(names)}")
        keys, values = [
            part.encode(column.field(name))
            for part, name in zip(self._parts, KEY_VALUE, strict=True)
        ]
        return [join(key, value) for key, value in zip(keys, values, strict=True)]


def codec_of(info: SchemaInfo | None, columns: Iterable[str] | None = None) -> Codec:
    """The codec of a schema, and of a record only for these ``columns``; without a schema that of
    bytes.

    Raises ``ValueError`` for a definition that cannot be used, ``MissingExtra`` for Avro without
    its package.
    """
    if info is None or info.type is SchemaType.NONE:
        return RawCodec()
    if info.type is SchemaType.STRING:
        return StringCodec()
    if info.type in PRIMITIVES:
        return PrimitiveCodec(PRIMITIVES[info.type])
    # Those with a definition: their codecs parse it once, and raise what is wrong with it.
    if info.type is SchemaType.JSON:
        return JsonCodec(info, columns)
    if info.type is SchemaType.AVRO:
        return AvroCodec(info, columns)
    if info.type is SchemaType.KEY_VALUE:
        return KeyValueCodec(info)
    return RawCodec()  # Protobuf's messages are left as they are


def payload_fields(info: SchemaInfo | None) -> pa.Schema:
    """The columns of payloads with this schema: the fields of its records, the ``key`` and
    ``value`` of its pairs, or one ``value``, which is bytes without a schema and for Protobuf.

    Raises ``ValueError`` for a definition that cannot be used, and for records that contain
    themselves; ``MissingExtra`` for Avro without its package.
    """
    column = codec_of(info).column
    return pa.schema(list(column) if pa.types.is_struct(column) else [(VALUE.name, column)])
