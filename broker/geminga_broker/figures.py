"""What the broker counts, gathered from those who count: for ``/metrics`` and for its load report.

Rates are averages over the stats period, at whose end ``renew`` is called; everything else is as it
is when somebody asks.
"""

from __future__ import annotations

from geminga_broker.admin.snapshot import (
    SUMMARY_QUANTILES,
    BrokerSnapshot,
    CacheSnapshot,
    ConnectionsSnapshot,
    LookupsSnapshot,
)
from geminga_broker.admin.topics.stats import topic_snapshot
from geminga_broker.health import HealthCheck
from geminga_broker.managed_ledger.entry_cache import EntryCache
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_ledger import LedgerCounters
from geminga_protocol.records.brokers import LocalBrokerData
from geminga_runtime.clock import Clock
from geminga_server.metrics import Meter


class BrokerFigures:
    """The figures of one broker; whoever counts is handed in."""

    def __init__(
        self,
        clock: Clock,
        *,
        topics: TopicDirectory,
        maintenance: TopicMaintenance,
        cache: EntryCache,
        ledger_counters: LedgerCounters,
        sessions: SessionContext,
        health: HealthCheck,
        ownership: Ownership,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._maintenance = maintenance
        self._cache = cache
        self._ledger_counters = ledger_counters
        self._sessions = sessions
        self._health = health
        self._ownership = ownership
        self._cache_meter = Meter(clock.monotonic(), 0, 0, 0, 0)
        # How often the cache's bound was passed: in all, and in the last period.
        self._evictions = 0
        self._evictions_in_period = 0

    async def renew(self) -> None:
        """A stats period is over."""
        await self._maintenance.renew_rates()
        self._sessions.counts.lookup_durations.renew()
        cache = self._cache
        self._cache_meter.tick(
            self._clock.monotonic(), cache.hits, cache.hit_bytes, cache.misses, cache.missed_bytes
        )
        self._evictions_in_period = cache.evictions - self._evictions
        self._evictions = cache.evictions

    def load(self) -> LocalBrokerData:
        """What this broker carries; who is connected and the rates as of the last stats period."""
        totals = self._maintenance.totals
        bundles = tuple(sorted(str(bundle) for bundle in self._ownership.owned()))
        return LocalBrokerData(
            num_topics=self._topics.loaded_count,
            num_bundles=len(bundles),
            bundles=bundles,
            num_producers=totals.producers,
            num_consumers=totals.consumers,
            msg_rate_in=totals.rate_in,
            msg_throughput_in=totals.throughput_in,
            msg_rate_out=totals.rate_out,
            msg_throughput_out=totals.throughput_out,
        )

    def snapshot(self) -> BrokerSnapshot:
        """What ``/metrics`` shows."""
        topics = self._topics
        counts = self._sessions.counts
        return BrokerSnapshot(
            topics=[topic_snapshot(topic) for topic in topics.loaded],
            cache=self._cache_snapshot(),
            ledger_counts=self._ledger_counters.by_metric(),
            connections=ConnectionsSnapshot(
                active=len(self._sessions.connections),
                created_total=counts.connections_made,
                created_successfully=counts.connections_greeted,
                failed=counts.connections_refused,
                closed_total=counts.connections_closed,
                connections_max=self._sessions.limits.connections_max,
                refused=self._sessions.limits.refused,
            ),
            lookups=LookupsSnapshot(
                answers_total=counts.lookups_answered,
                redirects_total=counts.lookups_redirected,
                failures_total=counts.lookups_failed,
                pending=counts.lookups_pending,
                topic_loads_pending=topics.loading_count,
                topic_loads_failed=topics.loads_failed,
            ),
            publish_latency_ms=topics.services.publish_durations.summary(SUMMARY_QUANTILES),
            lookup_ms=counts.lookup_durations.summary(SUMMARY_QUANTILES),
            topic_load_ms=topics.load_durations.summary(SUMMARY_QUANTILES),
            is_healthy=self._health.is_healthy,
        )

    def _cache_snapshot(self) -> CacheSnapshot:
        cache = self._cache
        hits_rate, hits_throughput, misses_rate, misses_throughput = self._cache_meter.rates
        return CacheSnapshot(
            managed_ledgers=sum(each.keeps_messages for each in self._topics.loaded),
            used_bytes=cache.used_bytes,
            entries=cache.entry_count,
            hits_rate=hits_rate,
            hits_throughput=hits_throughput,
            misses_rate=misses_rate,
            misses_throughput=misses_throughput,
            evictions=self._evictions_in_period,
            inserted_entries_total=cache.inserted,
            evicted_entries_total=cache.evicted,
        )
