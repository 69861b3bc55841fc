"""Proves that figures are those of the parts that count, and rates those of the last period."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import context_over

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.health import HealthCheck
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache, LedgerCache
from geminga_broker.managed_ledger.config import CacheConfig
from geminga_broker.metrics import collector
from geminga_broker.metrics.collector import BrokerMetrics
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_ledger import LedgerCounters
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_simulation.event_loop.clock import SimulatedClock


async def test_the_load_report_says_what_the_broker_carries(broker: Broker) -> None:
    async with broker:
        name = TopicName.parse("non-persistent://public/default/topic")
        await broker.ownership.owner(name)
        await broker.topics.create(name, {})
        report = broker.metrics.load()
        assert report.num_topics == 1
        assert report.num_bundles == 1
        assert "public/default/" in report.bundles[0]


async def test_the_load_report_says_what_each_bundle_carries(broker: Broker) -> None:
    async with broker:
        names = [TopicName.parse(f"non-persistent://public/default/t-{n}") for n in range(20)]
        for name in names:
            await broker.ownership.owner(name)
            await broker.topics.create(name, {})
        await broker.metrics.renew()
        report = broker.metrics.load()
        assert set(report.last_stats) == set(report.bundles)
        assert len(report.bundles) > 1
        assert sum(each.topics for each in report.last_stats.values()) == report.num_topics == 20


SHOWING = BrokerConfig(
    advertised_address="here", port=6650, web_port=8080, exposes_bundle_metrics=True
)


@pytest.mark.parametrize("broker", [None, SHOWING], ids=["by default", "asked to"], indirect=True)
async def test_bundles_are_shown_where_that_is_asked_for(broker: Broker) -> None:
    async with broker:
        name = TopicName.parse("non-persistent://public/default/topic")
        await broker.ownership.owner(name)
        await broker.topics.create(name, {})
        await broker.metrics.renew()
        shown = {each.name: each.topics for each in broker.metrics.snapshot().bundles}
        bundle = str(broker.ownership.rings.last_bundle_of(name))
        assert shown == ({bundle: 1} if broker.config is SHOWING else {})


async def test_a_load_report_tells_of_the_heaviest_bundles_so_that_it_can_be_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "REPORTED_BUNDLES_MAX", 2)
    async with broker:
        names = [TopicName.parse(f"non-persistent://public/default/t-{n}") for n in range(20)]
        for name in names:
            await broker.ownership.owner(name)
            await broker.topics.create(name, {})
        await broker.metrics.renew()
        all_bundles = Counter(str(broker.ownership.rings.last_bundle_of(name)) for name in names)
        report = broker.metrics.load()
        told = sorted((each.topics for each in report.last_stats.values()), reverse=True)
        assert told == [count for _, count in all_bundles.most_common(2)]
        assert len(report.bundles) == len(all_bundles) > 2


async def test_the_caches_rates_are_those_of_the_last_period(
    broker: Broker, topics: TopicDirectory
) -> None:
    clock, cache = SimulatedClock(), EntryCache(CacheConfig(cache_bytes_max=1000))
    metrics = BrokerMetrics(
        clock,
        topics=topics,
        maintenance=TopicMaintenance(topics, clock),
        cache=cache,
        ledger_counters=LedgerCounters(),
        sessions=context_over(topics),
        health=HealthCheck(topics, clock, "here:8080"),
        ownership=broker.ownership,
    )
    clock.advance(60)
    cache.hits, cache.hit_bytes, cache.misses, cache.missed_bytes = 600, 6000, 60, 120
    cache.insert(LedgerCache(0), [(0, bytes(1000), 1)], 1000, now_s=60.0)
    await metrics.renew()
    shown = metrics.snapshot().cache
    assert (shown.hits_rate, shown.hits_throughput) == (10.0, 100.0)
    assert (shown.misses_rate, shown.misses_throughput) == (1.0, 2.0)
    assert (shown.evictions, shown.entries) == (1, 1)
    clock.advance(60)
    await metrics.renew()
    shown = metrics.snapshot().cache
    assert (shown.hits_rate, shown.evictions) == (0.0, 0)
    assert shown.inserted_entries_total == 1


async def test_what_ledgers_writers_and_readers_count_is_in_the_snapshot(broker: Broker) -> None:
    broker.ledgers.counters.copies_damaged = 2
    counts = broker.metrics.snapshot().ledger_counts
    assert counts["geminga_ledger_copies_damaged_total"] == pytest.approx(2)
