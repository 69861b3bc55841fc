"""Internal stats of a log and its cursors: upstream's ``ManagedLedgerInternalStats``.

Facts only, with our names and units; the REST side knows upstream's names. What upstream adds from
the metadata of each ledger (``?metadata=true``) comes from ``Ledgers``, not from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.log_listener import LogState
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position

# A text of a million ranges is of no use: only the first are shown. Their number is a field.
RANGES_SHOWN_MAX = 1000


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """One of ``ledgers``; the open one has neither entries nor size, as upstream's."""

    ledger_id: int
    entries: int
    size_bytes: int
    is_offloaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
    """The log's own part. Times are Unix time in ms, 0 for never."""

    entries_added: int
    entries: int
    size_bytes: int
    current_ledger_entries: int
    current_ledger_bytes: int
    last_ledger_created_ms: int
    last_ledger_failed_ms: int
    pending_entries: int
    last_confirmed: Position
    state: LogState
    ledgers: tuple[LedgerStats, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorStats:
    """One of ``cursors``, without what its subscription knows (``active``, ``waitingReadOp``)."""

    mark_delete: Position
    # Where the subscription reads next.
    read_position: Position
    # Upstream's name; it counts entries, of those that were added since the log was opened.
    messages_consumed: int
    cursor_ledger_id: int
    cursor_ledger_last_entry: int
    acknowledged_ranges: str
    acknowledged_range_count: int
    ledger_switched_ms: int
    state: str
    entries_since_first_unacknowledged: int
    properties: Mapping[str, int]


def log_stats(log: ManagedLedger) -> LogStats:
    """The facts of ``log`` now."""
    chain = log.chain
    # Only the last ledger can be open; after a load none is until something is published.
    current = chain.spans[-1] if chain.spans and not chain.spans[-1].closed_at_ms else None
    return LogStats(
        entries_added=log.entries_added,
        entries=chain.total_entries,
        size_bytes=chain.total_bytes,
        current_ledger_entries=current.entries if current is not None else 0,
        current_ledger_bytes=current.size_bytes if current is not None else 0,
        last_ledger_created_ms=log.last_ledger_created_ms,
        last_ledger_failed_ms=log.last_ledger_failed_ms,
        pending_entries=log.pending_count,
        last_confirmed=chain.last_ever_confirmed,
        state=log.state,
        ledgers=tuple(
            LedgerStats(span.ledger_id, span.entries, span.size_bytes, span.is_offloaded)
            if span.closed_at_ms
            else LedgerStats(span.ledger_id, 0, 0, span.is_offloaded)
            for span in chain.spans
        ),
    )


def cursor_stats(log: ManagedLedger, cursor: Cursor, read_position: Position) -> CursorStats:
    """The facts of a cursor of ``log``, whose subscription reads on at ``read_position``."""
    store = cursor.store
    # Lazily: a cursor may have a million ranges.
    shown = islice(cursor.acknowledged.ranges(), RANGES_SHOWN_MAX)
    # Upstream counts up to the entry that is read next, though it may not be there yet: 1 for a
    # cursor that has caught up.
    unacknowledged = 0
    if read_position > cursor.mark_delete:
        last_read = log.chain.previous_of(read_position)
        unacknowledged = log.chain.entries_between(cursor.mark_delete, last_read) + 1
    return CursorStats(
        mark_delete=cursor.mark_delete,
        read_position=read_position,
        # Negative for a backlog from before the log was opened, as upstream's.
        messages_consumed=log.entries_added - cursor.backlog_entries,
        cursor_ledger_id=store.ledger_id if store is not None else -1,
        cursor_ledger_last_entry=store.ledger_last_entry if store is not None else -1,
        acknowledged_ranges="[" + ",".join(f"({low}..{high}]" for low, high in shown) + "]",
        acknowledged_range_count=cursor.acknowledged.range_count,
        ledger_switched_ms=store.ledger_switched_ms if store is not None else 0,
        # Words of upstream's ``ManagedCursorImpl.State``: NoLedger while no cursor ledger is
        # written.
        state="Open" if store is None or store.current is not None else "NoLedger",
        entries_since_first_unacknowledged=unacknowledged,
        properties=cursor.position_properties,
    )
