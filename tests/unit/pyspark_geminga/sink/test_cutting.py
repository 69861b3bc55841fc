"""Proves that rows are cut into the same entries however they come, and that a topic which drops
entries by their first sequence id has every row once after any failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_geminga.sink.cutting import ORDINALS, cut_entries, first_sequence_id
from pyspark_geminga.sink.options import Cut

SIZES = st.lists(st.integers(1, 60), max_size=60)
CUTS = st.builds(Cut, rows_max=st.integers(1, 8), bytes_max=st.integers(1, 100))


def cut_all(sizes: list[int], cut: Cut, boundary: int | None = None, step: int = 1000) -> list[int]:
    """The ends of all entries, where rows come ``step`` at a time."""
    ends: list[int] = []
    start, opened = 0, list[int]()
    for at in range(0, len(sizes), step):
        opened += sizes[at : at + step]
        place = None if boundary is None else boundary - start
        found = cut_entries(opened, cut, place)
        ends += [start + end for end in found]
        if found:
            del opened[: found[-1]]
            start += found[-1]
    return [*ends, start + len(opened)] if opened else ends


def entries_of(ends: list[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends], ends, strict=False))


@given(SIZES, CUTS, st.integers(1, 10))
def test_where_entries_end_does_not_depend_on_how_rows_come(
    sizes: list[int], cut: Cut, step: int
) -> None:
    assert cut_all(sizes, cut, step=step) == cut_all(sizes, cut)


@given(SIZES, CUTS)
def test_entries_keep_both_limits_and_are_as_large_as_these_allow(
    sizes: list[int], cut: Cut
) -> None:
    ends = cut_all(sizes, cut)
    assert (ends[-1] if ends else 0) == len(sizes)
    for start, end in entries_of(ends):
        rows, size = end - start, sum(sizes[start:end])
        assert 1 <= rows <= cut.rows_max
        assert size <= cut.bytes_max or rows == 1
        if end < len(sizes):
            assert rows == cut.rows_max or size + sizes[end] > cut.bytes_max


@given(SIZES, CUTS, st.integers(0, 60))
def test_no_entry_reaches_over_the_boundary(sizes: list[int], cut: Cut, boundary: int) -> None:
    ends = cut_all(sizes, cut, boundary)
    assert (ends[-1] if ends else 0) == len(sizes)
    assert boundary in (0, *ends) or boundary > len(sizes)


class Topic:
    """A topic that deduplicates, as Pulsar's do: an entry counts by its first sequence id."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.known = -1

    def store(self, first: int, last: int) -> None:
        if first > self.known:
            self.rows += range(first, last + 1)
            self.known = last


@given(SIZES, st.lists(st.tuples(CUTS, st.integers(0, 60)), max_size=4), CUTS)
def test_every_row_is_stored_once_after_attempts_with_other_limits(
    sizes: list[int], failed: list[tuple[Cut, int]], final: Cut
) -> None:
    topic = Topic()
    for cut, entries in [*failed, (final, len(sizes))]:
        ends = cut_all(sizes, cut, topic.known + 1)
        for start, end in entries_of(ends)[:entries]:
            topic.store(start, end - 1)
    assert topic.rows == list(range(len(sizes)))


def test_the_rows_of_an_epoch_are_numbered_behind_those_of_the_one_before() -> None:
    assert first_sequence_id(0) == 0
    assert first_sequence_id(3) + ORDINALS == first_sequence_id(4)
    assert first_sequence_id((1 << 31) - 1) + ORDINALS - 1 == (1 << 63) - 1
