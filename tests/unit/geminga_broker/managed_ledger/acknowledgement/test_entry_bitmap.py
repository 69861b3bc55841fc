"""Proves that marks agree with a plain set of entry ids, wherever they begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.acknowledgement.entry_bitmap import EntryBitmap

ENTRIES = 40
entry_ids = st.integers(0, ENTRIES - 1)
# Where marks begin; every other step cuts them further.
steps = st.lists(
    st.tuples(st.sampled_from(["add", "many", "range", "cut"]), entry_ids), max_size=30
)


def runs_of(members: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for member in sorted(members):
        if runs and runs[-1][1] == member - 1:
            runs[-1] = runs[-1][0], member
        else:
            runs.append((member, member))
    return runs


@given(entry_ids, steps)
def test_whatever_is_marked_and_cut_leaves_what_a_set_would(
    begin: int, taken: list[tuple[str, int]]
) -> None:
    marks, members = EntryBitmap(begin), set[int]()
    for kind, entry_id in taken:
        if kind == "cut":
            passed = {each for each in members if each < entry_id}
            assert marks.cut(entry_id) == len(passed)
            members -= passed
        elif kind == "range":
            covered = set(range(max(entry_id, marks.first), min(entry_id + 5, ENTRIES)))
            assert marks.add_range(entry_id, min(entry_id + 4, ENTRIES - 1)) == len(
                covered - members
            )
            members |= covered
        elif kind == "many":
            several = [each for each in range(entry_id, ENTRIES, 3) if each >= marks.first]
            if several:
                assert marks.add_all(several, ENTRIES) == len(set(several) - members)
                members.update(several)
        elif entry_id >= marks.first:
            assert marks.add(entry_id, ENTRIES) == (entry_id not in members)
            members.add(entry_id)
        assert marks.count() == len(members)
        assert list(marks.runs()) == runs_of(members)
        assert marks.run_count == len(runs_of(members))
        assert {each for each in range(ENTRIES) if each in marks} == members
        assert marks.bits() == sum(1 << each for each in members)
    for entry_id in range(marks.first, ENTRIES):
        reached = range(entry_id, ENTRIES + 3)
        assert list(marks.between(entry_id, reached[-1])) == [each in members for each in reached]
        following = (each for each in range(entry_id, ENTRIES + 1) if each not in members)
        assert marks.run_end(entry_id) == next(following)
        for end, count_max in ((ENTRIES, 7), (ENTRIES + 9, ENTRIES), (entry_id + 5, 3)):
            unmarked = [each for each in range(entry_id, end) if each not in members]
            assert list(marks.unmarked(entry_id, end, count_max)) == unmarked[:count_max]


@given(entry_ids, st.sets(st.integers(0, 2 * ENTRIES)))
def test_bits_are_taken_from_where_the_marks_begin_to_the_end_of_the_ledger(
    begin: int, members: set[int]
) -> None:
    marks = EntryBitmap(begin)
    kept = {each for each in members if begin <= each < ENTRIES}
    assert marks.add_bits(sum(1 << each for each in members), ENTRIES) == len(kept)
    assert list(marks.runs()) == runs_of(kept)


def test_a_mark_is_taken_away_once() -> None:
    marks = EntryBitmap(3)
    marks.add_range(4, 6)
    assert [marks.discard(each) for each in (2, 3, 5, 5, 9)] == [False, False, True, False, False]
    assert list(marks.runs()) == [(4, 4), (6, 6)]
