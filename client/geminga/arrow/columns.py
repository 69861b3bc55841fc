"""Columns of the metadata of messages: ids, keys, times and properties.

Most messages of a batch have no metadata of their own but their size: what they share is noted once
for each entry, and only messages with more are handled one by one.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa

from geminga.arrow.layout import BatchLayout
from geminga.message_ids import MessageId
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata
from geminga_protocol.pulsar.messages.integers import encode_varint

# Both have the same names for the fields that they share.
Metadata = MessageMetadata | SingleMessageMetadata

TIMESTAMP = pa.timestamp("us", tz="UTC")
KEY, TOPIC, MESSAGE_ID = "__key", "__topic", "__messageId"
PUBLISH_TIME, EVENT_TIME, PROPERTIES = "__publishTime", "__eventTime", "__messageProperties"
METADATA_FIELDS: Mapping[str, pa.Field] = {
    KEY: pa.field(KEY, pa.binary()),
    TOPIC: pa.field(TOPIC, pa.string()),
    MESSAGE_ID: pa.field(MESSAGE_ID, pa.binary()),
    PUBLISH_TIME: pa.field(PUBLISH_TIME, TIMESTAMP),
    EVENT_TIME: pa.field(EVENT_TIME, TIMESTAMP),
    PROPERTIES: pa.field(PROPERTIES, pa.map_(pa.string(), pa.string())),
}

US_A_MS = 1000
# Batch indexes as message ids have them. Larger batches are rare: their indexes are encoded one by
# one.
VARINTS = [encode_varint(index) for index in range(1 << 12)]
TWO_BYTES_FROM = 1 << 7
assert len(VARINTS) <= 1 << 14  # numbers from there on have three bytes


# All lists and dicts here count rows from 0 to ``count``, also those with an entry for few rows. A
# row is in ``_metadata`` or in ``_keys`` or in neither, and in ``_without`` only if it is in
# neither.
class MetadataRows:
    """The metadata of the rows of one record batch."""

    def __init__(self, topic: str, partition: int) -> None:
        # How many rows there are.
        self.count = 0
        self._topic = topic
        # The field of message ids for the partition, if there is one.
        self._partition = b"" if partition < 0 else b"\x18" + encode_varint(partition)
        # The encoded message ids, in pieces that need not be whole ids, and the size of each id.
        self._id_parts: list[bytes] = []
        self._id_bytes: list[int] = []
        self._publish_times_us = array("q")
        # The metadata of rows that have more than a size and a key, and the keys of rows that have
        # just these; by row.
        self._metadata: dict[int, Metadata] = {}
        self._keys: dict[int, bytes] = {}
        # Rows of entries whose metadata cannot be read.
        self._without: list[int] = []

    # ---- rows

    def add_single(self, message_id: MessageId, metadata: MessageMetadata | None) -> None:
        """Add a message that is an entry by itself, or several in chunks."""
        encoded = message_id.to_bytes()
        self._id_parts.append(encoded)
        self._id_bytes.append(len(encoded))
        if metadata is None:
            # A place holder, which becomes null.
            self._publish_times_us.append(0)
            self._without.append(self.count)
        else:
            self._publish_times_us.append(metadata.publish_time * US_A_MS)
            self._metadata[self.count] = metadata
        self.count += 1

    def add_batch(
        self,
        entry: tuple[int, int],
        metadata: MessageMetadata,
        batch_indexes: Sequence[int],
        layout: BatchLayout,
    ) -> None:
        """Add messages of one batch; ``layout`` is that of these messages alone."""
        # MessageIdData{ledgerId=1, entryId=2, partition=3, batch_index=4, batch_size=6}: the ids of
        # a batch differ in their indexes alone, which are joined by what is around them.
        before = b"\x08" + encode_varint(entry[0]) + b"\x10" + encode_varint(entry[1])
        before += self._partition + b"\x20"
        behind = b"\x30" + encode_varint(metadata.num_messages_in_batch)
        size = len(batch_indexes)
        around = len(before) + len(behind)
        if isinstance(batch_indexes, range) and batch_indexes.stop <= len(VARINTS):
            # The usual case: consecutive indexes, of which those from ``TWO_BYTES_FROM`` on take
            # two bytes.
            varints = VARINTS[batch_indexes.start : batch_indexes.stop]
            short = max(0, min(batch_indexes.stop, TWO_BYTES_FROM) - batch_indexes.start)
            self._id_bytes += [around + 1] * short + [around + 2] * (size - short)
        else:
            varints = [encode_varint(index) for index in batch_indexes]
            self._id_bytes += [around + len(varint) for varint in varints]
        # A batch whose messages are all left out adds nothing.
        if size:
            self._id_parts += (before, (behind + before).join(varints), behind)
        # The messages of a batch have no publish time of their own.
        self._publish_times_us += array("q", (metadata.publish_time * US_A_MS,)) * size
        for place, single in layout.singles.items():
            self._metadata[self.count + place] = single
        for place, key in layout.keys.items():
            self._keys[self.count + place] = key
        self.count += size

    # ---- columns

    def column(self, name: str) -> pa.Array:
        """The column of this name, one of ``METADATA_FIELDS``."""
        if name == KEY:
            # Topics without keys are common: no list of so many ``None`` is made.
            if not self._keys and not self._metadata:
                return pa.nulls(self.count, pa.binary())
            return pa.array(self.keys(), pa.binary())
        if name == TOPIC:
            return pa.repeat(pa.scalar(self._topic, pa.string()), self.count)
        if name == MESSAGE_ID:
            # Arrow's form of variable sizes: where each id begins, and where the last one ends.
            offsets = array("i", accumulate(self._id_bytes, initial=0))
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(self._id_parts))]
            return pa.Array.from_buffers(pa.binary(), self.count, buffers)
        if name == PUBLISH_TIME:
            return self._publish_times()
        if name == EVENT_TIME:
            # 0 is the default of the field, and means that there is no event time.
            times = {
                row: each.event_time * US_A_MS
                for row, each in self._metadata.items()
                if each.event_time
            }
            if not times:
                return pa.nulls(self.count, TIMESTAMP)
            return pa.array([times.get(row) for row in range(self.count)], TIMESTAMP)
        assert name == PROPERTIES
        return self._properties()

    def keys(self) -> list[bytes | None]:
        """The keys of all rows, as bytes; ``None`` without one."""
        keys: list[bytes | None] = [None] * self.count
        for row, short_key in self._keys.items():
            keys[row] = short_key
        for row, metadata in self._metadata.items():
            if metadata.HasField("partition_key"):
                key = metadata.partition_key
                is_bytes = metadata.partition_key_b64_encoded
                keys[row] = base64.b64decode(key) if is_bytes else key.encode()
        return keys

    def _publish_times(self) -> pa.Array:
        if not self._without:
            times = pa.py_buffer(self._publish_times_us)
            return pa.Array.from_buffers(TIMESTAMP, self.count, [None, times])
        # The slow way, only with an entry that cannot be read.
        known = dict(enumerate(self._publish_times_us))
        for row in self._without:
            del known[row]
        return pa.array([known.get(row) for row in range(self.count)], TIMESTAMP)

    def _properties(self) -> pa.Array:
        if not self._metadata:
            # Maps without entries: all offsets are 0.
            none = pa.array([], pa.string())
            starts = [None, pa.py_buffer(bytes(4 * (self.count + 1)))]
            offsets = pa.Array.from_buffers(pa.int32(), self.count + 1, starts)
            return pa.MapArray.from_arrays(offsets, none, none)
        sizes = [0] * self.count
        pairs: list[tuple[str, str]] = []
        for row, metadata in self._metadata.items():
            if metadata.properties:
                # A name may be there twice: the last one counts, as in every client.
                properties = {pair.key: pair.value for pair in metadata.properties}
                sizes[row] = len(properties)
                pairs += properties.items()
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        offsets = pa.array(accumulate(sizes, initial=0), pa.int32())
        return pa.MapArray.from_arrays(
            offsets, pa.array(keys, pa.string()), pa.array(values, pa.string())
        )
