"""Makes rows of the messages in entries, and record batches of the rows.

A message that cannot be opened or decoded becomes an error, a row without a value, or no row.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
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
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import SystemClock

BadRecords = Literal["fail", "permissive", "drop"]
# The column with a payload that could not be read, in a row whose other payload columns are null.
CORRUPT = pa.field("__corrupt", pa.binary())

# So many messages in chunks may be incomplete at the same time. A producer sends the chunks of one
# message without others of its own between them.
CHUNKED_MESSAGES_MAX = 100


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """Which columns a reader wants, and what becomes of messages that cannot be read."""

    # The schema of the payloads; ``None`` for bytes.
    info: SchemaInfo | None
    bad_records: BadRecords
    # The columns with their types, in the order in which they are wanted.
    schema: pa.Schema
    # The names of those that are made of payloads.
    payload_columns: tuple[str, ...]

    @classmethod
    def of(
        cls, info: SchemaInfo | None, columns: Sequence[str] | None, bad_records: BadRecords
    ) -> ColumnSelection:
        """All columns by default. Raises ``ValueError`` for one that does not exist."""
        if bad_records not in ("fail", "permissive", "drop"):
            raise ValueError(f"bad_records must be fail, permissive or drop, not {bad_records!r}")
        known = {**{field.name: field for field in payload_fields(info)}, **METADATA_FIELDS}
        if bad_records == "permissive":
            known[CORRUPT.name] = CORRUPT
        names = list(known if columns is None else columns)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"there are no columns {unknown}, but {', '.join(known)}")
        # A field of the payload that has the name of one of these is hidden by it.
        others = {**METADATA_FIELDS, CORRUPT.name: CORRUPT}
        schema = pa.schema([others.get(name, known[name]) for name in names])
        of_payloads = tuple(name for name in names if name not in others)
        return cls(info, bad_records, schema, of_payloads)


@dataclass(slots=True, eq=False)
class Rows:
    """The rows of one record batch, while it is being filled.

    Payloads stay in the bodies of their entries until all are cut out at once, which copies them
    twice; cutting them out one by one would make an object of each.
    """

    metadata: MetadataRows
    # The versions of the topic's schema, in the order of the rows.
    versions: list[VersionRun] = field(default_factory=list[VersionRun])
    # Why rows have no value, and the payloads that could not be read; by row.
    errors: Errors = field(default_factory=dict[int, str])
    corrupt: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    # Rows whose value is null, whatever their payload is.
    null_rows: list[int] = field(default_factory=list[int])
    # The bodies of entries, and how many bytes they have together.
    _contents: list[bytes] = field(default_factory=list[bytes], init=False)
    content_bytes: int = field(default=0, init=False)
    # The start and the end of each payload in the joined bodies.
    _bounds: array[int] = field(default_factory=lambda: array("i"), init=False)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.metadata.count

    def add_content(self, content: bytes, bounds: array[int]) -> None:
        """Add the body of an entry, with the bounds of the payloads of its rows."""
        self._contents.append(content)
        self.content_bytes += len(content)
        # Counted from the start of the joined bodies, which ``batch_layout`` was told as its base.
        self._bounds += bounds

    def add_version(self, count: int, version: bytes | None) -> None:
        """Note the version of the schema of the next ``count`` rows."""
        if self.versions and self.versions[-1][1] == version:
            count += self.versions.pop()[0]
        self.versions.append((count, version))

    def payloads(self) -> pa.Array:
        """The payloads of all rows, in one array."""
        if not self.count:
            return pa.array([], pa.binary())
        # Arrow has one bound between two values, which here are a payload and the bytes between it
        # and the next one: payloads are every other value.
        buffers = [None, pa.py_buffer(self._bounds), pa.py_buffer(b"".join(self._contents))]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * self.count - 1, buffers)
        places = array("i", range(0, 2 * self.count, 2))
        if not self.null_rows:
            every_other = [None, pa.py_buffer(places)]
            return pieces.take(pa.Array.from_buffers(pa.int32(), self.count, every_other))
        is_null = set(self.null_rows)
        wanted = [None if row in is_null else place for row, place in enumerate(places)]
        return pieces.take(pa.array(wanted, pa.int32()))


# What becomes of an entry:
#
#    readable, no chunk ─────────▶ a row for each message in the range
#    a chunk, not the last ──────▶ no row yet: its body waits in ``_chunks``
#    the last chunk ─────────────▶ one row, in the place of this entry
#    cannot be opened ───────────▶ fail: raises; permissive: one row, corrupt; drop: no row
#    opened, cannot be decoded ──▶ the same, when ``batch`` decodes all rows together
class RowOpener:
    """Makes rows of a topic's messages, without those before ``start`` or behind ``end``."""

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
        self.codec = codec_of(wanted.info, names)
        self._decodes = bool(names)
        # Without a time limit: the other chunks of a message are in the log, and need no waiting.
        self._chunks = PendingChunks(CHUNKED_MESSAGES_MAX, math.inf, SystemClock())
        decryptor = None if decryption is None else Decryptor(decryption)
        self._bodies = BodyOpener(self._chunks, decryptor)
        # Messages in chunks whose beginning was looked for before the start in vain, by uuid: with
        # the reason why they are bad records, or ``None`` for those that are no messages at all.
        self._without_beginning: dict[str, str | None] = {}

    # ---- chunks of messages that began before the start

    def lacks_beginning(self, entry: RawEntry) -> bool:
        """Is it a chunk of a message that may have begun before the start, which was not looked for
        there yet?"""
        metadata = entry.metadata
        return (
            metadata is not None
            and metadata.num_chunks_from_msg > 1
            and metadata.chunk_id > 0
            and self._chunks.next_chunk(metadata.uuid) == 0
            and metadata.uuid not in self._without_beginning
        )

    def add_earlier(self, entry: RawEntry, uuid: str) -> None:
        """Take in an entry from before the start, if it is the next chunk of this message."""
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
        """Leave out a message whose beginning was not found; with a ``reason`` it is a bad
        record."""
        # Bounded; the oldest goes, whose chunks have most likely all passed.
        if len(self._without_beginning) >= CHUNKED_MESSAGES_MAX:
            del self._without_beginning[next(iter(self._without_beginning))]
        self._without_beginning[uuid] = reason

    def _opened(self, entry: RawEntry, metadata: MessageMetadata) -> Body | None:
        """Decrypt and decompress the body of an entry, or complete a message in chunks; ``None``
        for an entry that completes none."""
        if metadata.num_chunks_from_msg > 1:
            expected = self._chunks.next_chunk(metadata.uuid)
            is_last = metadata.chunk_id == metadata.num_chunks_from_msg - 1
            # The beginning is not here: it was looked for before the start (``lacks_beginning``),
            # or was a bad record.
            if expected == 0 and metadata.chunk_id > 0:
                reason = self._without_beginning.get(metadata.uuid)
                # One bad record for the whole message, not one for each chunk.
                if reason is not None and is_last:
                    raise UnreadableMessage(reason)
                return None
        return self._bodies.open(metadata, entry.payload[entry.body_start :], entry.position.entry)

    # ---- entries

    def wanted_version(self, entry: RawEntry) -> bytes | None:
        """The version of the schema that has to be learned (``codec``) before a batch that has this
        entry is made; ``None`` if there is none."""
        metadata = entry.metadata
        if metadata is None or not self._decodes or not metadata.HasField("schema_version"):
            return None
        version = metadata.schema_version
        return version if self.codec.wants(version) else None

    def open(self, entry: RawEntry, rows: Rows) -> None:
        """Add a row for each message of the entry. Raises ``UnreadableMessage`` where bad records
        fail."""
        mode = self._wanted.bad_records
        reason: str | None = None
        try:
            self._add(entry, rows)
        except (WireError, UnreadableMessage) as error:
            reason = str(error)
            if mode == "fail":
                raise UnreadableMessage(
                    f"message {entry.ledger_id}:{entry.entry_id} of {self.topic}: {reason}"
                ) from error
        # One bad record for the whole entry: how many messages it has is not known.
        if reason is not None and mode == "permissive":
            rows.corrupt[rows.count] = entry.payload[entry.body_start :]
            rows.errors[rows.count] = reason
            # The order matters: ``rows.count`` is that of ``metadata``, which grows with
            # ``add_single``.
            rows.null_rows.append(rows.count)
            # An empty payload: all columns have the same number of rows. What came is in
            # ``__corrupt``.
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
        # Other bodies are used where they are, in the entry's payload, without a copy.
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
                rows.null_rows.append(before)
            base = rows.content_bytes
            rows.add_content(content, array("i", (base + start, base + len(content))))
            first = chunks[0] if chunks else None
            rows.metadata.add_single(self._id(entry, first), metadata)
        # In runs: whole entries, and mostly whole batches of rows, have one version.
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
        # All messages are looked at, since where one begins is known only from the one before.
        layout = batch_layout(content, start, size, rows.content_bytes)
        # The range may begin or end within the batch, and compaction may have dropped messages.
        first, behind = 0, size
        if position == self.start.entry:
            first = max(0, self.start.batch_index)
        if self.end is not None and position == self.end.entry:
            # Above 0 here: the reader gives no entry that the range ends in front of.
            behind = min(size, self.end.batch_index)
        indexes: Sequence[int] = range(first, behind)
        singles = layout.singles
        if any(single.compacted_out for single in singles.values()):
            indexes = [n for n in indexes if n not in singles or not singles[n].compacted_out]
        # Mostly all of them are wanted, and the layout is used as it is.
        if len(indexes) < size:
            layout = layout.of(indexes)
        for place, single in layout.singles.items():
            if single.null_value:
                rows.null_rows.append(rows.count + place)
        rows.add_content(content, layout.bounds)
        rows.metadata.add_batch(position, metadata, indexes, layout)

    # ---- record batches

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """The rows as columns. Raises ``UnreadableMessage`` where bad records fail."""
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
        # Filtered at the end: until then rows are counted by their numbers, in all columns alike.
        if rows.errors and self._wanted.bad_records == "drop":
            batch = batch.filter(pa.array([row not in rows.errors for row in range(rows.count)]))
        return batch

    def _decoded(self, rows: Rows) -> dict[str, pa.Array]:
        """The columns that are made of payloads, by their names."""
        column = rows.payloads()
        # Arrow's own bytes: no object of Python is made of any payload.
        if isinstance(self.codec, RawCodec):
            return {VALUE.name: column}
        payloads: list[bytes | None] = column.to_pylist()
        if isinstance(self.codec, KeyValueCodec) and self.codec.is_separated:
            payloads = [
                # A message with a null value is a pair whose value is null.
                None if row in rows.errors else join(key, payload)
                for row, (key, payload) in enumerate(
                    zip(rows.metadata.keys(), payloads, strict=True)
                )
            ]
        errors: dict[int, str] = {}
        column = self.codec.decode(payloads, errors, rows.versions)
        if errors and self._wanted.bad_records == "fail":
            # The first bad one by its place in the log: codecs may find them in another order.
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
