"""Proves that a key goes to the consumer Pulsar 4.0.6 gives it to: its answers are recorded here.

``pulsar_key_ranges.json`` is what its ConsistentHashingStickyKeyConsumerSelector (100 points) said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.hash_ranges import range_hash
from geminga_broker.subscriptions.distribution.hash_ring import HASHES, HashRing, ring_hash

RECORDED: dict[str, Any] = json.loads(
    Path(__file__).with_name("pulsar_key_ranges.json").read_text()
)


def joined(ring: HashRing, name: str) -> Consumer:
    consumer = consumer_of(NotedSession(), name)
    ring.add(consumer)
    return consumer


def ranges(ring: HashRing, consumers: list[Consumer]) -> list[list[list[int]]]:
    return [[list(each) for each in ring.ranges_of(consumer)] for consumer in consumers]


def test_hashes_are_pulsars() -> None:
    for key, hashes in RECORDED["hashes"].items():
        assert [ring_hash(key.encode()), range_hash(key.encode())] == hashes


def test_ranges_are_pulsars_as_consumers_come_and_go() -> None:
    ring = HashRing()
    consumers: list[Consumer] = []
    for join in RECORDED["joins"]:
        consumers.append(joined(ring, join["name"]))
        assert ranges(ring, consumers) == join["ranges"]
    ring.remove(consumers.pop(0))
    assert ranges(ring, consumers) == RECORDED["first_left"]
    consumers.append(joined(ring, "alpha"))
    assert ranges(ring, consumers) == RECORDED["alpha_again"]


def test_without_consumers_a_key_has_no_owner() -> None:
    ring = HashRing()
    stranger = consumer_of(NotedSession(), "stranger")
    ring.remove(stranger)
    assert ring.select(1) is None
    assert ring.ranges_of(stranger) == []
    consumer = joined(ring, "c")
    ring.remove(consumer)
    assert ring.select(1) is None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.integers(1, HASHES))
def test_selecting_and_ranges_agree(names: list[str], key_hash: int) -> None:
    ring = HashRing(points_per_consumer=3)
    consumers = [joined(ring, name) for name in names]
    owners = [
        consumer
        for consumer in consumers
        if any(start <= key_hash <= end for start, end in ring.ranges_of(consumer))
    ]
    assert owners == [ring.select(key_hash)]


@given(st.integers(1, HASHES))
def test_a_newcomer_takes_keys_from_others_but_moves_none_between_them(key_hash: int) -> None:
    ring = HashRing()
    for name in "abc":
        joined(ring, name)
    before = ring.select(key_hash)
    newcomer = joined(ring, "d")
    assert ring.select(key_hash) in (before, newcomer)
    ring.remove(newcomer)
    assert ring.select(key_hash) is before
