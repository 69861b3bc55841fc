"""Proves that what waits for its key's consumer waits in order, also when keys change hands."""

from __future__ import annotations

from tests.unit.geminga_broker.clients_and_logs import KeyedLog, NotedSession, consumer_of

from geminga_broker.managed_ledger.positions import EARLIEST, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes
from geminga_broker.subscriptions.distribution.keyed_replay import KeyedReplay

IDS: list[EntryId] = [(1, entry) for entry in range(8)]
# The key of entry i has the hash i % 4 + 1.
HASHES = [entry % 4 + 1 for _, entry in IDS]
NO_OWNERS: dict[int, Consumer] = {}


def known_hashes() -> KeyHashes:
    known = KeyHashes(int)
    log = KeyedLog("1234", (1, len(IDS)))
    known.of_run(1, log.cached_run(Position(1, 0), len(IDS)), EARLIEST)
    assert known.of(IDS) == HASHES
    return known


def consumers(count: int) -> list[Consumer]:
    return [consumer_of(NotedSession(), f"c{number}") for number in range(count)]


def waiting(replay: KeyedReplay) -> dict[str, list[int]]:
    """The entries that wait for each consumer, by its name."""
    return {each.name: [entry for _, entry in queue] for each, queue in replay.queues.items()}


def test_what_changes_hands_waits_in_order_among_what_was_there() -> None:
    first, second = consumers(2)
    replay = KeyedReplay()
    replay.add_for(first, IDS[::2])
    replay.add_for(second, IDS[1::2])
    assert waiting(replay) == {"c0": [0, 2, 4, 6], "c1": [1, 3, 5, 7]}
    replay.reassign(known_hashes(), {1: first, 2: first, 3: second, 4: first}.get)
    assert waiting(replay) == {"c0": [0, 1, 3, 4, 5, 7], "c1": [2, 6]}
    assert sorted(replay.firsts) == [(1, 0), (1, 2)]
    replay.reassign(known_hashes(), {1: first, 2: first, 4: first}.get)
    assert (len(replay), waiting(replay)) == (8, {"c0": [0, 1, 3, 4, 5, 7]})
    assert sorted(replay.firsts) == [(1, 0), (1, 2)], "what waits for its hash is wanted too"
    replay.queues[first].take(6)
    replay.reassign(known_hashes(), NO_OWNERS.get)
    assert (len(replay), replay.queues) == (2, {})


def test_entries_of_a_hash_without_a_receiver_wait_until_it_has_one() -> None:
    first, second = consumers(2)
    replay = KeyedReplay()
    replay.add_all(IDS, HASHES, NO_OWNERS.get)
    assert (len(replay), waiting(replay)) == (8, {})
    assert not replay.unblock([1], NO_OWNERS.get)
    assert not replay.unblock([99], {99: first}.get)
    assert replay.unblock([2], {2: first}.get)
    assert waiting(replay) == {"c0": [1, 5]}
    replay.reassign(known_hashes(), {1: second, 2: second}.get)
    assert waiting(replay) == {"c1": [0, 1, 4, 5]}
    everything = dict.fromkeys(HASHES, first)
    assert not replay.unblock([1, 2], everything.get)
    assert replay.unblock([3, 4], everything.get)
    assert waiting(replay) == {"c1": [0, 1, 4, 5], "c0": [2, 3, 6, 7]}
    assert len(replay) == 8


def test_what_is_taken_or_acknowledged_waits_no_more() -> None:
    first, second = consumers(2)
    replay = KeyedReplay()
    replay.add_for(first, IDS[:4])
    replay.add_all(IDS[4:], HASHES[4:], NO_OWNERS.get)
    replay.queues[first].take(2)
    replay.discard(IDS[0], 1, first)
    replay.discard(IDS[2], 3, second)
    assert (len(replay), waiting(replay)) == (6, {"c0": [2, 3]})
    replay.discard(IDS[3], 4, first)
    replay.discard(IDS[7], 4, None)
    replay.discard(IDS[7], 4, None)
    assert not replay.unblock([4], {4: first}.get), "its only entry was acknowledged"
    assert (len(replay), waiting(replay)) == (4, {"c0": [2]})


def test_what_the_mark_passes_waits_no_more() -> None:
    (first,) = consumers(1)
    replay = KeyedReplay()
    replay.add_for(first, IDS[::2])
    replay.add_all(IDS[1::2], HASHES[1::2], NO_OWNERS.get)
    replay.discard_upto(IDS[5])
    assert (len(replay), waiting(replay)) == (2, {"c0": [6]})
    assert not replay.unblock([2], {2: first}.get)
    assert replay.unblock([4], {4: first}.get)
    assert waiting(replay) == {"c0": [6, 7]}
