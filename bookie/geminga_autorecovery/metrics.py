"""Auto-recovery's metrics for Prometheus, by the names of Apache BookKeeper (``ReplicationStats``).

Numbers are read at each scrape. The names are fixed by existing dashboards, also where Prometheus
would have counters end in ``_total``; times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_server.metrics import metric

if TYPE_CHECKING:
    from prometheus_client import Metric

MS_PER_S = 1000
IS_AUDITOR = "geminga_autorecovery_is_auditor"
SUCCESS = {"success": "true"}


@dataclass(frozen=True, slots=True)
class AutoRecoveryMetrics:
    """Collects from one open daemon."""

    daemon: AutoRecovery

    def collect(self) -> Iterable[Metric]:
        """All families, for one scrape."""
        auditor, worker = self.daemon.auditor_counters, self.daemon.worker_counters
        counters = {
            "geminga_autorecovery_background_faults_total": self.daemon.background_faults,
            "auditor_election_attempts": self.daemon.election.attempts,
            "auditor_NUM_UNDER_REPLICATED_LEDGERS": auditor.ledgers_marked,
            "auditor_UNDER_REPLICATED_LEDGERS_TOTAL_SIZE": auditor.marked_bytes,
            "auditor_NUM_LEDGERS_CHECKED": auditor.ledgers_checked,
            "auditor_NUM_BOOKIE_AUDITS_DELAYED": auditor.audits_delayed,
            "auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED": auditor.audits_cancelled,
            "auditor_NUM_SKIPPING_CHECK_TASK_TIMES": auditor.checks_skipped,
            "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY": auditor.ledgers_badly_placed,
            "auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY": auditor.ledgers_without_replica,
            "auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY": (
                auditor.ledgers_below_ack_quorum
            ),
            "auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY": (
                auditor.ledgers_below_write_quorum
            ),
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED": worker.ledgers_replicated,
            "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER": (
                worker.ledgers_deferred
            ),
            "replication_worker_NUM_ENTRIES_READ": worker.entries_read,
            "replication_worker_NUM_BYTES_READ": worker.bytes_read,
            "replication_worker_NUM_ENTRIES_WRITTEN": worker.entries_written,
            "replication_worker_NUM_BYTES_WRITTEN": worker.bytes_written,
            "replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION": (
                worker.entries_unreadable
            ),
        }
        # Of unknown type: counters would get names that end in ``_total``.
        for name, value in counters.items():
            yield metric(name, "unknown", [(name, {}, float(value))], _about(name))
        is_auditor = [(IS_AUDITOR, dict[str, str](), float(self.daemon.election.is_auditor))]
        yield metric(IS_AUDITOR, "gauge", is_auditor, _about(IS_AUDITOR))
        # Of each kind of work: how often it was done, and the seconds it took together. Upstream
        # measures the marking apart from the audit around it; here they are one pass.
        times = {
            "auditor_AUDIT_BOOKIES_TIME": (auditor.audits, auditor.audit_s),
            "auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE": (auditor.audits, auditor.audit_s),
            "auditor_CHECK_ALL_LEDGERS_TIME": (auditor.checks, auditor.check_s),
            "auditor_PLACEMENT_POLICY_CHECK_TIME": (
                auditor.placement_checks,
                auditor.placement_check_s,
            ),
            "auditor_REPLICAS_CHECK_TIME": (auditor.replicas_checks, auditor.replicas_check_s),
            "replication_worker_READ_DATA_LATENCY": (worker.batches, worker.read_s),
            "replication_worker_WRITE_DATA_LATENCY": (worker.batches, worker.write_s),
        }
        for name, (count, sum_s) in times.items():
            samples = [
                (f"{name}_count", SUCCESS, float(count)),
                (f"{name}_sum", SUCCESS, sum_s * MS_PER_S),
            ]
            yield metric(name, "summary", samples, _about(name))


def _about(name: str) -> str:
    return f"BookKeeper's {name}."
