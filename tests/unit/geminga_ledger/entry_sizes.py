"""Mixes of entry sizes for property tests: stretches of some sizes in turn, then of others."""

from __future__ import annotations

from itertools import accumulate, chain

from hypothesis import strategies as st

KIB, MIB = 1024, 1024 * 1024


def mixes(bytes_max: int) -> st.SearchStrategy[list[int]]:
    """Sizes of up to a thousand entries, of 0 B to 5 MiB: at least one, and ``bytes_max`` in all
    unless that one has more."""
    size = st.one_of(st.integers(0, 100), st.integers(1, 60 * KIB), st.integers(1, 5 * MIB))
    pattern = st.lists(size, min_size=1, max_size=3)
    stretch = st.tuples(pattern, st.integers(1, 100)).map(lambda each: each[0] * each[1])
    stretches = st.lists(stretch, min_size=1, max_size=4)
    return stretches.map(lambda each: _within(list(chain.from_iterable(each)), bytes_max))


def _within(sizes: list[int], bytes_max: int) -> list[int]:
    count = sum(upto <= bytes_max for upto in accumulate(sizes))
    return sizes[: max(count, 1)]
