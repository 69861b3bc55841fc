"""Proves that a key goes to one consumer, in order, and that no consumer waits for others' keys."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    KeyedLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from geminga_broker.managed_ledger.cache.entry_cache import ENTRY_OVERHEAD_BYTES
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import (
    AUTO_SPLIT,
    HashRange,
    KeySharedPolicy,
)
from geminga_broker.subscriptions.dispatch import key_shared_dispatcher
from geminga_broker.subscriptions.dispatch.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.distribution import key_shared
from geminga_broker.subscriptions.distribution.hash_ranges import range_hash
from geminga_broker.subscriptions.distribution.hash_ring import ring_hash
from geminga_protocol.pulsar.enums import KeySharedMode

KEYS = "abcdefgh"


def dispatcher_over(log: KeyedLog, policy: KeySharedPolicy = AUTO_SPLIT) -> KeySharedDispatcher:
    return KeySharedDispatcher(log, cursor_over(log.chain), [], policy)  # type: ignore[arg-type]  # a stand-in


def joined(
    dispatcher: KeySharedDispatcher, name: str, *, permits: int, ranges: tuple[HashRange, ...] = ()
) -> tuple[Consumer, NotedSession]:
    session = NotedSession()
    shared = dispatcher.distribution.policy
    policy = KeySharedPolicy(shared.mode, shared.allows_out_of_order, ranges)
    consumer = consumer_of(session, name, key_shared=policy)
    consumer.permits = permits
    dispatcher.add(consumer)
    return consumer, session


def acknowledge(dispatcher: KeySharedDispatcher, consumer: Consumer, *entries: int) -> None:
    for entry_id in entries:
        position = Position(1, entry_id)
        dispatcher.cursor.acknowledged.acknowledge(*position)
        assert consumer.forget(position)
        if dispatcher.acknowledged_all([position], [position]):
            dispatcher.dispatch()


def keys_of(session: NotedSession, log: KeyedLog) -> set[str]:
    return {log.key(entry_id) for _, entry_id in session.positions()}


def owned(dispatcher: KeySharedDispatcher, consumer: Consumer) -> set[str]:
    ranges = dispatcher.distribution.keys.ranges_of(consumer)
    return {
        key for key in KEYS if any(start <= ring_hash(key.encode()) <= end for start, end in ranges)
    }


def test_each_consumer_gets_all_of_its_keys_in_order() -> None:
    log = KeyedLog(KEYS, (1, 80))
    dispatcher = dispatcher_over(log)
    members = [joined(dispatcher, name, permits=100) for name in "xyz"]
    dispatcher.dispatch()
    for consumer, session in members:
        assert keys_of(session, log) == owned(dispatcher, consumer)
        assert session.positions() == sorted(session.positions())
    sent = sorted(position for _, session in members for position in session.positions())
    assert sent == [(1, entry) for entry in range(80)]


def test_a_newcomer_gets_at_once_what_is_not_on_its_way_to_others() -> None:
    log = KeyedLog(KEYS, (1, 16))
    dispatcher = dispatcher_over(log)
    first, first_session = joined(dispatcher, "x", permits=4)
    dispatcher.dispatch()
    second, session = joined(dispatcher, "y", permits=100)
    dispatcher.dispatch()
    held = {log.key(entry_id) for entry_id in range(4)}
    assert owned(dispatcher, second) & held, "the keys of this test say nothing"
    assert owned(dispatcher, second) - held, "the keys of this test say nothing"
    assert keys_of(session, log) == owned(dispatcher, second) - held
    draining = dispatcher.distribution.draining.of(first)
    assert set(draining) == {ring_hash(key.encode()) for key in held & owned(dispatcher, second)}
    assert all(each.entries == 1 and each.blocked_attempts == 1 for each in draining.values())
    assert dispatcher.distribution.draining.of(second) == {}
    acknowledge(dispatcher, first, *range(4))
    assert keys_of(session, log) == owned(dispatcher, second)
    assert dispatcher.distribution.draining.of(first) == {}
    assert dispatcher.distribution.draining.drained_total.get(first, 0) == len(draining)
    assert len(first_session.positions()) == 4


def test_a_key_that_comes_back_to_its_holder_need_not_drain() -> None:
    log = KeyedLog(KEYS, (1, 16))
    dispatcher = dispatcher_over(log)
    first, session = joined(dispatcher, "x", permits=8)
    dispatcher.dispatch()
    second, _ = joined(dispatcher, "y", permits=0)
    assert dispatcher.distribution.draining.of(first)
    dispatcher.remove(second)
    assert not dispatcher.distribution.draining.of(first)
    first.permits = 100
    dispatcher.dispatch()
    assert session.positions() == [(1, entry) for entry in range(16)]


def test_what_a_leaving_consumer_held_goes_first_to_the_new_owner() -> None:
    log = KeyedLog("a", (1, 10))
    dispatcher = dispatcher_over(log)
    leaving, _ = joined(dispatcher, "x", permits=3)
    dispatcher.dispatch()
    _, session = joined(dispatcher, "y", permits=100)
    dispatcher.dispatch()
    dispatcher.remove(leaving)
    assert session.positions() == [(1, entry) for entry in range(10)]


def test_a_given_back_entry_of_a_draining_key_waits_for_the_rest() -> None:
    log = KeyedLog("b", (1, 6))
    dispatcher = dispatcher_over(log)
    holder, session = joined(dispatcher, "x", permits=3)
    dispatcher.dispatch()
    holder.permits = 100
    others = [joined(dispatcher, name, permits=100) for name in "yzuvw"]
    assert dispatcher.distribution.draining.of(holder), "the names of this test say nothing"
    dispatcher.redeliver(holder, [Position(1, 1)])
    assert all(not other.positions() for _, other in others)
    acknowledge(dispatcher, holder, 0, 2)
    (new,) = [other.messages() for _, other in others if other.positions()]
    assert new == [(Position(1, 1), 1), *((Position(1, entry), 0) for entry in (3, 4, 5))]
    assert len(session.positions()) == 3


def test_an_idle_consumer_is_served_though_another_takes_nothing() -> None:
    log = KeyedLog(KEYS, (1, 800))
    dispatcher = dispatcher_over(log)
    stuck, stuck_session = joined(dispatcher, "x", permits=1)
    idle, session = joined(dispatcher, "y", permits=1000)
    dispatcher.dispatch()
    assert len(stuck_session.positions()) == 1
    assert len(session.positions()) == 100 * len(owned(dispatcher, idle))
    assert dispatcher.redelivery_backlog == 100 * len(owned(dispatcher, stuck)) - 1
    stuck.permits = 1000
    dispatcher.dispatch()
    assert stuck_session.positions() == sorted(stuck_session.positions())
    assert dispatcher.redelivery_backlog == 0


def test_reading_ahead_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD_PER_CONSUMER_MAX", 10)
    log = KeyedLog(KEYS, (1, 800))
    dispatcher = dispatcher_over(log)
    stuck, _ = joined(dispatcher, "x", permits=0)
    joined(dispatcher, "y", permits=1000)
    dispatcher.dispatch()
    assert dispatcher.redelivery_backlog == 20
    assert dispatcher.reader.position < Position(1, 100)
    stuck.permits = 1000
    dispatcher.dispatch()
    assert dispatcher.redelivery_backlog == 0
    assert dispatcher.reader.position == Position(1, 800)


def test_nothing_is_read_ahead_while_no_consumer_can_take_it() -> None:
    dispatcher = dispatcher_over(KeyedLog(KEYS, (1, 800)))
    joined(dispatcher, "x", permits=3)
    dispatcher.dispatch()
    assert dispatcher.reader.position == Position(1, 3)
    assert dispatcher.redelivery_backlog == 0


def test_where_order_does_not_matter_a_newcomer_need_not_wait() -> None:
    log = KeyedLog(KEYS, (1, 16))
    dispatcher = dispatcher_over(log, KeySharedPolicy(allows_out_of_order=True))
    joined(dispatcher, "x", permits=8)
    dispatcher.dispatch()
    second, session = joined(dispatcher, "y", permits=100)
    dispatcher.dispatch()
    assert keys_of(session, log) == owned(dispatcher, second)


def test_consumers_name_their_keys_and_entries_of_other_keys_wait() -> None:
    log = KeyedLog(KEYS, (1, 16))
    dispatcher = dispatcher_over(log, KeySharedPolicy(KeySharedMode.STICKY))
    hash_of_a = range_hash(b"a")
    _, session = joined(dispatcher, "x", permits=100, ranges=((hash_of_a, hash_of_a),))
    dispatcher.dispatch()
    assert session.positions() == [(1, 0), (1, 8)]
    assert dispatcher.redelivery_backlog == 14
    ranges = ((0, hash_of_a - 1), (hash_of_a + 1, 65_535))
    _, session = joined(dispatcher, "y", permits=100, ranges=ranges)
    dispatcher.dispatch()
    assert session.positions() == [(1, entry) for entry in range(16) if entry % 8]


async def test_what_waits_is_fetched_in_runs() -> None:
    log = KeyedLog(KEYS, (1, 100))
    dispatcher = dispatcher_over(log)
    stuck, session = joined(dispatcher, "x", permits=0)
    joined(dispatcher, "y", permits=100)
    dispatcher.dispatch()
    log.is_cold = True
    stuck.permits = 100
    dispatcher.dispatch()
    await log.settled()
    assert keys_of(session, log) == owned(dispatcher, stuck)
    assert log.reads == 1


async def test_no_more_is_read_ahead_while_what_waits_is_fetched() -> None:
    log = KeyedLog(KEYS, (1, 5000))
    dispatcher = dispatcher_over(log)
    stuck, session = joined(dispatcher, "x", permits=0)
    joined(dispatcher, "y", permits=100)
    dispatcher.dispatch()
    read_upto = dispatcher.reader.position
    assert dispatcher.wanted_from == min(
        Position(1, entry) for entry in range(8) if log.key(entry) in owned(dispatcher, stuck)
    )
    log.is_cold = True
    stuck.permits = 10
    dispatcher.dispatch()
    assert (session.out, dispatcher.reader.position) == ([], read_upto)
    await log.settled()
    assert stuck.permits == 0
    assert dispatcher.reader.position == read_upto, "there was enough that waited"


@pytest.fixture
async def full(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[KeyedLog, KeySharedDispatcher, Consumer, NotedSession]:
    """A log of which nothing is cached, and a dispatcher that keeps for one consumer, which takes
    nothing, as much as it may; another one could take everything."""
    monkeypatch.setattr(key_shared_dispatcher, "LOOK_AHEAD_BYTES_MAX", 50 * ENTRY_OVERHEAD_BYTES)
    log = KeyedLog(KEYS, (1, 2_000))
    log.is_cold = True
    log.entries_max = 20
    dispatcher = dispatcher_over(log)
    stuck, session = joined(dispatcher, "x", permits=0)
    joined(dispatcher, "y", permits=2_000)
    dispatcher.dispatch()
    await log.settled()
    assert 10 < dispatcher.redelivery_backlog < 70
    return log, dispatcher, stuck, session


async def test_what_waits_is_kept_and_no_more_is_fetched_than_may_be_kept(
    full: tuple[KeyedLog, KeySharedDispatcher, Consumer, NotedSession],
) -> None:
    log, dispatcher, _, _ = full
    read_upto, reads = dispatcher.reader.position, log.reads
    dispatcher.dispatch()
    assert (dispatcher.reader.position, log.reads) == (read_upto, reads)
    log.is_cold = False
    dispatcher.dispatch()
    assert dispatcher.reader.position == Position(1, 2_000), "what is cached need not be kept"


async def test_what_waits_is_fetched_once_and_sent_from_memory(
    full: tuple[KeyedLog, KeySharedDispatcher, Consumer, NotedSession],
) -> None:
    log, dispatcher, stuck, session = full
    stuck.permits = 10
    dispatcher.dispatch()
    assert len(session.positions()) == 10
    stuck.permits = 2_000
    dispatcher.dispatch()
    await log.settled()
    assert keys_of(session, log) == owned(dispatcher, stuck)
    assert dispatcher.reader.position == Position(1, 2_000)
    assert log.entries_read == 2_000
    assert log.read_ahead_budget.used_bytes == 0


async def test_reading_goes_on_when_others_acknowledge_what_waits(
    full: tuple[KeyedLog, KeySharedDispatcher, Consumer, NotedSession],
) -> None:
    log, dispatcher, stuck, _ = full
    read_upto = dispatcher.reader.position
    waiting = [
        (1, entry_id)
        for entry_id in range(read_upto.entry_id)
        if log.key(entry_id) in owned(dispatcher, stuck)
    ]
    dispatcher.cursor.acknowledged.acknowledge_all(waiting)
    assert dispatcher.acknowledged_all(waiting, waiting)
    dispatcher.dispatch()
    await log.settled()
    assert dispatcher.reader.position > read_upto


def test_after_a_seek_nothing_is_in_flight_and_nothing_waits() -> None:
    log = KeyedLog(KEYS, (1, 16))
    dispatcher = dispatcher_over(log)
    first, _ = joined(dispatcher, "x", permits=100)
    dispatcher.dispatch()
    joined(dispatcher, "y", permits=0)
    dispatcher.rewind()
    assert dispatcher.redelivery_backlog == 0
    assert not dispatcher.distribution.draining.of(first)
    assert first.unacknowledged == 0
    dispatcher.remove(first)


def test_acknowledging_what_waits_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD_PER_CONSUMER_MAX", 5)
    log = KeyedLog(KEYS, (1, 200))
    dispatcher = dispatcher_over(log)
    stuck, _ = joined(dispatcher, "x", permits=0)
    idle, session = joined(dispatcher, "y", permits=1000)
    dispatcher.dispatch()
    before = len(session.positions())
    waiting = [
        entry
        for entry in range(dispatcher.reader.position.entry_id)
        if log.key(entry) in owned(dispatcher, stuck)
    ]
    assert len(waiting) == 10
    dispatcher.cursor.acknowledged.acknowledge(1, waiting[-1])
    assert dispatcher.acknowledged_all([(1, waiting[-1])], [(1, waiting[-1])])
    dispatcher.dispatch()
    assert owned(dispatcher, idle)
    assert dispatcher.redelivery_backlog == 10
    assert len(session.positions()) >= before


class OneDelayed:
    """Holds entry ``entry_id`` of ledger 1 back until it ``is_due``."""

    def __init__(self, entry_id: int) -> None:
        self.is_due = False
        self._at = Position(1, entry_id)

    def pass_held(self, position: Position) -> Position:
        return Position(1, self._at.entry_id + 1) if position == self._at else position

    def sift(self, _: int, run: list[Entry]) -> tuple[int, list[Entry]]:
        return 0, [each for each in run if each[0] < self._at.entry_id] or run

    def take_due(self, _: Position, count_max: int) -> list[Position]:
        assert count_max > 0
        self.is_due = False
        return [self._at]


def test_what_is_due_does_not_wait_for_others_that_take_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_shared, "LOOK_AHEAD_PER_CONSUMER_MAX", 5)
    monkeypatch.setattr(key_shared_dispatcher, "DUE_AT_ONCE_MAX", 5)
    log = KeyedLog(KEYS, (1, 200))
    dispatcher = dispatcher_over(log)
    joined(dispatcher, "x", permits=0)
    idle, session = joined(dispatcher, "y", permits=1000)
    delayed = OneDelayed(
        next(each for each in range(8) if log.key(each) in owned(dispatcher, idle))
    )
    dispatcher.reader.delayed = delayed  # type: ignore[assignment]  # a stand-in
    dispatcher.dispatch()
    assert dispatcher.redelivery_backlog == 10
    before = len(session.positions())
    delayed.is_due = True
    dispatcher.dispatch()
    assert len(session.positions()) == before + 1


def test_what_was_trimmed_in_a_consumers_hands_does_not_wait_when_given_back() -> None:
    log = KeyedLog("a", (1, 200))
    dispatcher = dispatcher_over(log, KeySharedPolicy(KeySharedMode.STICKY))
    hash_of_a = range_hash(b"a")
    consumer, session = joined(dispatcher, "x", permits=10, ranges=((hash_of_a, hash_of_a),))
    dispatcher.dispatch()
    dispatcher.cursor.acknowledged.acknowledge_upto(Position(1, 99))
    consumer.permits = 5
    dispatcher.dispatch()
    dispatcher.redeliver(consumer, None)
    assert dispatcher.redelivery_backlog == 5, "what is still to be sent"
    consumer.permits = 5
    dispatcher.dispatch()
    assert session.positions()[10:] == [(1, entry) for entry in range(100, 105)] * 2
