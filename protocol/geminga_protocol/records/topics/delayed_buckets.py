"""Where Pulsar keeps the index of a subscription's delayed messages (PIP-195).

The index is cut into buckets, each the delayed messages of some consecutive ledgers of the topic,
each in a ledger of its own: entry 0 says what the other entries hold, entry n is segment n, with
messages in the order of their delivery times. A property of the cursor names each bucket's ledger.
Facts: ``BucketDelayedDeliveryTracker``, ``MutableBucket``, ``ImmutableBucket`` and
``BookkeeperBucketSnapshotStorage`` of Apache Pulsar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from geminga_protocol.records.delayed_buckets_pb2 import (
    SnapshotMetadata,
    SnapshotSegment,
    SnapshotSegmentMetadata,
)
from geminga_protocol.records.encodings.protobuf_records import parse_message
from geminga_protocol.records.encodings.roaring import decode_bits, encode_bits

BUCKET_PROPERTY = "#pulsar.internal.delayed.bucket"

_METADATA = "metadata of a bucket of delayed messages"
_SEGMENT = "segment of a bucket of delayed messages"
_PARTS = 3

DelayedIndex = tuple[int, int, int]
"""``(deliver_at_ms, ledger_id, entry_id)``: one delayed message."""


@dataclass(frozen=True, slots=True, order=True)
class BucketKey:
    """Which ledgers' delayed messages a bucket holds: the first and the last, both included."""

    first_ledger_id: int
    last_ledger_id: int

    @property
    def property_name(self) -> str:
        """The cursor's property whose value is the bucket's ledger, in decimal digits."""
        return f"{BUCKET_PROPERTY}_{self.first_ledger_id}_{self.last_ledger_id}"


def buckets_of(properties: Mapping[str, str]) -> dict[BucketKey, int]:
    """The ledgers of the buckets that a cursor's properties name, in the order of their keys.

    What is no name of a bucket, or names no ledger, is left out: its messages are read again.
    """
    found: dict[BucketKey, int] = {}
    for name, value in properties.items():
        parts = name.split("_")
        if parts[0] == BUCKET_PROPERTY and len(parts) == _PARTS:
            numbers = [*parts[1:], value]
            if all(each.isascii() and each.isdigit() for each in numbers):
                first, last, ledger_id = map(int, numbers)
                found[BucketKey(first, last)] = ledger_id
    return dict(sorted(found.items()))


def bucket_labels(key: BucketKey, topic: str, subscription: str) -> dict[str, bytes]:
    """The custom metadata of a bucket's ledger."""
    return {
        "application": b"pulsar",
        "component": b"delayed-index-bucket",
        "pulsar/delayedIndexBucketKey": key.property_name.encode(),
        "pulsar/delayedIndexTopic": topic.encode(),
        "pulsar/delayedIndexCursor": subscription.encode(),
    }


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What entry 0 says of a segment: when its first and its last message are due (Unix time), and
    which entries of which ledgers it holds, as a bit set of entry ids for each ledger."""

    due_first_ms: int
    due_last_ms: int
    entries: Mapping[int, int] = field(default_factory=dict)


def encode_summaries(summaries: Iterable[SegmentSummary]) -> bytes:
    """Entry 0 of a bucket."""
    return SnapshotMetadata(
        metadata_list=[
            SnapshotSegmentMetadata(
                delayed_index_bit_map={
                    ledger_id: encode_bits(members)
                    for ledger_id, members in sorted(each.entries.items())
                },
                max_schedule_timestamp=each.due_last_ms,
                min_schedule_timestamp=each.due_first_ms,
            )
            for each in summaries
        ]
    ).SerializeToString(deterministic=True)


def decode_summaries(payload: bytes) -> list[SegmentSummary]:
    """Read entry 0. Raises ``MalformedRecord``."""
    message = parse_message(SnapshotMetadata, payload, _METADATA)
    return [
        SegmentSummary(
            each.min_schedule_timestamp,
            each.max_schedule_timestamp,
            {key: decode_bits(value) for key, value in each.delayed_index_bit_map.items()},
        )
        for each in message.metadata_list
    ]


def encode_segment(indexes: Iterable[DelayedIndex]) -> bytes:
    """A segment; ``indexes`` are in the order of their delivery times."""
    segment = SnapshotSegment()
    add = segment.indexes.add
    for deliver_at_ms, ledger_id, entry_id in indexes:
        add(timestamp=deliver_at_ms, ledger_id=ledger_id, entry_id=entry_id)
    return segment.SerializeToString()


def decode_segment(payload: bytes) -> list[DelayedIndex]:
    """Read a segment. Raises ``MalformedRecord``."""
    return [
        (each.timestamp, each.ledger_id, each.entry_id)
        for each in parse_message(SnapshotSegment, payload, _SEGMENT).indexes
    ]
