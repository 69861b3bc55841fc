"""Reads a range of a topic as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from geminga.arrow.columns import MetadataRows
from geminga.arrow.rows import BadRecords, ColumnSelection, RowOpener, Rows
from geminga.client import Client
from geminga.consumers.entry_reader import EntryReader, RawEntry
from geminga.crypto.decryption import PrivateKeyReader
from geminga.message_ids import LOG_START, LogPosition
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.topics.topic_names import TopicName

# Larger record batches no longer fit into a processor's cache, smaller ones cost more for each row.
BATCH_ROWS = 8192
BATCH_BYTES = 8 * 1024 * 1024
# How far before the start the reader looks for the beginning of a message in chunks: first so many
# entries, then so many times more, up to a limit. Chunks of other producers may lie between, but a
# producer sends the chunks of one message without others of its own between them.
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
    """Read the messages of ``topic`` from ``start`` to ``end``, which is not included, as rows:

        schema = await client.schema("orders")
        async for batch in read_batches(client, "orders", schema=schema):
            ...

    - ``topic``: has no partitions, or is one partition of another; the range is that of
      ``Client.entries``.
    - ``schema``: makes the columns of ``payload_fields``; without one there is one column of bytes,
      ``value``. Messages that were written with another version of the topic's schema are read by
      Avro's rules of resolution.
    - ``columns``: the names of the columns that are wanted, in their order; by default those of the
      payload, then those of ``METADATA_FIELDS``. Other columns are not even made.
    - ``bad_records``: what becomes of messages that cannot be opened or decoded. With ``"fail"``
      reading raises ``UnreadableMessage``, with ``"permissive"`` they are rows without a value,
      whose column ``__corrupt`` has the payload, with ``"drop"`` they are no rows.
    - ``batch_rows``, ``batch_bytes``: a record batch ends with the entry that brings it to so many
      rows or bytes of payloads. Where one ends, another reader can go on (``next_position``).
    - ``decryption``: the private keys to read encrypted messages with.
    - ``timeout_s``: reading raises ``TimeoutError`` when nothing came for so many seconds.

    Raises ``ValueError`` for a column that does not exist, or a schema that has no columns.
    """
    if batch_rows < 1 or batch_bytes < 1:
        raise ValueError("batch_rows and batch_bytes must be at least 1")
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
    """Read all rows of ``read_batches`` into one table, with the same parameters.

    Raises what ``read_batches`` and reading its ``RecordBatches`` raise.
    """
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


# Between two batches nothing is kept of the entries but their place (``next_position``), and in the
# opener the chunks of messages that are not whole yet. Entries go into a batch as wholes.
class RecordBatches:
    """Record batches of a range of a topic, for ``async for``; none is empty. Made by
    ``read_batches``.

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
        """Where reading goes on behind the batches that were returned."""
        self._client = client
        self._opener = opener
        self._topic = str(opener.topic)
        self._batch_rows, self._batch_bytes = limits
        self._timeout_s = timeout_s
        self._reader: EntryReader | None = None
        self._is_over = False

    @property
    def first_position(self) -> LogPosition | None:
        """The first entry that the topic has at or behind the start, as of ``EntryReader``."""
        return None if self._reader is None else self._reader.first_position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        opener = self._opener
        # Opened with the first batch, since nothing can be awaited where this object is made.
        if self._reader is None and not self._is_over:
            self._reader = await self._client.entries(
                self._topic, opener.start, opener.end, timeout_s=self._timeout_s
            )
        while not self._is_over:
            rows = Rows(MetadataRows(self._topic, opener.topic.partition_index))
            next_position = self.next_position
            assert self._reader is not None
            while rows.count < self._batch_rows and rows.content_bytes < self._batch_bytes:
                # No more than the batch has room for, or else one entry, which may be larger than
                # that.
                entries = await self._reader.read(
                    self._batch_rows - rows.count, self._batch_bytes - rows.content_bytes
                )
                if not entries:
                    # The batch in the making is still returned; the next call finds ``_is_over``.
                    await self.aclose()
                    break
                # Versions of the schema first, each asked for once: the batch is made at a time
                # when nothing can be awaited.
                for entry in entries:
                    version = opener.wanted_version(entry)
                    if version is not None:
                        writer = await self._client.schema(self._topic, version)
                        opener.codec.learn(version, writer)
                for entry in entries:
                    if opener.lacks_beginning(entry):
                        await self._find_beginning(entry)
                    opener.open(entry, rows)
                # By whole entries: a reader that goes on there repeats and leaves out nothing.
                next_position = entries[-1].next_position
            batch = opener.batch(rows)
            # Only now: a message that cannot be read ends the batch, of which no row is returned.
            self.next_position = next_position
            # Bad records may have been dropped, and chunks have no row until their message is
            # whole.
            if batch.num_rows:
                return batch
        raise StopAsyncIteration

    async def _find_beginning(self, entry: RawEntry) -> None:
        """Look before the start for the first chunks of a message, of which this entry is another.

        A message in chunks belongs to the range that has its last chunk.
        """
        assert entry.metadata is not None
        uuid, opener = entry.metadata.uuid, self._opener
        # Without the batch index: the entry at the start is read by the reader itself.
        end = LogPosition(*opener.start.entry)
        # For all attempts together: the later ones repeat what the earlier ones have read.
        left = LOOK_BACK_ENTRIES_MAX
        for start in _starts_before(end):
            # Another reader, since the first one only goes forward. ``add_earlier`` ignores chunks
            # that it has taken in already.
            async with self._client.entries(
                self._topic, start, end, timeout_s=self._timeout_s
            ) as earlier:
                while left > 0 and (entries := await earlier.read()):
                    left -= len(entries)
                    for each in entries:
                        opener.add_earlier(each, uuid)
            # The chunks before this one have come by now, in their order, or one of them cannot be
            # read.
            if not opener.lacks_beginning(entry):
                return
            if left <= 0:
                opener.give_up(uuid, "its first chunk lies too far before the start of the range")
                return
        # The beginning was trimmed, or its producer never sent it: consumers get no such message.
        opener.give_up(uuid, None)

    async def aclose(self) -> None:
        """Leave the broker; iteration then ends. Closing twice is harmless."""
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
    """Positions before ``end`` from which to read up to it, further away each time.

    The client does not know which ledgers a topic has, only that older ones have lower ids.
    """
    ledger_id, entry_id, _ = end
    distance = LOOK_BACK_ENTRIES
    while distance < entry_id:
        yield LogPosition(ledger_id, entry_id - distance)
        # What was read before is read again, an eighth of the new distance each time.
        distance *= LOOK_BACK_FACTOR
    if entry_id > 0:
        yield LogPosition(ledger_id, 0)
    distance = 1
    while distance <= ledger_id:
        yield LogPosition(ledger_id - distance, 0)
        distance *= LOOK_BACK_FACTOR
    if ledger_id >= 0:
        yield LOG_START
