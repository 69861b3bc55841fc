"""Reads a range of a topic as record batches: opens entries, and makes rows of their messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from geminga.arrow.columns import METADATA_FIELDS, VALUE, MetadataRows
from geminga.client import Client
from geminga.consumers.chunks import PendingChunks
from geminga.consumers.entries import BATCH_MESSAGES_MAX, BodyOpener
from geminga.consumers.entry_reader import EntryReader, RawEntry
from geminga.decryption import Decryptor, PrivateKeyReader
from geminga.errors import UnreadableMessage
from geminga.log_position import LOG_START, LogPosition
from geminga.messages import MessageId
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata
from geminga_protocol.pulsar.payload import split_batch_lazily
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import SystemClock

# Larger batches of rows no longer fit into a processor's cache; SPARK.md has 4,000 to 10,000 best.
BATCH_ROWS = 8192
BATCH_BYTES = 8 * 1024 * 1024
# Messages that come in chunks and are not whole yet; producers send the chunks of one in a row.
CHUNKED_MESSAGES_MAX = 100

ALL_COLUMNS = (VALUE.name, *METADATA_FIELDS)


def read_batches(
    client: Client,
    topic: str,
    start: LogPosition = LOG_START,
    end: LogPosition | None = None,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    decryption: PrivateKeyReader | None = None,
    timeout_s: float = 60.0,
) -> RecordBatches:
    """The messages of ``topic`` from ``start`` to ``end``, which is not included, as rows.

    The topic has no partitions, or is one partition of another; the range is that of
    ``Client.entries``. ``columns`` are names in the order in which they are wanted, by default all:
    ``value`` and those of ``METADATA_FIELDS``. A record batch ends with the entry that brings it to
    ``batch_rows`` rows or ``batch_bytes`` bytes of payloads: where one ends, another reader can go
    on (``next_position``). Raises ``ValueError`` for a column that there is not.
    """
    names = ALL_COLUMNS if columns is None else tuple(columns)
    unknown = [name for name in names if name not in ALL_COLUMNS]
    if unknown:
        raise ValueError(f"there are no columns {unknown}, but {', '.join(ALL_COLUMNS)}")
    if batch_rows < 1 or batch_bytes < 1:
        raise ValueError("batch_rows and batch_bytes are 1 at least")
    opener = _RowOpener(TopicName.parse(topic), start, end, decryption)
    limits = (batch_rows, batch_bytes)
    return RecordBatches(client, opener, names, limits, timeout_s)


async def read_table(
    client: Client,
    topic: str,
    start: LogPosition = LOG_START,
    end: LogPosition | None = None,
    *,
    columns: Sequence[str] | None = None,
    decryption: PrivateKeyReader | None = None,
    timeout_s: float = 60.0,
) -> pa.Table:
    """All rows of ``read_batches`` in one table. Raises what it raises, and what reading raises."""
    batches = read_batches(
        client, topic, start, end, columns=columns, decryption=decryption, timeout_s=timeout_s
    )
    async with batches:
        rows = [batch async for batch in batches]
    return pa.Table.from_batches(rows, batches.schema)


class RecordBatches:
    """Made by ``read_batches``: ``async for`` gives record batches, none of them empty.

    Closed at its end, by ``aclose``, by ``async with``, or by the client. Reading raises
    ``ClientError``, ``TimeoutError`` when nothing came for ``timeout_s``, and ``UnreadableMessage``
    for a message that cannot be opened.
    """

    def __init__(
        self,
        client: Client,
        opener: _RowOpener,
        names: Sequence[str],
        limits: tuple[int, int],
        timeout_s: float,
    ) -> None:
        self.schema = pa.schema([VALUE if n == VALUE.name else METADATA_FIELDS[n] for n in names])
        """The columns of every batch."""
        self.next_position = opener.start
        """Where reading goes on behind the batches that were given."""
        self._client = client
        self._opener = opener
        self._batch_rows, self._batch_bytes = limits
        self._timeout_s = timeout_s
        self._reader: EntryReader | None = None
        self._is_over = False

    @property
    def first_position(self) -> LogPosition | None:
        """The first entry that the topic has at or behind the start, as ``EntryReader`` has it."""
        return None if self._reader is None else self._reader.first_position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if self._is_over:
            raise StopAsyncIteration
        opener = self._opener
        if self._reader is None:
            self._reader = await self._client.entries(
                opener.topic, opener.start, opener.end, timeout_s=self._timeout_s
            )
        rows = opener.rows()
        while rows.metadata.count < self._batch_rows and rows.value_bytes < self._batch_bytes:
            entries = await self._reader.read(
                self._batch_rows - rows.metadata.count, self._batch_bytes - rows.value_bytes
            )
            if not entries:
                await self.aclose()
                break
            for entry in entries:
                opener.open(entry, rows)
            self.next_position = entries[-1].next_position
        if not rows.metadata.count:
            raise StopAsyncIteration
        return rows.batch(self.schema)

    async def aclose(self) -> None:
        """Leave the broker; no batch comes any more. Closing twice is harmless."""
        self._is_over = True
        if self._reader is not None:
            await self._reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Rows:
    """Rows of one record batch, as they come."""

    def __init__(self, topic: TopicName) -> None:
        self.metadata = MetadataRows(str(topic), topic.partition_index)
        self.values: list[bytes | None] = []
        self.value_bytes = 0

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of ``schema``."""
        columns: list[pa.Array] = []
        for name in schema.names:
            if name == VALUE.name:
                columns.append(pa.array(self.values, pa.binary()))
            else:
                columns += self.metadata.columns([name])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class _RowOpener:
    """Makes rows of the messages in entries, without those before the start or behind the end."""

    def __init__(
        self,
        topic: TopicName,
        start: LogPosition,
        end: LogPosition | None,
        decryption: PrivateKeyReader | None,
    ) -> None:
        self.topic = str(topic)
        self.start = start
        self.end = end
        self._topic = topic
        # Chunks are read as fast as they come: they wait for others in the log, not in time.
        chunks = PendingChunks(CHUNKED_MESSAGES_MAX, math.inf, SystemClock())
        self._bodies = BodyOpener(chunks, None if decryption is None else Decryptor(decryption))

    def rows(self) -> _Rows:
        """None yet."""
        return _Rows(self._topic)

    def open(self, entry: RawEntry, rows: _Rows) -> None:
        """Add a row for each message of the entry. Raises ``UnreadableMessage``."""
        try:
            self._add(entry, rows)
        except (WireError, UnreadableMessage) as error:
            raise UnreadableMessage(
                f"message {entry.ledger_id}:{entry.entry_id} of {self.topic}: {error}"
            ) from error

    def _add(self, entry: RawEntry, rows: _Rows) -> None:
        position, metadata = (entry.ledger_id, entry.entry_id), entry.metadata
        if metadata is None:
            raise UnreadableMessage(entry.error or "")
        body = self._bodies.open(metadata, entry.payload[entry.body_start :], position)
        if body is None:
            return
        if metadata.HasField("num_messages_in_batch") and not body.earlier:
            self._add_batch(position, metadata, body.content, rows)
            return
        if position == self.start.entry and self.start.batch_index > 0:
            return  # the start lies behind the only message of its entry
        partition = self._topic.partition_index
        first = MessageId(*body.earlier[0], partition=partition) if body.earlier else None
        message_id = MessageId(*position, partition=partition, first_chunk=first)
        rows.metadata.add_single(message_id, metadata)
        rows.values.append(None if metadata.null_value else body.content)
        rows.value_bytes += len(body.content)

    def _add_batch(
        self, position: tuple[int, int], metadata: MessageMetadata, body: bytes, rows: _Rows
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
            kept_said = dict(said)
            said = [(n, kept_said[place]) for n, place in enumerate(kept) if place in kept_said]
        for place, single in said:
            if single.null_value:
                values[place] = None
        rows.metadata.add_batch(position, metadata, indexes, said)
        rows.values += values
        rows.value_bytes += len(body)
