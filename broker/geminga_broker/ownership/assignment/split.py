"""Where a bundle is cut: upstream's three algorithms, by their names in REST. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.errors import BundleNotSplit, UnknownSplitAlgorithm

RANGE_EQUALLY_DIVIDE = "range_equally_divide"
TOPIC_COUNT_EQUALLY_DIVIDE = "topic_count_equally_divide"
SPECIFIED_POSITIONS_DIVIDE = "specified_positions_divide"
ALGORITHMS = (RANGE_EQUALLY_DIVIDE, TOPIC_COUNT_EQUALLY_DIVIDE, SPECIFIED_POSITIONS_DIVIDE)


def split_boundaries(
    bundle: Bundle, algorithm: str, *, hashes: Sequence[int], positions: Sequence[int]
) -> list[int]:
    """The boundaries at which ``bundle`` is to be cut, ascending and inside of it.

    ``hashes`` are those of its topics, ``positions`` those that were requested; those outside of
    the bundle are passed over. Raises ``UnknownSplitAlgorithm``; ``BundleNotSplit`` where no
    boundary is left.
    """
    cuts: list[int] = []
    if algorithm == RANGE_EQUALLY_DIVIDE:
        # In the middle of the range.
        cuts = [bundle.lower + (bundle.upper - bundle.lower) // 2]
    elif algorithm == TOPIC_COUNT_EQUALLY_DIVIDE:
        # Between the two topics at the median, so that both halves have equally many topics. With a
        # single topic, all of its load would stay in one of the halves.
        ascending = sorted(hashes)
        if len(ascending) > 1:
            before, behind = ascending[len(ascending) // 2 - 1], ascending[len(ascending) // 2]
            cuts = [before + (behind - before) // 2 + (behind - before) % 2]
    elif algorithm == SPECIFIED_POSITIONS_DIVIDE:
        cuts = sorted(set(positions))
    else:
        raise UnknownSplitAlgorithm(
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(ALGORITHMS)}]"
        )
    inside = [at for at in cuts if bundle.lower < at < bundle.upper]
    if not inside:
        raise BundleNotSplit(str(bundle), f"{algorithm} finds no boundary in it")
    return inside


def pieces(bundle: Bundle, boundaries: Sequence[int]) -> list[Bundle]:
    """The bundles into which ``boundaries`` cut ``bundle``."""
    edges = [bundle.lower, *boundaries, bundle.upper]
    return [Bundle(bundle.namespace, lower, upper) for lower, upper in pairwise(edges)]
