"""What a process with auto-recovery is told (``magnetar_server.settings`` says by whom)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from magnetar_autorecovery.options import AutoRecoveryOptions

Port = Annotated[int, Ge(0), Le(65535)]
RECOVERY = AutoRecoveryOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """How auto-recovery works, wherever it runs.

    Upstream's names; an interval of 0 turns off what it is for.
    """

    lost_bookie_recovery_delay_s: Annotated[int, Ge(0)] = RECOVERY.lost_bookie_recovery_delay_s
    auditor_periodic_bookie_check_interval_s: Annotated[float, Ge(0)] = (
        RECOVERY.bookie_check_interval_s
    )
    auditor_periodic_check_interval_s: Annotated[float, Ge(0)] = RECOVERY.ledger_check_interval_s
    auditor_periodic_placement_policy_check_interval_s: Annotated[float, Ge(0)] = (
        RECOVERY.placement_check_interval_s
    )
    auditor_periodic_replicas_check_interval_s: Annotated[float, Ge(0)] = (
        RECOVERY.replicas_check_interval_s
    )
    auditor_ledger_verification_percentage: Annotated[int, Ge(0), Le(100)] = (
        RECOVERY.verification_percentage
    )
    open_ledger_rereplication_grace_s: Annotated[float, Ge(0)] = RECOVERY.open_ledger_grace_s
    rereplication_entry_batch_size: Annotated[int, Ge(1)] = RECOVERY.copy_batch_entries_max
    replication_bytes_per_s: Annotated[int, Ge(0)] = RECOVERY.copy_bytes_per_s

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

    zookeeper: str = "127.0.0.1:2181"
    zookeeper_session_timeout_s: Annotated[float, Gt(0)] = 6.0
    # So long does it wait for ZooKeeper, and for a cluster there, when it starts.
    zookeeper_connect_timeout_s: Annotated[float, Gt(0)] = 30.0
    # Where metrics and health are.
    bind_address: str = "127.0.0.1"
    http_port: Port = 8000
    # Its name in elections and locks, unlike that of any other; empty: made of host and process.
    recovery_id: str = ""
    log_level: str = "INFO"
    log_json: bool = False
