"""What auto-recovery is told, in a bookie's process or in one of its own.

The defaults are BookKeeper's as Pulsar sets them (``conf/bookkeeper.conf``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

from geminga_server.config import INLINE, INTERNAL, PartConfig, Port, Upstream
from geminga_server.tls.config import BookieClientTlsConfig

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """How auditor and replication worker go about it; an interval of 0 turns off what it is for."""

    bookkeeper_tls: BookieClientTlsConfig = field(default_factory=BookieClientTlsConfig)
    lost_bookie_recovery_delay_s: Annotated[
        int, Ge(0), Upstream("lostBookieRecoveryDelay", of="BookKeeper")
    ] = 0
    """How long a lost bookie is waited for before its ledgers are copied. What ZooKeeper holds
    goes before it, and several bookies that are lost at once are not waited for."""
    auditor_periodic_bookie_check_interval_s: Annotated[float, Ge(0)] = 86_400.0
    """How often the metadata of all ledgers is compared with the bookies there are; 0: only when
    the auditor begins."""
    auditor_periodic_check_interval_s: Annotated[float, Ge(0)] = 604_800.0
    """How often every ledger is read."""
    auditor_periodic_placement_policy_check_interval_s: Annotated[float, Ge(0)] = 0.0
    """How often the bookies of all ledgers are compared with the rules of placement."""
    auditor_periodic_replicas_check_interval_s: Annotated[float, Ge(0)] = 0.0
    """How often all bookies are asked which entries of each ledger they have."""
    auditor_ledger_verification_percentage: Annotated[int, Ge(0), Le(100)] = 0
    """How many percent of a fragment's entries a check reads from each bookie, beside the first and
    the last."""
    open_ledger_rereplication_grace_s: Annotated[
        float, Ge(0), Upstream("openLedgerRereplicationGracePeriod", 0.001, of="BookKeeper")
    ] = 30.0
    """How long a ledger that lost a bookie may stay open before it is taken from its writer. A
    living writer has long replaced the bookie."""
    rereplication_entry_batch_size: Annotated[int, Ge(1)] = 100
    """Entries that are copied at once."""
    replication_bytes_per_s: Annotated[
        int, Ge(0), Upstream("replicationRateByBytes", of="BookKeeper")
    ] = 32 * MIB
    """Bytes a second that one worker copies; 0: as fast as it goes. Upstream has no bound; here
    the bookie around the worker has one core for all its work."""
    # The longest that a ledger is let alone which could not be repaired
    # (lockReleaseOfFailedLedgerGracePeriod); the first time it is a 32nd part of it.
    failed_ledger_grace_s: Annotated[float, INTERNAL] = 300.0
    # Bytes of the entries that are copied at once.
    copy_batch_bytes_max: Annotated[int, INTERNAL] = 8 * MIB
    # Ledgers whose lock one worker keeps while it waits for a grace to pass; then it takes no more.
    ledgers_deferred_max: Annotated[int, INTERNAL] = 1_000
    # Ledgers whose metadata is read at once, and that are checked at once.
    metadata_reads_max: Annotated[int, INTERNAL] = 64
    ledger_checks_max: Annotated[int, INTERNAL] = 4
    # Idle workers and auditors look again after so long, should a watch ever be missed.
    rescan_interval_s: Annotated[float, INTERNAL] = 60.0
    # After ZooKeeper or bookies failed an auditor or worker (rwRereplicateBackoffMs).
    retry_s: Annotated[float, INTERNAL] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryPartConfig(PartConfig):
    """A process of auto-recovery alone; port 0 takes a free one."""

    auto_recovery: Annotated[AutoRecoveryConfig, INLINE] = field(default_factory=AutoRecoveryConfig)
    bind_address: str = "127.0.0.1"
    """Where metrics and health are."""
    http_port: Port = 8000
    """The port of metrics and health; 0 takes a free one."""
    recovery_id: str = ""
    """Its name in elections and locks, unlike any other's; empty: made of host and process."""
