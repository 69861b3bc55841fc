"""Proves that entries of a compacted ledger are Pulsar's to the byte, and that garbage is told."""

from __future__ import annotations

import pytest

from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.compacted_ledger import (
    compacted_ledger_labels,
    decode_compacted,
    encode_compacted,
    encode_place,
)

ENTRY = bytes.fromhex("00000006 0807 1005 1802 00000003".replace(" ", "")) + b"abc"


def test_an_entry_is_its_place_then_its_payload_each_behind_its_size() -> None:
    assert encode_compacted(7, 5, b"abc", partition=2) == ENTRY
    assert decode_compacted(ENTRY) == (7, 5, b"abc")


def test_a_topic_that_is_no_partition_says_nothing_of_one() -> None:
    assert encode_place(7, 5, partition=-1) == bytes.fromhex("08071005")


@pytest.mark.parametrize("length", range(len(ENTRY)))
def test_an_entry_that_is_cut_off_is_malformed(length: int) -> None:
    with pytest.raises(MalformedRecord):
        decode_compacted(ENTRY[:length])


def test_a_place_that_makes_no_sense_is_malformed() -> None:
    with pytest.raises(MalformedRecord, match="makes no sense"):
        decode_compacted(ENTRY.replace(b"\x08\x07\x10\x05", b"\x08\x07\x12\x7f"))


def test_the_ledger_is_labelled_as_pulsar_labels_it() -> None:
    assert compacted_ledger_labels("persistent://t/n/x", b"place") == {
        "application": b"pulsar",
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": b"persistent://t/n/x",
        "pulsar/compactedTo": b"place",
    }
