"""Makes rows of the messages in entries, and record batches of the rows.

What cannot be opened or decoded becomes an error, a row without a value, or no row.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from geminga._channels.pending.acks import Position
from geminga.arrow.codecs import Errors, RawCodec, VersionRun
from geminga.arrow.columns import METADATA_FIELDS, MetadataRows
from geminga.arrow.layout import batch_layout
from geminga.arrow.payloads import VALUE, KeyValueCodec, codec_of, payload_fields
from geminga.consumers.entry_reader import RawEntry
from geminga.consumers.incoming.chunks import PendingChunks
from geminga.consumers.incoming.entries import BATCH_MESSAGES_MAX, Body, BodyOpener
from geminga.crypto.decryption import Decryptor, PrivateKeyReader
from geminga.errors import UnreadableMessage
from geminga.message_ids import LogPosition, MessageId
from geminga.schemas.key_value import join
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import SystemClock

BadRecords = Literal["fail", "permissive", "drop"]
# What could not be read, in a row whose other columns of the payload are null.
CORRUPT = pa.field("__corrupt", pa.binary())

# Messages that come in chunks and are not whole yet; producers send the chunks of one in a row.
CHUNKED_MESSAGES_MAX = 100


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """Which columns a reader wants: ``columns`` of messages with the schema ``info``."""

    info: SchemaInfo | None
    columns: tuple[str, ...]
    bad_records: BadRecords

    @classmethod
    def of(
        cls, info: SchemaInfo | None, columns: Sequence[str] | None, bad_records: BadRecords
    ) -> ColumnSelection:
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
    """Rows of one record batch, as they come.

    Payloads stay in their entries until all are gathered at once, which copies them twice.
    """

    def __init__(self, topic: TopicName) -> None:
        self.metadata = MetadataRows(str(topic), topic.partition_index)
        self.versions: list[VersionRun] = []
        # Why rows have no value, and what they would have it of.
        self.errors: Errors = {}
        self.corrupt: dict[int, bytes | None] = {}
        # What the entries hold, and how much it is together.
        self._contents: list[bytes] = []
        self.content_bytes = 0
        # The start and the end of each payload in the contents; null are the values of some rows.
        self._bounds = array("i")
        self._null_rows: list[int] = []

    @property
    def count(self) -> int:
        """How many there are."""
        return self.metadata.count

    def add_content(self, content: bytes, bounds: array[int]) -> None:
        """Payloads are in there, between such bounds, for rows that are added next."""
        self._contents.append(content)
        self.content_bytes += len(content)
        self._bounds += bounds

    def add_null(self, row: int) -> None:
        """The value of that row is null; its payload is empty or anything."""
        self._null_rows.append(row)

    def add_version(self, count: int, version: bytes | None) -> None:
        """The next ``count`` rows are of that version of the schema."""
        if self.versions and self.versions[-1][1] == version:
            count += self.versions.pop()[0]
        self.versions.append((count, version))

    def payloads(self) -> pa.Array:
        """The payloads of all rows."""
        if not self.count:
            return pa.array([], pa.binary())
        # Between each two payloads there is what stands between them: they are every other one.
        buffers = [None, pa.py_buffer(self._bounds), pa.py_buffer(b"".join(self._contents))]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * self.count - 1, buffers)
        places = array("i", range(0, 2 * self.count, 2))
        if not self._null_rows:
            every_other = [None, pa.py_buffer(places)]
            return pieces.take(pa.Array.from_buffers(pa.int32(), self.count, every_other))
        is_null = set(self._null_rows)
        wanted = [None if row in is_null else place for row, place in enumerate(places)]
        return pieces.take(pa.array(wanted, pa.int32()))


class RowOpener:
    """Makes rows of a topic's messages, without those before the start or behind the end."""

    def __init__(
        self,
        topic: TopicName,
        start: LogPosition,
        end: LogPosition | None,
        wanted: ColumnSelection,
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
        # Messages that began before the start, and were looked for there: why they are no rows.
        self._without_beginning: dict[str, str | None] = {}

    # ---- chunks of messages that began before the start

    def lacks_beginning(self, entry: RawEntry) -> bool:
        """Is it a chunk of a message that began before the start, for all that is known?"""
        metadata = entry.metadata
        return (
            metadata is not None
            and metadata.num_chunks_from_msg > 1
            and metadata.chunk_id > 0
            and self._chunks.next_chunk(metadata.uuid) == 0
            and metadata.uuid not in self._without_beginning
        )

    def add_earlier(self, entry: RawEntry, uuid: str) -> None:
        """An entry from before the start, which may have a chunk of that message."""
        metadata = entry.metadata
        if (
            metadata is not None
            and metadata.uuid == uuid
            and metadata.chunk_id == self._chunks.next_chunk(uuid)
        ):
            body = entry.payload[entry.body_start :]
            try:
                self._bodies.open(metadata, body, entry.position.entry)
            except UnreadableMessage as error:
                self.give_up(uuid, str(error))

    def give_up(self, uuid: str, reason: str | None) -> None:
        """The message is no row: it has no beginning, or is a bad record for a ``reason``."""
        if len(self._without_beginning) >= CHUNKED_MESSAGES_MAX:
            del self._without_beginning[next(iter(self._without_beginning))]
        self._without_beginning[uuid] = reason

    def _opened(self, entry: RawEntry, metadata: MessageMetadata) -> Body | None:
        """The body of an entry that is not plain; ``None`` for one that completes no message."""
        if metadata.num_chunks_from_msg > 1:
            expected = self._chunks.next_chunk(metadata.uuid)
            is_last = metadata.chunk_id == metadata.num_chunks_from_msg - 1
            if expected == 0 and metadata.chunk_id > 0:
                reason = self._without_beginning.get(metadata.uuid)
                if reason is not None and is_last:
                    raise UnreadableMessage(reason)
                return None
            if 0 < metadata.chunk_id < expected:
                return None  # its producer sent it again
        return self._bodies.open(metadata, entry.payload[entry.body_start :], entry.position.entry)

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
            rows.add_null(rows.count)
            rows.add_content(b"", array("i", (rows.content_bytes,) * 2))
            rows.metadata.add_single(self._id(entry), entry.metadata)
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
        content, start = entry.payload, entry.body_start
        chunks: tuple[Position, ...] = ()
        if metadata.compression or metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
            body = self._opened(entry, metadata)
            if body is None:
                return
            content, start, chunks = body.content, 0, body.earlier
        before = rows.count
        if metadata.HasField("num_messages_in_batch") and not chunks:
            self._add_batch(position, metadata, content, start, rows)
        elif position == self.start.entry and self.start.batch_index > 0:
            return  # the start lies behind the only message of its entry
        else:
            if metadata.null_value:
                rows.add_null(before)
            base = rows.content_bytes
            rows.add_content(content, array("i", (base + start, base + len(content))))
            first = chunks[0] if chunks else None
            rows.metadata.add_single(self._id(entry, first), metadata)
        version = metadata.schema_version if metadata.HasField("schema_version") else None
        rows.add_version(rows.count - before, version)

    def _add_batch(
        self,
        position: tuple[int, int],
        metadata: MessageMetadata,
        content: bytes,
        start: int,
        rows: Rows,
    ) -> None:
        size = metadata.num_messages_in_batch
        if not 0 < size <= BATCH_MESSAGES_MAX:
            raise UnreadableMessage(f"it is a batch of {size} messages")
        layout = batch_layout(content, start, size, rows.content_bytes)
        first, behind = 0, size
        if position == self.start.entry:
            first = max(0, self.start.batch_index)
        if self.end is not None and position == self.end.entry:
            behind = min(size, self.end.batch_index)
        indexes: Sequence[int] = range(first, behind)
        said = layout.said
        if any(single.compacted_out for single in said.values()):
            indexes = [n for n in indexes if n not in said or not said[n].compacted_out]
        if len(indexes) < size:
            layout = layout.of(indexes)
        for place, single in layout.said.items():
            if single.null_value:
                rows.add_null(rows.count + place)
        rows.add_content(content, layout.bounds)
        rows.metadata.add_batch(position, metadata, indexes, layout)

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
        column = rows.payloads()
        if isinstance(self._codec, RawCodec):
            return {VALUE.name: column}
        payloads: list[bytes | None] = column.to_pylist()
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
        rows.corrupt.update({row: payloads[row] for row in errors})
        if not pa.types.is_struct(column.type):
            return {VALUE.name: column}
        return dict(zip([field.name for field in column.type], column.flatten(), strict=True))
