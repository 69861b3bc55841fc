"""Proves which consumer of a Failover subscription is the active one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.subscriptions.distribution.active_consumer import choose_active

consumers = st.lists(
    st.tuples(st.integers(0, 3), st.text(min_size=1, max_size=5)), min_size=1, max_size=6
)


@given(st.text(max_size=20), st.integers(-1, 9), consumers)
def test_the_active_one_has_the_best_priority(
    topic: str, partition: int, candidates: list[tuple[int, str]]
) -> None:
    chosen = choose_active(topic, partition, candidates)
    assert candidates[chosen][0] == min(priority for priority, _ in candidates)


@given(st.integers(0, 50), st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=6))
def test_partitions_go_round_the_names_in_order(partition: int, names: set[str]) -> None:
    candidates = [(0, name) for name in sorted(names, reverse=True)]
    chosen = choose_active("t", partition, candidates)
    assert candidates[chosen][1] == sorted(names)[partition % len(names)]


@given(st.text(max_size=20), st.sets(st.text(min_size=1, max_size=5), min_size=2, max_size=6))
def test_without_partitions_the_choice_does_not_depend_on_the_order_of_connecting(
    topic: str, names: set[str]
) -> None:
    ordered = [(0, name) for name in sorted(names)]
    turned = list(reversed(ordered))
    assert ordered[choose_active(topic, -1, ordered)] == turned[choose_active(topic, -1, turned)]
