"""Proves that Shared subscriptions deliver everything, fairly, and again what is given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch.shared_dispatcher import SharedDispatcher


def dispatcher_over(log: MemoryLog) -> SharedDispatcher:
    return SharedDispatcher(log, cursor_over(log.chain), [])  # type: ignore[arg-type]  # a stand-in


class CountingLog(MemoryLog):
    """Counts the entries that are taken from the cache."""

    taken = 0

    def cached_run(self, position: Position, count_max: int) -> list[Entry]:
        run = super().cached_run(position, count_max)
        self.taken += len(run)
        return run

    def cached_entries(self, ids: Sequence[EntryId]) -> list[Entry]:
        self.taken += len(ids)
        return super().cached_entries(ids)


def joined(
    dispatcher: SharedDispatcher, name: str, *, permits: int, priority: int = 0
) -> tuple[Consumer, NotedSession]:
    session = NotedSession()
    consumer = consumer_of(session, name, priority=priority)
    consumer.permits = permits
    dispatcher.add(consumer)
    return consumer, session


def acknowledge(dispatcher: SharedDispatcher, consumer: Consumer, position: EntryId) -> None:
    dispatcher.cursor.acknowledged.acknowledge(*position)
    consumer.forget(position)
    dispatcher.acknowledged_all([position], [position])


def test_consumers_take_turns() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 90)))
    sessions = [joined(dispatcher, name, permits=100)[1] for name in "abc"]
    dispatcher.dispatch()
    assert sorted(position for session in sessions for position in session.positions()) == [
        (1, entry) for entry in range(90)
    ]
    assert all(20 <= len(session.positions()) <= 40 for session in sessions)


def test_consumers_take_turns_with_messages_that_come_one_by_one() -> None:
    log = MemoryLog((1, 0))
    dispatcher = dispatcher_over(log)
    sessions = [joined(dispatcher, name, permits=100)[1] for name in "abcd"]
    span = log.chain.span(1)
    assert span is not None
    for _ in range(12):
        span.entries += 1
        dispatcher.dispatch()
    assert [len(session.positions()) for session in sessions] == [3, 3, 3, 3]


def test_a_lower_priority_is_served_only_when_the_better_one_has_no_permits() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 30)))
    _, spare = joined(dispatcher, "spare", permits=100, priority=1)
    _, best = joined(dispatcher, "best", permits=25)
    dispatcher.dispatch()
    assert len(best.positions()) == 25
    assert len(spare.positions()) == 5


def test_what_a_leaving_consumer_held_goes_to_the_others_first() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 10)))
    leaving, _ = joined(dispatcher, "leaving", permits=4)
    dispatcher.dispatch()
    _, session = joined(dispatcher, "staying", permits=6)
    dispatcher.remove(leaving)
    assert session.positions() == [(1, entry) for entry in (0, 1, 2, 3, 4, 5)]


def test_given_back_entries_come_again_with_their_count() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 3)))
    consumer, session = joined(dispatcher, "c", permits=10)
    dispatcher.dispatch()
    dispatcher.redeliver(consumer, [Position(1, 1)])
    dispatcher.redeliver(consumer, [Position(1, 1)])
    assert session.messages()[3:] == [(Position(1, 1), 1), (Position(1, 1), 2)]
    assert consumer.permits == 5


def test_without_consumers_the_next_one_gets_all_that_is_unacknowledged() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 4)))
    first, _ = joined(dispatcher, "first", permits=10)
    dispatcher.dispatch()
    acknowledge(dispatcher, first, Position(1, 2))
    dispatcher.remove(first)
    _, session = joined(dispatcher, "second", permits=10)
    dispatcher.dispatch()
    assert session.positions() == [(1, 0), (1, 1), (1, 3)]


@pytest.mark.parametrize("is_kept", [True, False])
def test_counts_are_forgotten_with_the_last_consumer_where_they_are_not_to_be_kept(
    is_kept: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 1)))
    dispatcher.cursor.config = replace(ManagedLedgerConfig(), cursor_redelivery_counts=is_kept)
    first, _ = joined(dispatcher, "first", permits=10)
    dispatcher.dispatch()
    dispatcher.redeliver(first, None)
    dispatcher.remove(first)
    _, session = joined(dispatcher, "second", permits=10)
    dispatcher.dispatch()
    assert session.messages() == [(Position(1, 0), int(is_kept))]


steps = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "ack", "nack", "flow"]), st.integers(0, 1000)),
    max_size=60,
)


@given(steps)
def test_every_entry_is_held_by_at_most_one_consumer_and_none_is_forgotten(
    taken: list[tuple[str, int]],
) -> None:
    log = MemoryLog((1, 15), (2, 10))
    dispatcher = dispatcher_over(log)
    consumers: list[Consumer] = []
    for step, number in taken:
        chosen = consumers[number % len(consumers)] if consumers else None
        if step == "join" and len(consumers) < 4:
            consumers.append(joined(dispatcher, f"c{number}", permits=0)[0])
        elif chosen is None:
            continue
        elif step == "leave":
            consumers.remove(chosen)
            dispatcher.remove(chosen)
        elif step == "flow":
            chosen.permits += number % 9
            dispatcher.dispatch()
        elif chosen.pending:
            position = sorted(chosen.pending)[number % len(chosen.pending)]
            if step == "ack":
                acknowledge(dispatcher, chosen, position)
            else:
                dispatcher.redeliver(chosen, [position])
        held = [position for consumer in consumers for position in consumer.pending]
        assert len(held) == len(set(held)), "two consumers hold the same entry"
        assert all(consumer.unacknowledged == len(consumer.pending) for consumer in consumers)
    last = joined(dispatcher, "last", permits=0)[0]
    last.permits = 1_000
    for consumer in consumers:
        dispatcher.remove(consumer)
    dispatcher.dispatch()
    for position in list(last.pending):
        acknowledge(dispatcher, last, position)
    assert dispatcher.cursor.mark_delete == Position(2, 9)


def test_a_consumer_that_gives_everything_back_may_have_messages_again() -> None:
    log = MemoryLog((1, 3))
    dispatcher = dispatcher_over(log)
    consumer, session = joined(dispatcher, "c", permits=2)
    dispatcher.dispatch()
    consumer.is_blocked_on_unacknowledged = True
    consumer.permits = 3
    dispatcher.redeliver(consumer, None)
    assert session.positions() == [(1, 0), (1, 1), (1, 0), (1, 1), (1, 2)]


async def test_what_is_replayed_is_read_in_runs() -> None:
    log = CountingLog((1, 100))
    dispatcher = dispatcher_over(log)
    leaving, _ = joined(dispatcher, "leaving", permits=100)
    dispatcher.dispatch()
    acknowledge(dispatcher, leaving, Position(1, 7))
    _, session = joined(dispatcher, "staying", permits=100)
    log.taken = 0
    dispatcher.remove(leaving)
    assert session.positions() == [(1, entry) for entry in range(100) if entry != 7]
    assert log.taken <= 110, "each entry is sliced once, not once for each one before it"


async def test_what_is_replayed_from_the_bookies_is_fetched_together() -> None:
    log = MemoryLog((1, 100))
    dispatcher = dispatcher_over(log)
    leaving, _ = joined(dispatcher, "leaving", permits=100)
    dispatcher.dispatch()
    log.is_cold = True
    _, session = joined(dispatcher, "staying", permits=100)
    dispatcher.remove(leaving)
    await log.settled()
    assert session.positions() == [(1, entry) for entry in range(100)]
    assert log.reads == 1


def test_a_replay_stops_where_permits_end() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 50)))
    leaving, _ = joined(dispatcher, "leaving", permits=50)
    dispatcher.dispatch()
    staying, session = joined(dispatcher, "staying", permits=23)
    dispatcher.remove(leaving)
    assert session.positions() == [(1, entry) for entry in range(23)]
    assert staying.permits == 0
    assert dispatcher.redelivery_backlog == 27
