"""Counts copies by the bookies' lists of their entries: which bookie lacks any, and how few there
are of an entry.

Pure. Facts: ``AuditorReplicasCheckTask`` of Apache BookKeeper.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from geminga_autorecovery.decisions.fragments import LedgerFragment, belongs_on
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.availability import Run


@dataclass(frozen=True, slots=True)
class Replicas:
    """What is known of the copies of some entries."""

    # The bookies that lack an entry that they should have.
    lacking: frozenset[str]
    # How many copies there are of the entry that has the fewest.
    fewest: int

    def joined(self, other: Replicas) -> Replicas:
        """These and other entries together."""
        return Replicas(self.lacking | other.lacking, min(self.fewest, other.fewest))


def replicas_of(
    fragment: LedgerFragment,
    quorum: Quorum,
    lists: Mapping[str, Sequence[Run] | None],
    first: int,
    last: int,
) -> Replicas:
    """Count the copies of the entries ``first`` to ``last`` of a fragment.

    A bookie that is not in ``lists``, or None there, gave no list: it counts as having no copies,
    but not as lacking any.
    """
    # By entry: how many of its bookies do not have it.
    missing: Counter[int] = Counter()
    lacking: set[str] = set()
    for index, bookie in enumerate(fragment.ensemble):
        held = lists.get(bookie)
        lost = [
            entry_id
            for gap in _gaps(held or (), first, last)
            for entry_id in range(gap.first, gap.last + 1)
            if belongs_on(quorum, entry_id, index)
        ]
        missing.update(lost)
        # Without a list the bookie's copies cannot be counted on, but it may have them.
        if lost and held is not None:
            lacking.add(bookie)
    # The entry that the most of its bookies lack has the fewest copies.
    return Replicas(frozenset(lacking), quorum.write_quorum - max(missing.values(), default=0))


def _gaps(runs: Sequence[Run], first: int, last: int) -> Iterator[Run]:
    """The parts of ``first`` to ``last`` that the rising ``runs`` do not cover."""
    # Lists may be long, and are gone through piece by piece (``count_replicas``). Begin with the
    # first run that reaches ``first``.
    number = bisect_left(runs, first, key=lambda run: run.last)
    while number < len(runs) and runs[number].first <= last:
        if first < runs[number].first:
            yield Run(first, runs[number].first - 1)
        # What is covered is behind ``first``; the rest is still to be looked at.
        first = runs[number].last + 1
        number += 1
    if first <= last:
        yield Run(first, last)
