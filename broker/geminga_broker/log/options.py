"""The knobs of managed ledgers, with upstream's defaults where upstream has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from geminga_protocol.bookkeeper.v2 import FRAME_BYTES_MAX_DEFAULT


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How logs are cut into ledgers and how cursors are kept.

    ``cursor_flush_delay_s`` is how long an acknowledgement may wait to share a write with others;
    one that asks for a receipt does not wait. Upstream writes at most once a second instead
    (managedLedgerDefaultMarkDeleteRateLimit) and so forgets up to a second of acknowledgements.
    """

    ensemble_size: int = 1
    """On how many bookies a ledger lies, where its namespace does not say."""
    write_quorum: int = 1
    """On how many of them each entry is stored."""
    ack_quorum: int = 1
    """How many of these must have synced it before it is confirmed."""
    ledger_entries_max: int = 50_000
    """A ledger is full with so many entries,"""
    ledger_bytes_max: int = 2048 * 1024 * 1024
    """or with so many bytes."""
    ledger_age_min_s: float = 10 * 60.0
    """Not even a full ledger is replaced before (managedLedgerMinLedgerRolloverTimeMinutes)."""
    ledger_age_max_s: float = 240 * 60.0
    """A ledger with entries is always replaced after (managedLedgerMaxLedgerRolloverTimeMinutes).
    """
    retention_time_ms: int = 0
    """How long ledgers are kept that all cursors have passed; -1: for ever."""
    retention_bytes: int = 0
    """How much of them is kept; -1: all."""
    sweep_period_s: float = 120.0
    """How often old ledgers are looked for in all logs (retentionCheckIntervalInSeconds)."""
    cursor_ledger_entries_max: Annotated[int, Gt(0)] = 50_000
    """A cursor's ledger is replaced with so many entries,"""
    cursor_ledger_age_max_s: float = 4 * 3600.0
    """or at this age."""
    cursor_flush_delay_s: float = 0.1
    """How long an acknowledgement may wait to share a write with others; one that asks for a
    receipt does not wait."""
    cursor_bytes_per_s_max: Annotated[int, Gt(0)] = 4 * 1024 * 1024
    """A cursor with a great many holes rests after a write, so that it writes no more than this."""
    cursor_ranges_max: Annotated[int, Gt(0)] = 1000
    """With more ranges a cursor is kept as bits, in its ledger, not in ZooKeeper
    (managedLedgerMaxUnackedRangesToPersistInMetadataStore)."""
    cursor_batches_max: Annotated[int, Gt(0)] = 10_000
    """So many batches acknowledged in part are kept (managedLedgerMaxBatchDeletedIndexToPersist).
    """
    cursor_redelivery_counts: bool = True
    """How often messages of Shared and Key_Shared subscriptions were given back is kept with the
    cursor; otherwise it is forgotten with the last consumer, as upstream does."""
    cursor_redelivery_delay_s: Annotated[float, Gt(0)] = 1.0
    """How long such a count may wait to be kept, and how often they are written by themselves."""
    retry_first_s: float = 0.1
    """The first pause before what failed is tried again; it doubles each time."""
    retry_limit_s: float = 5.0
    """The longest such pause."""
    entry_bytes_max: int = FRAME_BYTES_MAX_DEFAULT - 1024
    """The largest entry: a bookie's frame with room for the entry's own head."""
    read_bytes_max: int = 1024 * 1024
    """Bytes that are read from bookies at once."""
    read_entries_max: int = 1000
    """Entries that are read from bookies at once."""
    fetched_bytes_max: int = 128 * 1024 * 1024
    """What all subscriptions together keep of entries that were read from bookies and not sent."""
