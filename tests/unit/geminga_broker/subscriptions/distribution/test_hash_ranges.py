"""Proves that consumers get the hashes they name, and are refused those that others have."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import HashRange, KeySharedPolicy
from geminga_broker.subscriptions.distribution.hash_ranges import HashRanges
from geminga_protocol.pulsar.enums import KeySharedMode


def joined(keys: HashRanges, *ranges: HashRange) -> Consumer:
    policy = KeySharedPolicy(KeySharedMode.STICKY, ranges=ranges)
    consumer = consumer_of(NotedSession(), key_shared=policy)
    assert keys.holder(ranges) is None
    keys.add(consumer)
    return consumer


def test_a_hash_belongs_to_the_consumer_that_asked_for_its_range_both_ends_included() -> None:
    keys = HashRanges()
    low = joined(keys, (0, 10))
    high = joined(keys, (20, 30), (100, 200))
    assert [keys.select(each) for each in (0, 10, 11, 19, 20, 30)] == [
        low,
        low,
        None,
        None,
        high,
        high,
    ]
    assert keys.select(201) is None
    assert keys.ranges_of(high) == [(20, 30), (100, 200)]


def test_what_lies_between_two_ranges_of_one_consumer_is_its_own_until_asked_for() -> None:
    keys = HashRanges()
    first = joined(keys, (0, 10), (20, 30))
    assert keys.select(15) is first
    second = joined(keys, (12, 18))
    assert keys.select(15) is second


@pytest.mark.parametrize("conflict", [(0, 0), (5, 6), (10, 10), (10, 12), (0, 99), (25, 26)])
def test_a_range_of_another_consumer_has_a_holder(conflict: HashRange) -> None:
    keys = HashRanges()
    first = joined(keys, (0, 10), (20, 30))
    assert keys.holder([conflict]) is first


def test_ranges_are_free_again_when_their_consumer_is_gone() -> None:
    keys = HashRanges()
    first = joined(keys, (0, 65_535))
    keys.remove(first)
    assert keys.select(5) is None
    second = joined(keys, (0, 65_535))
    assert keys.select(5) is second
