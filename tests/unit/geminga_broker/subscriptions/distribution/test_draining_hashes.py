"""Proves what drains when keys change hands, and when it is drained."""

from __future__ import annotations

from tests.unit.geminga_broker.clients_and_logs import KeyedLog, NotedSession, consumer_of

from geminga_broker.managed_ledger.positions import EARLIEST
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.draining_hashes import DrainingHash, DrainingHashes
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes

A, B = ord("a"), ord("b")
NO_OWNERS: dict[int, Consumer] = {}


def hashes_of(keys: str) -> KeyHashes:
    """Entries with one key each, whose hash is the number of its letter."""
    known, log = KeyHashes(lambda key: key[0]), KeyedLog(keys)
    known.of_run(1, [log.entry(number) for number in range(len(keys))], EARLIEST)
    return known


def holder_of(*entries: int) -> Consumer:
    """A consumer that was sent these entries."""
    consumer = consumer_of(NotedSession())
    consumer.pending.update({(1, entry): 1 for entry in entries})
    return consumer


def test_a_hash_that_is_anothers_drains_until_its_last_entry_is_done() -> None:
    draining = DrainingHashes()
    first, second = holder_of(0, 1, 2, 3), holder_of()
    draining.reassigned({A: second, B: first}.get, [first, second], hashes_of("abaa"))
    assert draining.hashes == {A: DrainingHash(first, 3)}
    assert draining.given_up([(1, 1)]) == []
    assert draining.given_up([(1, 0), (1, 3), (1, 3)]) == []
    assert draining.hashes == {A: DrainingHash(first, 1)}
    assert draining.given_up([(1, 9), (1, 2)]) == [A]
    assert (draining.hashes, draining.drained_total) == ({}, {first: 1})


def test_a_hash_that_goes_on_draining_remembers_how_often_others_had_to_wait() -> None:
    draining, known = DrainingHashes(), hashes_of("ab")
    first = holder_of(0, 1)
    draining.reassigned(NO_OWNERS.get, [first], known)
    draining.hashes[A].blocked_attempts = 5
    draining.reassigned({B: first}.get, [first], known)
    assert draining.hashes == {A: DrainingHash(first, 1, 5)}
    draining.reassigned({A: first, B: first}.get, [first], known)
    assert draining.hashes == {}
    assert draining.given_up([(1, 0), (1, 1)]) == []
