"""The index of a subscription's delayed messages, as Pulsar stores it (PIP-195).

The index is divided into buckets. A bucket has the delayed messages of some consecutive ledgers of
the topic and is stored in a ledger of its own: entry 0 summarizes the other entries, and entry n is
segment n, with messages in the order of their delivery times. A property of the cursor names the
ledger of each bucket. So a broker can load only the segments whose messages are due soon.
Facts: ``BucketDelayedDeliveryTracker``, ``MutableBucket``, ``ImmutableBucket`` and
``BookkeeperBucketSnapshotStorage`` of Apache Pulsar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from geminga_protocol.records.delayed_buckets_pb2 import (
    SnapshotMetadata,
    SnapshotSegment,
    SnapshotSegmentMetadata,
)
from geminga_protocol.records.encodings.protobuf_records import parse_message
from geminga_protocol.records.encodings.roaring import decode_bits, encode_bits
from geminga_protocol.records.ledgers.ledger_metadata import LEDGER_ID_MAX

#     property of the cursor                          ledger of the bucket
#     #pulsar.internal.delayed.bucket_7_9 = "12"      12: entry 0   SegmentSummary of each segment
#                                                         entry 1   segment 1: the earliest times
#     bucket of delayed messages in ledgers 7 to 9        entry n   segment n: the latest times
BUCKET_PROPERTY = "#pulsar.internal.delayed.bucket"

_METADATA = "metadata of a bucket of delayed messages"
_SEGMENT = "segment of a bucket of delayed messages"
# Python converts no text of more than 4,300 digits; a ledger id has 19 at most.
_PROPERTY_NAME = re.compile(re.escape(BUCKET_PROPERTY) + r"_(\d{1,19})_(\d{1,19})", re.ASCII)
_LEDGER_ID = re.compile(r"\d{1,19}", re.ASCII)

# (deliver_at_ms, ledger_id, entry_id) of one delayed message.
DelayedIndex = tuple[int, int, int]


@dataclass(frozen=True, slots=True, order=True)
class BucketKey:
    """The ledgers of a bucket's messages: the first and the last, both included."""

    first_ledger_id: int
    last_ledger_id: int

    @property
    def property_name(self) -> str:
        """The property of the cursor whose value is the id of the bucket's ledger, in decimal."""
        return f"{BUCKET_PROPERTY}_{self.first_ledger_id}_{self.last_ledger_id}"


def buckets_of(properties: Mapping[str, str]) -> dict[BucketKey, int]:
    """The ledgers of the buckets that a cursor's properties name, in the order of their keys.

    Properties that name no bucket or no ledger are left out; the broker then finds their delayed
    messages by reading the topic again.
    """
    found: dict[BucketKey, int] = {}
    for name, value in properties.items():
        # The cursor's properties are shared with users (properties of a subscription): any text may
        # be among them.
        match = _PROPERTY_NAME.fullmatch(name)
        if match is None or not _LEDGER_ID.fullmatch(value):
            continue
        first, last, ledger_id = map(int, (*match.groups(), value))
        # 19 digits can say more than 63 bits.
        if max(first, last, ledger_id) <= LEDGER_ID_MAX:
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
    """What entry 0 says about a segment."""

    # When the segment's first and last message are due, in Unix time.
    due_first_ms: int
    due_last_ms: int
    # For each ledger, the bit set of the ids of its entries in the segment. A Python int as a bit
    # set: bit n is entry n.
    entries: Mapping[int, int] = field(default_factory=dict)


def encode_summaries(summaries: Iterable[SegmentSummary]) -> bytes:
    """Entry 0 of a bucket."""
    return SnapshotMetadata(
        metadata_list=[
            SnapshotSegmentMetadata(
                delayed_index_bit_map={
                    # In the portable form of RoaringBitmap, as upstream's library writes it.
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
