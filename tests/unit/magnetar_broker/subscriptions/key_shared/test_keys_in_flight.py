"""Proves what drains when keys change hands, and when it is drained."""

from __future__ import annotations

from tests.unit.magnetar_broker.clients_and_logs import NotedSession, consumer_of

from magnetar_broker.log.positions import EntryId
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.key_shared.keys_in_flight import Held, KeysInFlight

A, B = 17, 23
NOBODYS: dict[int, Consumer] = {}


def holder_of(in_flight: KeysInFlight, *sent: tuple[EntryId, int]) -> Consumer:
    """A consumer that was sent these entries of these hashes."""
    consumer = consumer_of(NotedSession())
    consumer.pending.update({position: 1 for position, _ in sent})
    ids, hashes = [position for position, _ in sent], [key_hash for _, key_hash in sent]
    in_flight.add_held(ids, hashes, consumer.pending)
    return consumer


def test_what_nobody_holds_is_not_in_flight() -> None:
    in_flight = KeysInFlight()
    in_flight.add_held([(1, 0), (1, 1)], [A, B], {(1, 1)})
    assert [in_flight.hash_of((1, entry)) for entry in (0, 1)] == [None, B]
    assert in_flight.remove_all([(1, 0), (1, 1)]) == ([], [(1, 0)])
    assert len(in_flight) == 0


def test_a_hash_that_is_anothers_drains_until_its_last_entry_is_done() -> None:
    in_flight = KeysInFlight()
    first = holder_of(in_flight, ((1, 0), A), ((1, 1), B), ((1, 2), A), ((1, 3), A))
    second = consumer_of(NotedSession())
    in_flight.reassigned({A: second, B: first}.get, [first, second])
    assert in_flight.draining == {A: Held(first, 3)}
    assert in_flight.remove((1, 1)) == 0
    assert in_flight.remove_all([(1, 0), (1, 3)]) == ([], [])
    assert in_flight.draining == {A: Held(first, 1)}
    assert in_flight.remove_all([(1, 9), (1, 2)]) == ([A], [(1, 9)])
    assert (in_flight.draining, in_flight.drained_total) == ({}, {first: 1})


def test_a_hash_that_goes_on_draining_remembers_how_often_others_had_to_wait() -> None:
    in_flight = KeysInFlight()
    first = holder_of(in_flight, ((1, 0), A), ((1, 1), B))
    in_flight.reassigned(NOBODYS.get, [first])
    in_flight.draining[A].blocked_attempts = 5
    in_flight.reassigned({B: first}.get, [first])
    assert in_flight.draining == {A: Held(first, 1, 5)}
    in_flight.reassigned({A: first, B: first}.get, [first])
    assert in_flight.draining == {}


def test_what_comes_back_last_drains_its_hash() -> None:
    in_flight = KeysInFlight()
    first = holder_of(in_flight, ((1, 0), A), ((1, 1), A))
    in_flight.reassigned(NOBODYS.get, [first])
    assert [in_flight.remove((1, entry)) for entry in (1, 0, 0)] == [0, A, 0]
    assert in_flight.drained_total == {first: 1}
    in_flight.left(first)
    assert in_flight.drained_total == {}
