"""The knobs of managed ledgers, with upstream's defaults where upstream has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from magnetar_protocol.bookkeeper.v2 import FRAME_BYTES_MAX_DEFAULT


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How logs are cut into ledgers and how cursors are kept.

    ``cursor_flush_delay_s`` is how long an acknowledgement may wait to share a write with others;
    one that asks for a receipt does not wait. Upstream writes at most once a second instead
    (managedLedgerDefaultMarkDeleteRateLimit) and so forgets up to a second of acknowledgements.
    """

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    ledger_entries_max: int = 50_000
    ledger_bytes_max: int = 2048 * 1024 * 1024
    # Not even a full ledger is replaced before the first, one with entries always after the second
    # (managedLedgerMinLedgerRolloverTimeMinutes, managedLedgerMaxLedgerRolloverTimeMinutes).
    ledger_age_min_s: float = 10 * 60.0
    ledger_age_max_s: float = 240 * 60.0
    # What is kept of ledgers that all cursors have passed; -1 keeps for ever (retention.py).
    retention_time_ms: int = 0
    retention_bytes: int = 0
    # How often old ledgers are looked for in all logs (retentionCheckIntervalInSeconds).
    sweep_period_s: float = 120.0
    cursor_ledger_entries_max: Annotated[int, Gt(0)] = 50_000
    cursor_ledger_age_max_s: float = 4 * 3600.0
    cursor_flush_delay_s: float = 0.1
    # A cursor with a great many holes rests after a write, so that it writes no more than this.
    cursor_bytes_per_s_max: Annotated[int, Gt(0)] = 4 * 1024 * 1024
    # With more ranges than this a cursor is kept as bits, and in its ledger, not in ZooKeeper
    # (managedLedgerMaxUnackedRangesToPersistInMetadataStore).
    cursor_ranges_max: Annotated[int, Gt(0)] = 1000
    # So many batches acknowledged in part are kept (managedLedgerMaxBatchDeletedIndexToPersist).
    cursor_batches_max: Annotated[int, Gt(0)] = 10_000
    retry_first_s: float = 0.1
    retry_limit_s: float = 5.0
    # More than any client may send: a bookie's frame with room for the entry's own head.
    entry_bytes_max: int = FRAME_BYTES_MAX_DEFAULT - 1024
    read_bytes_max: int = 1024 * 1024
    read_entries_max: int = 1000
