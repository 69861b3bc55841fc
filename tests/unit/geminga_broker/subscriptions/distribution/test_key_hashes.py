"""Proves that the hash of every entry that was read is known, whatever was asked for before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.subscriptions.distribution.hash_ring import ring_hash
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload

ENTRIES = 40
BEGINNING = Position(0, -1)


def key(ledger_id: int, entry_id: int) -> bytes:
    return b"%d-%d" % (ledger_id, entry_id % 7)


def entry(ledger_id: int, entry_id: int) -> Entry:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=entry_id,
        publish_time=1,
        partition_key=key(ledger_id, entry_id).decode(),
    )
    return entry_id, encode_payload(metadata, b"m"), 1


runs = st.tuples(st.integers(0, 2), st.sets(st.integers(0, ENTRIES - 1), min_size=1))
steps = st.lists(st.tuples(runs, st.integers(0, 3 * ENTRIES // 2)))


@given(steps)
def test_what_was_read_and_is_not_done_with_is_known(
    taken: list[tuple[tuple[int, set[int]], int]],
) -> None:
    hashes = KeyHashes(ring_hash)
    mark = BEGINNING
    read: set[tuple[int, int]] = set()
    for (ledger_id, entry_ids), moved in taken:
        mark = max(mark, Position(*divmod(moved, ENTRIES)))
        ids = [(ledger_id, each) for each in sorted(entry_ids) if (ledger_id, each) > mark]
        if ids:
            run = [entry(*each) for each in ids]
            assert list(hashes.of_run(ledger_id, run, mark)) == [
                ring_hash(key(*each)) for each in ids
            ]
            read.update(ids)
        known = sorted(each for each in read if each > mark)
        assert hashes.of(known) == [ring_hash(key(*each)) for each in known]
        everything = [(ledger, each) for ledger in range(4) for each in range(ENTRIES)]
        for each, key_hash in zip(everything, hashes.of(everything), strict=True):
            assert key_hash in {0, ring_hash(key(*each))}


def test_a_key_is_looked_for_once() -> None:
    looked: list[bytes] = []

    def noted(found: bytes) -> int:
        looked.append(found)
        return ring_hash(found)

    hashes = KeyHashes(noted)
    run = [entry(0, each) for each in range(10)]
    for part in (run[:5], run[3:], run[2:3] + run[8:], run):
        hashes.of_run(0, part, BEGINNING)
    assert len(looked) == len(run)


def test_what_the_mark_has_passed_takes_no_memory() -> None:
    hashes = KeyHashes(ring_hash)
    for ledger_id in range(3):
        hashes.of_run(ledger_id, [entry(ledger_id, each) for each in range(ENTRIES)], BEGINNING)
    hashes.of_run(2, [entry(2, ENTRIES)], Position(2, ENTRIES - 1))
    everything = [(ledger, each) for ledger in range(3) for each in range(ENTRIES)]
    assert not any(hashes.of(everything))
    assert hashes.of([(2, ENTRIES)]) == [ring_hash(key(2, ENTRIES))]
