"""The settings of auto-recovery, in a bookie's process or in one of its own.

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
    """The settings of auditor and replication worker; an interval of 0 turns off its check."""

    bookkeeper_tls: BookieClientTlsConfig = field(default_factory=BookieClientTlsConfig)
    lost_bookie_recovery_delay_s: Annotated[
        int, Ge(0), Upstream("lostBookieRecoveryDelay", of="BookKeeper")
    ] = 0
    """The grace of a lost bookie, in seconds, before its ledgers are copied. A value that an
    operator wrote into ZooKeeper overrides it; several bookies lost at once get no grace."""
    auditor_periodic_bookie_check_interval_s: Annotated[float, Ge(0)] = 86_400.0
    """How often the auditor compares the metadata of all ledgers with the registered bookies; 0:
    only when it begins."""
    auditor_periodic_check_interval_s: Annotated[float, Ge(0)] = 604_800.0
    """How often the auditor reads every ledger."""
    auditor_periodic_placement_policy_check_interval_s: Annotated[float, Ge(0)] = 0.0
    """How often the auditor compares the bookies of all ledgers with the rules of placement."""
    auditor_periodic_replicas_check_interval_s: Annotated[float, Ge(0)] = 0.0
    """How often the auditor asks all bookies which entries of each ledger they have."""
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
    """Bytes a second that one worker copies; 0: no bound, as upstream. A bookie with a worker has
    one core for all its work."""
    # The longest pause before a ledger that could not be repaired is tried again
    # (lockReleaseOfFailedLedgerGracePeriod); the first pause is a 32nd part of it.
    failed_ledger_grace_s: Annotated[float, INTERNAL] = 300.0
    # Bytes of the entries that are copied at once: with ``rereplication_entry_batch_size`` the
    # bound of what a worker has in memory.
    copy_batch_bytes_max: Annotated[int, INTERNAL] = 8 * MIB
    # Ledgers that one worker keeps locked until a pause or grace is over; with so many it takes no
    # more.
    ledgers_deferred_max: Annotated[int, INTERNAL] = 1_000
    # Ledgers whose metadata is read at once, and ledgers that are checked at once: a check reads
    # entries.
    metadata_reads_max: Annotated[int, INTERNAL] = 64
    ledger_checks_max: Annotated[int, INTERNAL] = 4
    # Idle workers and auditors read everything again after so long, in case a watch was missed.
    rescan_interval_s: Annotated[float, INTERNAL] = 60.0
    # The pause of an auditor or worker after an error of ZooKeeper or bookies
    # (rwRereplicateBackoffMs).
    retry_s: Annotated[float, INTERNAL] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryPartConfig(PartConfig):
    """A process of auto-recovery alone; port 0 takes a free one."""

    auto_recovery: Annotated[AutoRecoveryConfig, INLINE] = field(default_factory=AutoRecoveryConfig)
    bind_address: str = "127.0.0.1"
    """The address of metrics and health."""
    http_port: Port = 8000
    """The port of metrics and health; 0 takes a free one."""
    recovery_id: str = ""
    """Its name in elections and locks, which no other may have; empty: made of host and process."""
