"""Where a bundle is cut in two or more: upstream's three algorithms, by their names in REST. Pure.

Each is a function of the bundle, the hashes of its topics, and the positions that were requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.errors import BundleNotSplit, UnknownSplitAlgorithm

RANGE_EQUALLY_DIVIDE = "range_equally_divide"
TOPIC_COUNT_EQUALLY_DIVIDE = "topic_count_equally_divide"
SPECIFIED_POSITIONS_DIVIDE = "specified_positions_divide"


def _middle(bundle: Bundle, hashes: Sequence[int], positions: Sequence[int]) -> list[int]:
    """In the middle of the range."""
    del hashes, positions
    return [bundle.lower + (bundle.upper - bundle.lower) // 2]


def _median(bundle: Bundle, hashes: Sequence[int], positions: Sequence[int]) -> list[int]:
    """Between the two topics at the median, so that both halves have equally many topics."""
    del bundle, positions
    ascending = sorted(hashes)
    # All of one topic's load would stay in one of the halves.
    if len(ascending) < 2:
        return []
    before, behind = ascending[len(ascending) // 2 - 1], ascending[len(ascending) // 2]
    return [before + (behind - before) // 2 + (behind - before) % 2]


def _given(bundle: Bundle, hashes: Sequence[int], positions: Sequence[int]) -> list[int]:
    """At the requested positions."""
    del bundle, hashes
    return sorted(set(positions))


_ALGORITHMS: Mapping[str, Callable[[Bundle, Sequence[int], Sequence[int]], list[int]]] = {
    RANGE_EQUALLY_DIVIDE: _middle,
    TOPIC_COUNT_EQUALLY_DIVIDE: _median,
    SPECIFIED_POSITIONS_DIVIDE: _given,
}


def split_boundaries(
    bundle: Bundle, algorithm: str, *, hashes: Sequence[int], positions: Sequence[int]
) -> list[int]:
    """The boundaries at which ``bundle`` is to be cut, ascending and inside of it.

    ``hashes`` are those of its topics, ``positions`` those that were requested; those outside of
    the bundle are passed over. Raises ``UnknownSplitAlgorithm``; ``BundleNotSplit`` where no
    boundary is left.
    """
    cut = _ALGORITHMS.get(algorithm)
    if cut is None:
        raise UnknownSplitAlgorithm(algorithm, tuple(_ALGORITHMS))
    inside = [at for at in cut(bundle, hashes, positions) if bundle.lower < at < bundle.upper]
    if not inside:
        raise BundleNotSplit(str(bundle), f"{algorithm} finds no boundary in it")
    return inside


def pieces(bundle: Bundle, boundaries: Sequence[int]) -> list[Bundle]:
    """The bundles into which ``boundaries`` cut ``bundle``."""
    edges = [bundle.lower, *boundaries, bundle.upper]
    return [Bundle(bundle.namespace, lower, upper) for lower, upper in pairwise(edges)]
