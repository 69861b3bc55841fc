"""Auto-recovery's metrics have the names that dashboards ask for, and true values."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from tests.unit.geminga_autorecovery.cluster import Cluster

from geminga_autorecovery.autorecovery import AutoRecovery
from geminga_autorecovery.metrics import AutoRecoveryMetrics


class Page(Collector):
    """What the metrics page collects from."""

    def __init__(self, metrics: AutoRecoveryMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()


async def test_every_name_is_there_with_its_value() -> None:
    cluster = Cluster(1)
    daemon = AutoRecovery(
        "b0",
        coordination=cluster.coordination,
        network=cluster.network,
        clock=cluster.clock,
        random=Random(1),
    )
    daemon.auditor_counters.ledgers_marked = 3
    daemon.auditor_counters.audits, daemon.auditor_counters.audit_s = 2, 0.5
    daemon.auditor_counters.ledgers_badly_placed = 1
    daemon.auditor_counters.ledgers_without_replica = 2
    daemon.auditor_counters.ledgers_below_ack_quorum = 3
    daemon.auditor_counters.ledgers_below_write_quorum = 4
    daemon.worker_counters.bytes_written = 46
    registry = CollectorRegistry()
    registry.register(Page(AutoRecoveryMetrics(daemon)))
    lines = generate_latest(registry).decode().splitlines()
    for line in (
        "auditor_election_attempts 0.0",
        "auditor_NUM_UNDER_REPLICATED_LEDGERS 3.0",
        "auditor_UNDER_REPLICATED_LEDGERS_TOTAL_SIZE 0.0",
        "auditor_NUM_LEDGERS_CHECKED 0.0",
        "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY 1.0",
        "auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY 2.0",
        "auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY 3.0",
        "auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY 4.0",
        'auditor_PLACEMENT_POLICY_CHECK_TIME_count{success="true"} 0.0',
        'auditor_REPLICAS_CHECK_TIME_count{success="true"} 0.0',
        "auditor_NUM_BOOKIE_AUDITS_DELAYED 0.0",
        'auditor_AUDIT_BOOKIES_TIME_count{success="true"} 2.0',
        'auditor_AUDIT_BOOKIES_TIME_sum{success="true"} 500.0',
        'auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE_count{success="true"} 2.0',
        "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED 0.0",
        "replication_worker_NUM_ENTRIES_READ 0.0",
        "replication_worker_NUM_ENTRIES_WRITTEN 0.0",
        "replication_worker_NUM_BYTES_READ 0.0",
        "replication_worker_NUM_BYTES_WRITTEN 46.0",
        'replication_worker_READ_DATA_LATENCY_count{success="true"} 0.0',
        'replication_worker_WRITE_DATA_LATENCY_count{success="true"} 0.0',
        "geminga_autorecovery_is_auditor 0.0",
    ):
        assert line in lines
