"""Proves what of a run is whose in a Key_Shared subscription, and how far reading goes on."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import KeyedLog, NotedSession, consumer_of

from geminga_broker.managed_ledger.positions import EARLIEST, Entry, EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT
from geminga_broker.subscriptions.distribution import key_shared
from geminga_broker.subscriptions.distribution.hash_ring import ring_hash
from geminga_broker.subscriptions.distribution.key_shared import KeySharedDistribution

KEYS = "abcdefgh"
LOG = KeyedLog(KEYS, (1, 100))
RUN = [LOG.entry(number) for number in range(40)]


def distribution_to(**permits: int) -> KeySharedDistribution:
    """To consumers of these names, which can take so many messages."""
    distribution = KeySharedDistribution(AUTO_SPLIT, [], lambda _: False)
    for name, count in permits.items():
        consumer = consumer_of(NotedSession(), name)
        consumer.permits = count
        distribution.add(consumer)
    return distribution


def owner_of(distribution: KeySharedDistribution, entry: Entry) -> Consumer | None:
    return distribution.keys.select(ring_hash(LOG.key(entry[0]).encode()))


def ids_of(entries: list[Entry]) -> list[EntryId]:
    return [(1, each[0]) for each in entries]


def test_each_consumer_gets_the_entries_of_its_keys_in_order() -> None:
    distribution = distribution_to(x=100, y=100, z=100)
    shares, used = distribution.share_out(1, RUN, EARLIEST)
    assert used == len(RUN)
    for consumer in distribution.consumers:
        expected = [each for each in RUN if owner_of(distribution, each) is consumer]
        assert (shares[consumer].entries if consumer in shares else []) == expected


def test_reading_ends_where_no_consumer_can_take_more() -> None:
    distribution = distribution_to(x=3, y=0)
    shares, used = distribution.share_out(1, RUN, EARLIEST)
    x, y = distribution.consumers
    taken = [each for each in RUN[:used] if owner_of(distribution, each) is x]
    assert len(taken) == 3
    assert taken[-1] == RUN[used - 1], "what comes behind it is not looked at"
    assert shares[x].is_wanted
    assert y not in shares or not shares[y].is_wanted


def test_reading_ends_where_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD_PER_CONSUMER_MAX", 2)
    distribution = distribution_to(x=100, y=0)
    shares, _ = distribution.share_out(1, RUN, EARLIEST)
    _, y = distribution.consumers
    assert len(shares[y].entries) == distribution.look_ahead_max == 4


def test_a_key_waits_until_its_former_owner_has_acknowledged_its_entries() -> None:
    distribution = distribution_to(x=100)
    (x,) = distribution.consumers
    shares, _ = distribution.share_out(1, RUN[: len(KEYS)], EARLIEST)
    x.pending.update(dict.fromkeys(ids_of(shares[x].entries), 1))
    y = consumer_of(NotedSession(), "y")
    y.permits = 100
    distribution.add(y)
    moved = [each for each in RUN[: len(KEYS)] if owner_of(distribution, each) is y]
    assert moved, "some keys are the newcomer's"
    shares, _ = distribution.share_out(1, RUN[len(KEYS) : 2 * len(KEYS)], EARLIEST)
    assert y not in shares
    draining = shares[None].entries
    assert [each[0] - len(KEYS) for each in draining] == [each[0] for each in moved]
    distribution.queue_for(None, ids_of(draining))
    assert distribution.acknowledged(ids_of(moved[:1]), ()), "its key goes on"
    assert list(distribution.replay.queues[y]) == ids_of(draining[:1])
    assert distribution.waiting_count == len(draining)
