"""What a process with auto-recovery is told (``geminga_server.config`` says by whom)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from geminga_autorecovery.options import AutoRecoveryOptions
from geminga_server.config import PartConfig, Port

RECOVERY = AutoRecoveryOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings(PartConfig):
    """Settings of a process with auto-recovery, and how that works.

    Upstream's names; an interval of 0 turns off what it is for.
    """

    lost_bookie_recovery_delay_s: Annotated[int, Ge(0)] = RECOVERY.lost_bookie_recovery_delay_s
    """How long a lost bookie is waited for before its ledgers are copied."""
    auditor_periodic_bookie_check_interval_s: Annotated[float, Ge(0)] = (
        RECOVERY.bookie_check_interval_s
    )
    """How often the metadata of all ledgers is compared with the bookies there are."""
    auditor_periodic_check_interval_s: Annotated[float, Ge(0)] = RECOVERY.ledger_check_interval_s
    """How often every ledger is read."""
    auditor_periodic_placement_policy_check_interval_s: Annotated[float, Ge(0)] = (
        RECOVERY.placement_check_interval_s
    )
    """How often the bookies of all ledgers are compared with the rules of placement."""
    auditor_periodic_replicas_check_interval_s: Annotated[float, Ge(0)] = (
        RECOVERY.replicas_check_interval_s
    )
    """How often all bookies are asked which entries of each ledger they have."""
    auditor_ledger_verification_percentage: Annotated[int, Ge(0), Le(100)] = (
        RECOVERY.verification_percentage
    )
    """How many percent of its entries a check reads, beside the first and the last."""
    open_ledger_rereplication_grace_s: Annotated[float, Ge(0)] = RECOVERY.open_ledger_grace_s
    """How long a ledger that lost a bookie may stay open before it is taken from its writer."""
    rereplication_entry_batch_size: Annotated[int, Ge(1)] = RECOVERY.copy_batch_entries_max
    """Entries that are copied at once."""
    replication_bytes_per_s: Annotated[int, Ge(0)] = RECOVERY.copy_bytes_per_s
    """Bytes a second that are copied; 0: as fast as it goes."""

    def auto_recovery(self) -> AutoRecoveryOptions:
        """What auto-recovery is told."""
        return AutoRecoveryOptions(
            lost_bookie_recovery_delay_s=self.lost_bookie_recovery_delay_s,
            bookie_check_interval_s=self.auditor_periodic_bookie_check_interval_s,
            ledger_check_interval_s=self.auditor_periodic_check_interval_s,
            placement_check_interval_s=self.auditor_periodic_placement_policy_check_interval_s,
            replicas_check_interval_s=self.auditor_periodic_replicas_check_interval_s,
            verification_percentage=self.auditor_ledger_verification_percentage,
            open_ledger_grace_s=self.open_ledger_rereplication_grace_s,
            copy_batch_entries_max=self.rereplication_entry_batch_size,
            copy_bytes_per_s=self.replication_bytes_per_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryPartSettings(RecoverySettings):
    """Settings of a process of auto-recovery alone; port 0 takes a free one."""

    bind_address: str = "127.0.0.1"
    """Where metrics and health are."""
    http_port: Port = 8000
    """The port of metrics and health; 0 takes a free one."""
    recovery_id: str = ""
    """Its name in elections and locks, unlike any other's; empty: made of host and process."""
