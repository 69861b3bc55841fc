"""Proves that what was read from bookies is found until it is needed no more, within its bounds."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.cache.entry_cache import ENTRY_OVERHEAD_BYTES
from geminga_broker.managed_ledger.cache.read_ahead import ReadAhead, ReadAheadBudget
from geminga_broker.managed_ledger.positions import Entry, Position

PLENTY = 1 << 30
PAYLOAD = b"x" * 100
ENTRY_COST = len(PAYLOAD) + ENTRY_OVERHEAD_BYTES


def entries(ids: Iterable[int]) -> list[Entry]:
    return [(entry_id, PAYLOAD, 1) for entry_id in ids]


def fetched_of(budget: ReadAheadBudget | None = None) -> ReadAhead:
    return ReadAhead(budget or ReadAheadBudget(PLENTY))


def kept(ahead: ReadAhead) -> int:
    return sum(len(entries) for _, entries in ahead._runs) + len(ahead._single)


def ids_of(run: list[Entry]) -> list[int]:
    return [each[0] for each in run]


def test_a_run_is_found_from_any_of_its_entries_on() -> None:
    fetched = fetched_of()
    fetched.keep_run(Position(1, 10), entries(range(10, 15)))
    fetched.keep_run(Position(2, 10), entries(range(10, 13)))
    assert ids_of(fetched.run(Position(1, 12), 2)) == [12, 13]
    assert ids_of(fetched.run(Position(1, 13), 9)) == [13, 14]
    assert ids_of(fetched.run(Position(2, 10), 9)) == [10, 11, 12]
    for missing in ((1, 9), (1, 15), (2, 13), (3, 10)):
        assert fetched.run(Position(*missing), 9) == []


def test_what_was_left_out_of_a_run_is_passed_over() -> None:
    fetched = fetched_of()
    fetched.keep_run(Position(1, 10), entries([12, 13, 20]))
    assert ids_of(fetched.run(Position(1, 10), 9)) == [12, 13, 20]
    assert ids_of(fetched.run(Position(1, 14), 9)) == [20]
    assert fetched.run(Position(1, 9), 9) == []
    assert fetched.run(Position(1, 21), 9) == []


def test_single_entries_are_never_taken_for_a_run() -> None:
    fetched = fetched_of()
    fetched.keep_single(1, entries([3, 5, 9]))
    assert fetched.run(Position(1, 3), 9) == []
    assert ids_of(fetched.pick([(1, 3), (1, 9), (1, 10), (1, 5)])) == [3, 9]
    assert fetched.pick([(2, 3)]) == []
    assert fetched.missing([(1, 2), (1, 3), (2, 5)]) == [(1, 2), (2, 5)]


def test_entries_are_picked_from_runs_too() -> None:
    fetched = fetched_of()
    fetched.keep_run(Position(1, 0), entries(range(5)))
    fetched.keep_single(1, entries([7]))
    assert ids_of(fetched.pick([(1, 1), (1, 4), (1, 7)])) == [1, 4, 7]


def test_a_reader_with_gaps_goes_on_from_ledger_to_ledger() -> None:
    fetched = fetched_of()
    fetched.keep_run(Position(1, 4), entries([4, 8]))
    fetched.keep_run(Position(3, 2), entries([2, 3]))
    assert fetched.first_from(Position(1, 5)) == (1, entries([8]))
    assert fetched.first_from(Position(1, 9)) == (3, entries([2, 3]))
    assert fetched.first_from(Position(3, 3)) == (3, entries([3]))
    assert fetched.first_from(Position(3, 4)) is None


def test_runs_that_were_read_through_are_forgotten() -> None:
    budget = ReadAheadBudget(PLENTY)
    fetched = fetched_of(budget)
    fetched.keep_run(Position(1, 0), entries(range(5)))
    fetched.keep_run(Position(2, 0), entries(range(3)))
    fetched.pass_by(Position(1, 4))
    assert kept(fetched) == 8
    fetched.pass_by(Position(1, 5))
    assert kept(fetched) == 3
    assert budget.used_bytes == 3 * ENTRY_COST


def test_single_entries_are_kept_until_they_are_sent_each() -> None:
    budget = ReadAheadBudget(PLENTY)
    fetched = fetched_of(budget)
    fetched.keep_single(1, entries([3, 5, 9]))
    fetched.keep_single(1, entries([5]))
    fetched.keep_single(2, entries([1]))
    assert budget.used_bytes == 4 * ENTRY_COST
    fetched.pass_by(Position(9, 9))
    fetched.drop([(1, 5), (1, 6)])
    assert fetched.pick([(1, 5)]) == []
    assert ids_of(fetched.pick([(1, 3), (1, 9), (2, 1)])) == [3, 9, 1]
    fetched.drop_upto((1, 9))
    assert kept(fetched) == 1
    assert budget.used_bytes == ENTRY_COST
    fetched.clear()
    assert (kept(fetched), fetched.size_bytes, budget.used_bytes) == (0, 0, 0)


def test_who_looked_least_lately_makes_room_for_others_and_knows_it() -> None:
    budget = ReadAheadBudget(10 * ENTRY_COST)
    one, two, three = (fetched_of(budget) for _ in range(3))
    one.keep_run(Position(1, 0), entries(range(5)))
    two.keep_run(Position(1, 0), entries(range(5)))
    assert one.run(Position(1, 0), 1)
    three.keep_run(Position(1, 0), entries(range(5)))
    assert [kept(each) for each in (one, two, three)] == [5, 0, 5]
    assert [each.was_evicted for each in (one, two, three)] == [False, True, False]
    two.clear()
    assert not two.was_evicted


def test_what_is_larger_than_the_budget_stays_until_others_keep_something() -> None:
    budget = ReadAheadBudget(1)
    one, two = fetched_of(budget), fetched_of(budget)
    one.keep_run(Position(1, 0), entries([0]))
    assert kept(one) == 1
    two.keep_run(Position(1, 0), entries([0]))
    assert (kept(one), kept(two)) == (0, 1)


STEPS = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["run", "single", "look", "pass by", "drop", "drop upto", "clear"]),
    st.integers(0, 50),
    st.integers(1, 10),
)


@given(st.lists(STEPS, max_size=60))
def test_the_books_are_right_whatever_is_done(steps: list[tuple[int, str, int, int]]) -> None:
    budget = ReadAheadBudget(30 * ENTRY_COST)
    holders = [fetched_of(budget) for _ in range(4)]
    for number, step, first, count in steps:
        holder = holders[number]
        if step == "run":
            holder.keep_run(Position(1, first), entries(range(first, first + count)))
        elif step == "single":
            holder.keep_single(1, entries(range(first, first + 3 * count, 3)))
        elif step == "look":
            assert all(each[0] >= first for each in holder.run(Position(1, first), count))
        elif step == "pass by":
            holder.pass_by(Position(1, first))
        elif step == "drop":
            holder.drop((1, each) for each in range(first, first + count))
        elif step == "drop upto":
            holder.drop_upto((1, first))
        else:
            holder.clear()
        assert all(each.size_bytes == kept(each) * ENTRY_COST for each in holders)
        assert budget.used_bytes == sum(each.size_bytes for each in holders)
        in_use = [each for each in holders if each.size_bytes]
        assert budget.used_bytes <= 30 * ENTRY_COST or in_use == [holder]
