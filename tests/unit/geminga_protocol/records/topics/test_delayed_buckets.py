"""Proves that buckets are named, written and read as Apache Pulsar's bucket tracker does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.delayed_buckets import (
    BucketKey,
    SegmentSummary,
    bucket_labels,
    buckets_of,
    decode_segment,
    decode_summaries,
    encode_segment,
    encode_summaries,
)

UINT63 = st.integers(0, 2**63 - 1)


def test_a_bucket_is_named_by_its_ledgers() -> None:
    assert BucketKey(3, 17).property_name == "#pulsar.internal.delayed.bucket_3_17"


def test_buckets_are_found_among_a_cursors_properties_in_their_order() -> None:
    properties = {
        "team": "payments",
        "#pulsar.internal.delayed.bucket_12_14": "90",
        "#pulsar.internal.delayed.bucket_3_11": "80",
        "#pulsar.internal.delayed.bucket_3": "1",
        "#pulsar.internal.delayed.bucket_3_x": "1",
        "#pulsar.internal.delayed.bucket_15_16": "lost",
    }
    found = buckets_of(properties)
    assert list(found.items()) == [(BucketKey(3, 11), 80), (BucketKey(12, 14), 90)]


@pytest.mark.parametrize("ledger_id", ["1" * 5_000, "9" * 19])
def test_numbers_that_are_no_ids_of_ledgers_name_no_bucket(ledger_id: str) -> None:
    prefix = "#pulsar.internal.delayed.bucket"
    properties = {f"{prefix}_{ledger_id}_14": "90", f"{prefix}_3_11": ledger_id}
    assert not buckets_of(properties)


def test_a_buckets_ledger_says_whose_it_is() -> None:
    assert bucket_labels(BucketKey(3, 4), "persistent://a/b/c", "sub") == {
        "application": b"pulsar",
        "component": b"delayed-index-bucket",
        "pulsar/delayedIndexBucketKey": b"#pulsar.internal.delayed.bucket_3_4",
        "pulsar/delayedIndexTopic": b"persistent://a/b/c",
        "pulsar/delayedIndexCursor": b"sub",
    }


def test_the_first_entry_is_what_pulsar_writes() -> None:
    summaries = [SegmentSummary(1000, 2000, {7: 0b100000})]
    encoded = encode_summaries(summaries)
    # A map entry (ledger 7, a bitmap with member 5), the last time, the first time.
    bitmap = "3a3000000100000000000000100000000500"
    assert encoded.hex() == f"0a1e0a1608071212{bitmap}10d00f18e807"
    assert decode_summaries(encoded) == summaries


def test_a_segment_is_what_pulsar_writes() -> None:
    encoded = encode_segment([(1000, 7, 5)])
    assert encoded.hex() == "0a0708e80710071805"
    assert decode_segment(encoded) == [(1000, 7, 5)]


@given(st.lists(st.tuples(UINT63, UINT63, UINT63), max_size=20))
def test_what_is_written_of_a_segment_is_read_back(messages: list[tuple[int, int, int]]) -> None:
    assert decode_segment(encode_segment(messages)) == messages


@given(st.binary(max_size=60))
def test_any_bytes_are_a_bucket_or_malformed(value: bytes) -> None:
    for decode in (decode_segment, decode_summaries):
        try:
            decode(value)
        except MalformedRecord:
            continue


def test_a_summary_with_a_damaged_bitmap_is_malformed() -> None:
    with pytest.raises(MalformedRecord):
        decode_summaries(bytes.fromhex("0a0b0a0408071200107b18e807"))
