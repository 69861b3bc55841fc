"""Reads a range of a topic as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from geminga.arrow.rows import BadRecords, ColumnSelection, RowOpener
from geminga.client import Client
from geminga.consumers.entry_reader import EntryReader, RawEntry
from geminga.crypto.decryption import PrivateKeyReader
from geminga.message_ids import LOG_START, LogPosition
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.topic_names import TopicName

# Larger record batches no longer fit into a processor's cache, smaller ones cost more each.
BATCH_ROWS = 8192
BATCH_BYTES = 8 * 1024 * 1024
# How far is looked for the beginning of a message in chunks: the chunks of others may lie between,
# but a producer sends its own in a row. First so many entries, then so many times more.
LOOK_BACK_ENTRIES = 256
LOOK_BACK_FACTOR = 8
LOOK_BACK_ENTRIES_MAX = 100_000


def read_batches(
    client: Client,
    topic: str,
    start: LogPosition = LOG_START,
    end: LogPosition | None = None,
    *,
    schema: SchemaInfo | None = None,
    columns: Sequence[str] | None = None,
    bad_records: BadRecords = "fail",
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    decryption: PrivateKeyReader | None = None,
    timeout_s: float = 60.0,
) -> RecordBatches:
    """The messages of ``topic`` from ``start`` to ``end``, which is not included, as rows.

    The topic has no partitions, or is one partition of another; the range is that of
    ``Client.entries``. Without a ``schema`` there is one column of bytes, ``value``; with one, the
    columns of ``payload_fields``: ``schema=await client.schema(topic)`` has those of the topic's
    newest. What was written with another version of it is read by Avro's rules of resolution.

    ``columns`` are names in the order in which they are wanted: what is not wanted is not made.
    By default these are the payload's, then those of ``METADATA_FIELDS``. ``bad_records`` is what
    becomes of messages that cannot be opened or decoded: with ``"fail"`` reading raises
    ``UnreadableMessage``, with ``"permissive"`` they are rows without a value, whose column
    ``__corrupt`` has the payload, with ``"drop"`` they are no rows.

    A record batch ends with the entry that brings it to ``batch_rows`` rows or ``batch_bytes``
    bytes of payloads: where one ends, another reader can go on (``next_position``). Raises
    ``ValueError`` for a column that there is not, or a schema that has no columns.
    """
    if batch_rows < 1 or batch_bytes < 1:
        raise ValueError("batch_rows and batch_bytes are 1 at least")
    wanted = ColumnSelection.of(schema, columns, bad_records)
    opener = RowOpener(TopicName.parse(topic), start, end, wanted, decryption)
    return RecordBatches(client, opener, (batch_rows, batch_bytes), timeout_s)


async def read_table(
    client: Client,
    topic: str,
    start: LogPosition = LOG_START,
    end: LogPosition | None = None,
    *,
    schema: SchemaInfo | None = None,
    columns: Sequence[str] | None = None,
    bad_records: BadRecords = "fail",
    decryption: PrivateKeyReader | None = None,
    timeout_s: float = 60.0,
) -> pa.Table:
    """All rows of ``read_batches`` in one table. Raises what it raises, and what reading raises."""
    batches = read_batches(
        client,
        topic,
        start,
        end,
        schema=schema,
        columns=columns,
        bad_records=bad_records,
        decryption=decryption,
        timeout_s=timeout_s,
    )
    async with batches:
        rows = [batch async for batch in batches]
    return pa.Table.from_batches(rows, batches.schema)


class RecordBatches:
    """Made by ``read_batches``: ``async for`` gives record batches, none of them empty.

    Closed at its end, by ``aclose``, by ``async with``, or by the client. Reading raises
    ``ClientError``, ``TimeoutError`` when nothing came for ``timeout_s``, and ``UnreadableMessage``
    for a message that cannot be opened or decoded.
    """

    def __init__(
        self, client: Client, opener: RowOpener, limits: tuple[int, int], timeout_s: float
    ) -> None:
        self.schema: pa.Schema = opener.schema
        """The columns of every batch."""
        self.next_position = opener.start
        """Where reading goes on behind the batches that were given."""
        self._client = client
        self._opener = opener
        self._topic = str(opener.topic)
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
        opener = self._opener
        if self._reader is None and not self._is_over:
            self._reader = await self._client.entries(
                self._topic, opener.start, opener.end, timeout_s=self._timeout_s
            )
        while not self._is_over:
            rows = opener.rows()
            assert self._reader is not None
            while rows.count < self._batch_rows and rows.content_bytes < self._batch_bytes:
                entries = await self._reader.read(
                    self._batch_rows - rows.count, self._batch_bytes - rows.content_bytes
                )
                if not entries:
                    await self.aclose()
                    break
                await self._learn_schemas(entries)
                for entry in entries:
                    if opener.lacks_beginning(entry):
                        await self._find_beginning(entry)
                    opener.open(entry, rows)
                self.next_position = entries[-1].next_position
            batch = opener.batch(rows)
            if batch.num_rows:
                return batch
        raise StopAsyncIteration

    async def _learn_schemas(self, entries: Sequence[RawEntry]) -> None:
        """Ask for the schemas that these entries were written with, each once."""
        for entry in entries:
            version = self._opener.wanted_version(entry)
            if version is not None:
                self._opener.learn(version, await self._client.schema(self._topic, version))

    async def _find_beginning(self, entry: RawEntry) -> None:
        """Look before the start for the chunks that a message began with.

        A message in chunks belongs to the range that its last chunk is in.
        """
        assert entry.metadata is not None
        uuid, opener = entry.metadata.uuid, self._opener
        end = LogPosition(*opener.start.entry)
        left = LOOK_BACK_ENTRIES_MAX
        for start in _starts_before(end):
            async with self._client.entries(
                self._topic, start, end, timeout_s=self._timeout_s
            ) as earlier:
                while left > 0 and (entries := await earlier.read()):
                    left -= len(entries)
                    for each in entries:
                        opener.add_earlier(each, uuid)
            if not opener.lacks_beginning(entry):
                return
            if left <= 0:
                opener.give_up(uuid, "its first chunk lies too far before the start of the range")
                return
        # It was trimmed, or its producer began in the midst of it: consumers get no such message.
        opener.give_up(uuid, None)

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


def _starts_before(end: LogPosition) -> Iterator[LogPosition]:
    """Where to begin to read what lies before ``end``, further away each time.

    Which ledgers a topic has is not known, but that older ones have lower ids.
    """
    ledger_id, entry_id, _ = end
    distance = LOOK_BACK_ENTRIES
    while distance < entry_id:
        yield LogPosition(ledger_id, entry_id - distance)
        distance *= LOOK_BACK_FACTOR
    if entry_id > 0:
        yield LogPosition(ledger_id, 0)
    distance = 1
    while distance <= ledger_id:
        yield LogPosition(ledger_id - distance, 0)
        distance *= LOOK_BACK_FACTOR
    if ledger_id >= 0:
        yield LOG_START
