"""Proves by which numbers a repeat is known, and for how long."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import QUIET

from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.topics.decisions.sequence_ids import (
    SNAPSHOT_BYTES_MAX,
    SequenceIds,
    Verdict,
    number_of_stored,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.integers import INT64_MAX, UINT64_MAX
from geminga_protocol.pulsar.messages.payload import encode_payload, parse_metadata


def sent(sequence_id: int, highest: int = 0, payload: bytes = b"") -> AppendRequest:
    return payload, 1, QUIET, sequence_id, highest


def chunk(number: int, of: int, sequence_id: int = 7) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=1,
        chunk_id=number,
        num_chunks_from_msg=of,
    )
    return encode_payload(metadata, b"")


def test_a_repeat_is_known_when_stored_and_undecided_while_pending() -> None:
    numbers = SequenceIds()
    assert numbers.judge("p", 0) is Verdict.NEW
    numbers.taken("p", 5)
    assert numbers.judge("p", 5) is Verdict.UNKNOWN
    assert numbers.judge("p", 6) is Verdict.NEW
    numbers.stored("p", [sent(4)], is_chunking=False)
    assert numbers.judge("p", 4) is Verdict.STORED
    assert numbers.judge("p", 5) is Verdict.UNKNOWN
    assert numbers.judge("q", 4) is Verdict.NEW


def test_numbers_that_do_not_grow_before_deduplication_do_not_stay_pending() -> None:
    numbers = SequenceIds()
    name = QUIET.name
    for number in (5, 3):
        numbers.found_pending(sent(number), now_s=10)
    assert numbers.has_pending(name)
    assert numbers.judge(name, 3) is Verdict.UNKNOWN
    assert numbers.judge(name, 4) is Verdict.NEW
    numbers.stored(name, [sent(5), sent(3)], is_chunking=False)
    assert not numbers.has_pending(name)


def test_a_batch_is_compared_by_its_lowest_number_and_remembered_by_its_highest() -> None:
    numbers = SequenceIds()
    assert numbers.all_new("p", [sent(0, 9), sent(10, 19)]) == 19
    assert numbers.all_new("p", [sent(0, 9), sent(9, 19)]) is None
    numbers.taken("p", 19)
    numbers.stored("p", [sent(10, 19)], is_chunking=False)
    assert numbers.judge("p", 15) is Verdict.STORED
    assert numbers.all_new("p", [sent(15, 25)]) is None


def test_a_highest_number_below_the_lowest_does_not_count() -> None:
    assert SequenceIds().all_new("p", [sent(7, 3)]) == 7


def test_numbers_are_signed_as_upstreams() -> None:
    numbers = SequenceIds()
    assert numbers.all_new("p", [sent(UINT64_MAX)]) == -1
    numbers.taken("p", INT64_MAX)
    assert numbers.judge("p", INT64_MAX + 1) is Verdict.UNKNOWN
    numbers.stored("p", [sent(UINT64_MAX)], is_chunking=False)
    assert numbers.snapshot(1) == {"p": -1}


def test_of_a_message_in_chunks_only_the_last_one_counts() -> None:
    numbers = SequenceIds()
    numbers.stored("p", [sent(7, payload=chunk(0, 2))], is_chunking=True)
    assert numbers.snapshot(1) == {}
    numbers.stored("p", [sent(7, payload=chunk(1, 2))], is_chunking=True)
    assert numbers.snapshot(1) == {"p": 7}
    assert number_of_stored(parse_metadata(chunk(0, 2))) is None
    assert number_of_stored(parse_metadata(chunk(1, 2))) == ("p", 7)


def test_a_marker_tells_of_no_producer() -> None:
    marker = api.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, marker_type=10)
    assert number_of_stored(marker) is None


def test_a_snapshot_is_what_is_stored_of_so_many_producers() -> None:
    numbers = SequenceIds()
    numbers.restore({"c": 3, "a": 1, "b": 2}, 0)
    numbers.taken("a", 9)
    assert list(numbers.snapshot(10).items()) == [("a", 1), ("b", 2), ("c", 3)]
    assert len(numbers.snapshot(2)) == 2


def test_a_snapshot_fits_into_an_entry_however_long_the_names_are() -> None:
    numbers = SequenceIds()
    numbers.restore({str(each) * (SNAPSHOT_BYTES_MAX // 3): each for each in range(5)}, 0)
    assert len(numbers.snapshot(10)) == 2


@pytest.mark.parametrize("is_back", [True, False])
def test_a_producer_that_is_away_for_long_is_forgotten(*, is_back: bool) -> None:
    numbers = SequenceIds()
    numbers.restore({"p": 3}, now_s=10)
    assert not numbers.forget_idle(since_s=10)
    if is_back:
        numbers.connected("p")
    assert numbers.forget_idle(since_s=11) is not is_back
    assert numbers.last_of("p") == (3 if is_back else -1)
    numbers.disconnected("p", now_s=20)
    assert not numbers.forget_idle(since_s=15)
