"""Finding a position by what its entry says: binary search over the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from geminga_broker.managed_ledger.chain import LedgerSpan
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import EARLIEST, Position


async def read_one(managed_ledger: ManagedLedger, position: Position) -> bytes:
    """The payload of the entry at ``position``, from the cache or a bookie."""
    run = managed_ledger.cached_run(position, 1)
    if not run:
        run = await managed_ledger.read(position, 1)
    return run[0][1]


async def first_position_where(
    managed_ledger: ManagedLedger,
    is_reached: Callable[[bytes], bool],
    *,
    after: Position = EARLIEST,
) -> Position:
    """The first entry whose payload fulfils ``is_reached``, the end of the log if none does.

    Only entries ``after`` that position are looked at.

    The condition must stay true once it is (publish times that grow): about one read for each
    doubling of the log's length.
    """
    spans = [span for span in managed_ledger.chain.spans if span.entries]
    low, high = _entries_upto(spans, after), sum(span.entries for span in spans)

    def position_of(index: int) -> Position:
        for span in spans:
            if index < span.entries:
                return Position(span.ledger_id, index)
            index -= span.entries
        return managed_ledger.chain.next_after(managed_ledger.chain.last_confirmed)

    while low < high:
        middle = (low + high) // 2
        if is_reached(await read_one(managed_ledger, position_of(middle))):
            high = middle
        else:
            low = middle + 1
    return position_of(low)


def _entries_upto(spans: Iterable[LedgerSpan], position: Position) -> int:
    """How many entries are not greater than ``position``."""
    count = 0
    for span in spans:
        if span.ledger_id < position[0]:
            count += span.entries
        elif span.ledger_id == position[0]:
            count += min(max(position[1] + 1, 0), span.entries)
    return count
