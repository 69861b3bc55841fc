"""Proves that entries are named when their time has come, once, and that few are held."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.consumers.redelivery import DueEntries


def test_each_entry_is_named_in_its_time() -> None:
    entries = DueEntries(1.0)
    entries.add((1, 0), 12.0)
    entries.add((1, 1), 10.0)
    assert entries.next_due_s == 10.0
    assert entries.take_due(9.9) == []
    assert entries.take_due(10.0) == [(1, 1)]
    assert entries.next_due_s == 12.0
    assert entries.take_due(99.0) == [(1, 0)]
    assert entries.next_due_s is None


def test_adding_again_changes_nothing() -> None:
    entries = DueEntries(1.0)
    entries.add((1, 0), 10.0)
    entries.add((1, 0), 20.0)
    assert entries.take_due(10.0) == [(1, 0)]
    assert entries.take_due(20.0) == []


def test_what_was_removed_is_not_named() -> None:
    entries = DueEntries(1.0)
    entries.add((1, 0), 10.0)
    entries.remove((1, 0))
    entries.remove((1, 1))
    assert entries.next_due_s is None
    assert entries.take_due(10.0) == []


def test_entries_can_be_forgotten() -> None:
    entries = DueEntries(1.0)
    entries.add((1, 0), 10.0)
    entries.clear()
    assert entries.next_due_s is None
    assert entries.take_due(20.0) == []


def test_entries_beyond_the_bound_are_due_at_once_the_earliest_first() -> None:
    entries = DueEntries(1.0, held_max=2)
    for entry_id in range(5):
        entries.add((1, entry_id), 10.0 + entry_id // 2)
    assert entries.next_due_s == 0.0
    assert entries.take_due(0.0) == [(1, 0), (1, 1), (1, 2)]
    assert entries.next_due_s == 11.0
    assert entries.take_due(20.0) == [(1, 3), (1, 4)]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 50), st.booleans()), max_size=60),
    st.lists(st.floats(0, 60), max_size=10),
)
@settings(max_examples=60)
def test_no_entry_is_early_none_is_late_by_more_than_a_partition(
    changes: list[tuple[int, float, bool]], looks: list[float]
) -> None:
    entries = DueEntries(0.5)
    plain: dict[tuple[int, int], float] = {}
    for entry_id, due_s, is_removed in changes:
        if is_removed:
            entries.remove((1, entry_id))
            plain.pop((1, entry_id), None)
        else:
            entries.add((1, entry_id), due_s)
            plain.setdefault((1, entry_id), due_s)
    for now_s in sorted(looks):
        taken = entries.take_due(now_s)
        assert len(taken) == len(set(taken))
        for position in taken:
            assert plain.pop(position) <= now_s
        assert all(due_s > now_s - 0.5 for due_s in plain.values())
