"""What auto-recovery has done, in plain integers; ``metrics`` makes Prometheus' families of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AuditorCounters:
    """Of the auditor, while this process is it. Times are sums, in seconds."""

    ledgers_marked: int = 0
    # What the ledgers marked hold, each counted as often as it was marked.
    marked_bytes: int = 0
    ledgers_checked: int = 0
    audits_delayed: int = 0
    audits_cancelled: int = 0
    checks_skipped: int = 0
    audits: int = 0
    audit_s: float = 0.0
    checks: int = 0
    check_s: float = 0.0
    placement_checks: int = 0
    placement_check_s: float = 0.0
    replicas_checks: int = 0
    replicas_check_s: float = 0.0
    # What the last such check found, in ledgers.
    ledgers_badly_placed: int = 0
    ledgers_without_replica: int = 0
    ledgers_below_ack_quorum: int = 0
    ledgers_below_write_quorum: int = 0


@dataclass(slots=True)
class WorkerCounters:
    """Of the replication worker. Times are sums, in seconds."""

    ledgers_replicated: int = 0
    ledgers_deferred: int = 0
    entries_read: int = 0
    bytes_read: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    entries_unreadable: int = 0
    batches: int = 0
    read_s: float = 0.0
    write_s: float = 0.0
