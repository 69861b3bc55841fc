"""How auto-recovery works: intervals, graces and limits, with BookKeeper's defaults as Pulsar sets
them (``conf/bookkeeper.conf``); upstream's names stand beside ours where they differ."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryOptions:
    """What ``AutoRecovery`` is told once."""

    # How long one lost bookie is waited for before its ledgers are copied; what ZooKeeper holds
    # goes before it once it is there. Several that are lost at once are not waited for.
    lost_bookie_recovery_delay_s: int = 0
    # How often the metadata of all ledgers is compared with the bookies there are
    # (auditorPeriodicBookieCheckInterval); 0: only when the auditor begins.
    bookie_check_interval_s: float = 86_400.0
    # How often every ledger is read (auditorPeriodicCheckInterval); 0: never.
    ledger_check_interval_s: float = 604_800.0
    # How often the bookies of all ledgers are compared with the rules of placement
    # (auditorPeriodicPlacementPolicyCheckInterval); 0: never.
    placement_check_interval_s: float = 0.0
    # How often all bookies are asked which entries of each ledger they have
    # (auditorPeriodicReplicasCheckInterval); 0: never.
    replicas_check_interval_s: float = 0.0
    # How many of a fragment's entries a check reads from each bookie, beside the first and the
    # last, 0 to 100 (auditorLedgerVerificationPercentage).
    verification_percentage: int = 0
    # How long a ledger may stay unclosed after its last ensemble lost a bookie, before it is taken
    # from its writer (openLedgerRereplicationGracePeriod). A living writer has long replaced it.
    open_ledger_grace_s: float = 30.0
    # The longest that a ledger is let alone which could not be repaired
    # (lockReleaseOfFailedLedgerGracePeriod); the first time it is a 32nd part of it.
    failed_ledger_grace_s: float = 300.0
    # Entries that are copied at once (rereplicationEntryBatchSize), and how many bytes of them.
    copy_batch_entries_max: int = 100
    copy_batch_bytes_max: int = 8 * MIB
    # Bytes a second that one worker copies (replicationRateByBytes), 0 for no bound. Upstream has
    # none; here the bookie that the worker lives in has one core for this and its own work.
    copy_bytes_per_s: int = 32 * MIB
    # Ledgers whose lock one worker keeps while it waits for a grace to pass; then it takes no more.
    ledgers_deferred_max: int = 1_000
    # Ledgers whose metadata is read at once, and that are checked at once.
    metadata_reads_max: int = 64
    ledger_checks_max: int = 4
    # Idle workers and auditors look again after so long, should a watch ever be missed.
    rescan_interval_s: float = 60.0
    # After ZooKeeper or bookies failed an auditor or worker: rwRereplicateBackoffMs.
    retry_s: float = 5.0
