"""Makes rows of the messages in entries, and record batches of the rows.

What cannot be opened or decoded becomes an error, a row without a value, or no row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from geminga.arrow.codecs import Errors, VersionRun
from geminga.arrow.columns import METADATA_FIELDS, MetadataRows
from geminga.arrow.payloads import VALUE, KeyValueCodec, codec_of, payload_fields
from geminga.consumers.chunks import PendingChunks
from geminga.consumers.entries import BATCH_MESSAGES_MAX, BodyOpener
from geminga.consumers.entry_reader import RawEntry
from geminga.decryption import Decryptor, PrivateKeyReader
from geminga.errors import UnreadableMessage
from geminga.log_position import LogPosition
from geminga.messages import MessageId
from geminga.schemas.key_value import join
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata
from geminga_protocol.pulsar.payload import split_batch_lazily
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import SystemClock

BadRecords = Literal["fail", "permissive", "drop"]
# What could not be read, in a row whose other columns of the payload are null.
CORRUPT = pa.field("__corrupt", pa.binary())

# Messages that come in chunks and are not whole yet; producers send the chunks of one in a row.
CHUNKED_MESSAGES_MAX = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which columns a reader wants: ``columns`` of messages with the schema ``info``."""

    info: SchemaInfo | None
    columns: tuple[str, ...]
    bad_records: BadRecords

    @classmethod
    def of(
        cls, info: SchemaInfo | None, columns: Sequence[str] | None, bad_records: BadRecords
    ) -> Wanted:
        """All columns by default. Raises ``ValueError`` for one that there is not."""
        if bad_records not in ("fail", "permissive", "drop"):
            raise ValueError(f"bad_records is fail, permissive or drop, and not {bad_records!r}")
        known = [*payload_fields(info).names, *METADATA_FIELDS]
        if bad_records == "permissive":
            known.append(CORRUPT.name)
        names = tuple(known if columns is None else columns)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"there are no columns {unknown}, but {', '.join(known)}")
        return cls(info, names, bad_records)

    @property
    def payload_columns(self) -> list[str]:
        """Those that are made of payloads."""
        others = {CORRUPT.name, *METADATA_FIELDS}
        return [name for name in self.columns if name not in others]

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        fields = {field.name: field for field in payload_fields(self.info)}
        fields |= {**METADATA_FIELDS, CORRUPT.name: CORRUPT}
        return pa.schema([fields[name] for name in self.columns])


class Rows:
    """Rows of one record batch, as they come."""

    def __init__(self, topic: TopicName) -> None:
        self.metadata = MetadataRows(str(topic), topic.partition_index)
        self.values: list[bytes | None] = []
        self.value_bytes = 0
        self.versions: list[VersionRun] = []
        # Why rows have no value, and what they would have it of.
        self.errors: Errors = {}
        self.corrupt: dict[int, bytes | None] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return self.metadata.count

    def add_version(self, count: int, version: bytes | None) -> None:
        """The next ``count`` rows are of that version of the schema."""
        if self.versions and self.versions[-1][1] == version:
            count += self.versions.pop()[0]
        self.versions.append((count, version))


class RowOpener:
    """Makes rows of a topic's messages, without those before the start or behind the end."""

    def __init__(
        self,
        topic: TopicName,
        start: LogPosition,
        end: LogPosition | None,
        wanted: Wanted,
        decryption: PrivateKeyReader | None,
    ) -> None:
        self.topic = topic
        self.start = start
        self.end = end
        self.schema = wanted.schema
        self._wanted = wanted
        names = wanted.payload_columns
        self._codec = codec_of(wanted.info, names)
        self._decodes = bool(names)
        # Chunks are read as fast as they come: they wait for others in the log, not in time.
        self._chunks = PendingChunks(CHUNKED_MESSAGES_MAX, math.inf, SystemClock())
        decryptor = None if decryption is None else Decryptor(decryption)
        self._bodies = BodyOpener(self._chunks, decryptor)

    # ---- entries

    def rows(self) -> Rows:
        """None yet."""
        return Rows(self.topic)

    def wanted_version(self, entry: RawEntry) -> bytes | None:
        """The version of the schema that is to be learned before a batch has this entry."""
        metadata = entry.metadata
        if metadata is None or not self._decodes or not metadata.HasField("schema_version"):
            return None
        version = metadata.schema_version
        return version if self._codec.wants(version) else None

    def learn(self, version: bytes, writer: SchemaInfo | None) -> None:
        """That version of the topic's schema; ``None`` if there is none."""
        self._codec.learn(version, writer)

    def open(self, entry: RawEntry, rows: Rows) -> None:
        """Add a row for each message of the entry. Raises ``UnreadableMessage``."""
        try:
            self._add(entry, rows)
        except (WireError, UnreadableMessage) as error:
            self._refuse(entry, str(error), rows)

    def _refuse(self, entry: RawEntry, reason: str, rows: Rows) -> None:
        """An entry cannot be opened: how many messages it has is not known."""
        mode = self._wanted.bad_records
        if mode == "fail":
            raise UnreadableMessage(
                f"message {entry.ledger_id}:{entry.entry_id} of {self.topic}: {reason}"
            )
        if mode == "permissive":
            rows.corrupt[rows.count] = entry.payload[entry.body_start :]
            rows.errors[rows.count] = reason
            rows.metadata.add_single(self._id(entry), entry.metadata)
            rows.values.append(None)
            rows.add_version(1, None)

    def _id(self, entry: RawEntry, first: tuple[int, int] | None = None) -> MessageId:
        partition = self.topic.partition_index
        return MessageId(
            entry.ledger_id,
            entry.entry_id,
            partition=partition,
            first_chunk=None if first is None else MessageId(*first, partition=partition),
        )

    def _add(self, entry: RawEntry, rows: Rows) -> None:
        position, metadata = (entry.ledger_id, entry.entry_id), entry.metadata
        if metadata is None:
            raise UnreadableMessage(entry.error or "")
        body = self._bodies.open(metadata, entry.payload[entry.body_start :], position)
        if body is None:
            return
        version = metadata.schema_version if metadata.HasField("schema_version") else None
        if metadata.HasField("num_messages_in_batch") and not body.earlier:
            before = rows.count
            self._add_batch(position, metadata, body.content, rows)
            rows.add_version(rows.count - before, version)
            return
        if position == self.start.entry and self.start.batch_index > 0:
            return  # the start lies behind the only message of its entry
        rows.metadata.add_single(
            self._id(entry, body.earlier[0] if body.earlier else None), metadata
        )
        rows.values.append(None if metadata.null_value else body.content)
        rows.value_bytes += len(body.content)
        rows.add_version(1, version)

    def _add_batch(
        self, position: tuple[int, int], metadata: MessageMetadata, body: bytes, rows: Rows
    ) -> None:
        size = metadata.num_messages_in_batch
        if not 0 < size <= BATCH_MESSAGES_MAX:
            raise UnreadableMessage(f"it is a batch of {size} messages")
        messages = split_batch_lazily(body, size)
        first, behind = 0, size
        if position == self.start.entry:
            first = max(0, self.start.batch_index)
        if self.end is not None and position == self.end.entry:
            behind = min(size, self.end.batch_index)
        indexes: Sequence[int] = range(first, behind)
        if len(indexes) < size:
            messages = messages[first:behind]
        said: list[tuple[int, SingleMessageMetadata]] = [
            (place, single)
            for place, (single, _) in enumerate(messages)
            if not isinstance(single, bytes)
        ]
        values: list[bytes | None] = [value for _, value in messages]
        if any(single.compacted_out for _, single in said):
            gone = {place for place, single in said if single.compacted_out}
            kept = [place for place in range(len(messages)) if place not in gone]
            indexes = [indexes[place] for place in kept]
            values = [values[place] for place in kept]
            of_place = dict(said)
            said = [(n, of_place[place]) for n, place in enumerate(kept) if place in of_place]
        for place, single in said:
            if single.null_value:
                values[place] = None
        rows.metadata.add_batch(position, metadata, indexes, said)
        rows.values += values
        rows.value_bytes += len(body)

    # ---- record batches

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """The rows as columns. Raises ``UnreadableMessage`` where bad ones are to fail."""
        made = self._decoded(rows) if self._decodes else {}
        made |= {
            name: rows.metadata.column(name)
            for name in self.schema.names
            if name in METADATA_FIELDS
        }
        if CORRUPT.name in self.schema.names:
            corrupt = [rows.corrupt.get(row) for row in range(rows.count)]
            made[CORRUPT.name] = pa.array(corrupt, pa.binary())
        columns = [made[name] for name in self.schema.names]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if rows.errors and self._wanted.bad_records == "drop":
            batch = batch.filter(pa.array([row not in rows.errors for row in range(rows.count)]))
        return batch

    def _decoded(self, rows: Rows) -> dict[str, pa.Array]:
        payloads = rows.values
        if isinstance(self._codec, KeyValueCodec) and self._codec.is_separated:
            payloads = [
                # Of a message without a value the value of the pair is null.
                None if row in rows.errors else join(key, payload)
                for row, (key, payload) in enumerate(
                    zip(rows.metadata.keys(), payloads, strict=True)
                )
            ]
        errors: dict[int, str] = {}
        column = self._codec.decode(payloads, errors, rows.versions)
        if errors and self._wanted.bad_records == "fail":
            row, reason = min(errors.items())
            encoded = rows.metadata.column("__messageId")[row].as_py()
            raise UnreadableMessage(
                f"message {MessageId.from_bytes(encoded)} of {self.topic}: {reason}"
            )
        rows.errors.update(errors)
        rows.corrupt.update({row: rows.values[row] for row in errors})
        if not pa.types.is_struct(column.type):
            return {VALUE: column}
        return dict(zip([field.name for field in column.type], column.flatten(), strict=True))
