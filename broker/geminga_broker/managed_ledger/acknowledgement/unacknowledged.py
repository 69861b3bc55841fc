"""The backlog of a subscription as runs of entries: no entry is looked at by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.positions import Position


def unacknowledged_runs(
    acknowledged: Acknowledged, chain: LedgerChain
) -> Iterator[tuple[int, int, int]]:
    """Runs ``(ledger_id, first, last)`` of entries beyond the mark-delete position, in order."""
    mark = acknowledged.mark_delete
    # By ledger: the first and the last entry of each acknowledged range, in order.
    holes: dict[int, list[tuple[int, int]]] = {}
    for lower, upper in acknowledged.ranges():
        holes.setdefault(lower[0], []).append((lower[1] + 1, upper[1]))
    for span in chain.spans:
        if span.ledger_id < mark[0]:
            continue
        first = mark[1] + 1 if span.ledger_id == mark[0] else 0
        # The entries between two holes, then those behind the last one.
        for hole_first, hole_last in holes.get(span.ledger_id, ()):
            if first < hole_first:
                yield span.ledger_id, first, hole_first - 1
            first = max(first, hole_last + 1)
        if first < span.entries:
            yield span.ledger_id, first, span.entries - 1


def nth_unacknowledged(
    acknowledged: Acknowledged, chain: LedgerChain, number: int
) -> Position | None:
    """The ``number``-th entry (from 1) of the backlog; None where there are not so many."""
    assert number > 0
    for ledger_id, first, last in unacknowledged_runs(acknowledged, chain):
        count = last - first + 1
        if number <= count:
            return Position(ledger_id, first + number - 1)
        number -= count
    return None
