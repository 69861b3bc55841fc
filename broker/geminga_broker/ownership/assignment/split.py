"""Where a bundle is cut: upstream's three algorithms, by their names in REST. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.errors import BundleNotSplit, UnknownSplitAlgorithm

# The values of ``splitAlgorithmName`` in REST, and of upstream's
# ``defaultNamespaceBundleSplitAlgorithm``.
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
        # In the middle of the range. Rounded down: of a bundle with a single hash this is its lower
        # boundary, which is not inside.
        cuts = [bundle.lower + (bundle.upper - bundle.lower) // 2]
    elif algorithm == TOPIC_COUNT_EQUALLY_DIVIDE:
        # Between the two topics at the median, so that both halves have equally many topics. With a
        # single topic, all of its load would stay in one of the halves. Equal hashes may leave the
        # cut on one of them: then it goes to the upper half, as a boundary is part of the bundle
        # above it.
        ascending = sorted(hashes)
        if len(ascending) > 1:
            before, behind = ascending[len(ascending) // 2 - 1], ascending[len(ascending) // 2]
            # Half of the distance, rounded up: it is above ``before`` and at most ``behind``, so
            # that the two topics are parted wherever their hashes differ.
            cuts = [before + (behind - before) // 2 + (behind - before) % 2]
    elif algorithm == SPECIFIED_POSITIONS_DIVIDE:
        # A set: the same position twice would make a bundle without hashes.
        cuts = sorted(set(positions))
    else:
        raise UnknownSplitAlgorithm(
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(ALGORITHMS)}]"
        )
    # Strictly inside: a cut at the lower boundary would leave an empty bundle below it, and one at
    # the upper boundary is a boundary already.
    inside = [at for at in cuts if bundle.lower < at < bundle.upper]
    if not inside:
        raise BundleNotSplit(str(bundle), f"{algorithm} finds no boundary in it")
    return inside


def pieces(bundle: Bundle, boundaries: Sequence[int]) -> list[Bundle]:
    """The bundles into which ``boundaries`` cut ``bundle``."""
    edges = [bundle.lower, *boundaries, bundle.upper]
    return [Bundle(bundle.namespace, lower, upper) for lower, upper in pairwise(edges)]
