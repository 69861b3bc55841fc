"""What auto-recovery has done, in plain numbers; ``metrics`` shows them to Prometheus."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AuditorCounters:
    """Of the auditor, for the time that this daemon is it. Times are sums, in seconds."""

    ledgers_marked: int = 0
    # The size of the ledgers marked, each counted as often as it was marked.
    marked_bytes: int = 0
    # By reading, which is one of the three kinds of check.
    ledgers_checked: int = 0
    # Audits that waited for the grace of a lost bookie, and those of them that were cancelled.
    audits_delayed: int = 0
    audits_cancelled: int = 0
    # How often a check that was due waited, for a lost bookie or because of the switch.
    checks_skipped: int = 0
    # Runs that visited all ledgers.
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

    # Ledgers that were whole afterwards, and those that stayed locked for a while.
    ledgers_replicated: int = 0
    ledgers_deferred: int = 0
    entries_read: int = 0
    bytes_read: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    # Each attempt counts: an entry whose bookies stay away is counted again and again.
    entries_unreadable: int = 0
    # Batches of copies; ``read_s`` and ``write_s`` are their times.
    batches: int = 0
    read_s: float = 0.0
    write_s: float = 0.0
