"""Proves whose turn it is in a Shared subscription, and what waits to be sent again."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.shared import SharedDistribution


def distribution_to(*priorities: int) -> SharedDistribution:
    """To consumers of these priorities, which can all take something."""
    distribution = SharedDistribution([])
    for number, priority in enumerate(priorities):
        consumer = consumer_of(NotedSession(), f"c{number}", priority=priority)
        consumer.permits = 1
        distribution.add(consumer)
    return distribution


def names(consumers: Sequence[Consumer | None]) -> list[str]:
    return ["none" if each is None else each.name for each in consumers]


def test_consumers_of_the_best_priority_take_turns() -> None:
    distribution = distribution_to(1, 0, 1, 0)
    turns = [distribution.next_consumer() for _ in range(4)]
    assert names(turns) == ["c1", "c3", "c1", "c3"]


def test_the_next_priority_has_its_turn_while_the_best_can_take_nothing() -> None:
    distribution = distribution_to(0, 1, 1)
    distribution.consumers[0].permits = 0
    turns = [distribution.next_consumer() for _ in range(3)]
    assert names(turns) == ["c1", "c2", "c1"]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=6), st.integers(1, 20))
def test_each_consumer_that_can_take_something_has_a_turn_each_round(
    consumers: list[tuple[int, bool]], before: int
) -> None:
    distribution = distribution_to(*(priority for priority, _ in consumers))
    for consumer, (_, can_take) in zip(list(distribution.consumers), consumers, strict=True):
        consumer.permits = int(can_take)
    ready = [each for each in distribution.consumers if each.permits]
    best = [each for each in ready if each.priority == ready[0].priority]
    for _ in range(before):
        distribution.next_consumer()
    turns = [distribution.next_consumer() for _ in best]
    assert sorted(names(turns)) == sorted(names(best))
    assert ready or distribution.next_consumer() is None


def test_what_a_consumer_held_waits_for_the_others_lowest_first() -> None:
    distribution = distribution_to(0, 0)
    first, second = distribution.consumers
    held: list[EntryId] = [(1, 7), (1, 3)]
    distribution.left(first, held)
    distribution.given_back(second, [(1, 5)])
    assert distribution.consumers == [second]
    assert list(distribution.replay) == [(1, 3), (1, 5), (1, 7)]
    assert distribution.waiting_count == 3
    assert distribution.first_waiting == (1, 3)
    distribution.acknowledged([(1, 3)], [(1, 3)])
    assert distribution.first_waiting == (1, 5)
    distribution.clear()
    assert distribution.waiting_count == 0
    assert not distribution.replay
