"""Proves what the REST side gets of a real broker: its topics, and what all of it counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import httpx
import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, maintain, producer_of
from tests.unit.geminga_broker.conftest import initialized_broker
from tests.unit.geminga_broker.sessions.stand_ins import context_over
from tests.unit.geminga_broker.stand_ins import MemoryNetwork

from geminga_broker.admin.administration import Administration
from geminga_broker.admin.app import create_app
from geminga_broker.broker import Broker
from geminga_broker.errors import NotAllowed
from geminga_broker.health import HealthCheck
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.config import CacheConfig
from geminga_broker.metrics.collector import BrokerMetrics
from geminga_broker.policies.backlog import BacklogQuotas, Quota, QuotaPolicy
from geminga_broker.topics.backlog import Backlog
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

HOUR_S = 3600
TOPICS = "/admin/v2/non-persistent/public/default"


@pytest.fixture
async def broker(coordination: Coordination, network: MemoryNetwork) -> Broker:
    """A real one, in place of that of the other tests of the REST side."""
    return await initialized_broker(coordination, network)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the REST side of a broker that serves."""
    transport = httpx.ASGITransport(app=create_app(broker.services()))
    async with broker, httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client


async def test_a_topic_is_made_listed_unloaded_and_gone(client: httpx.AsyncClient) -> None:
    assert (await client.put(f"{TOPICS}/topic")).status_code == 204
    listed = ["non-persistent://public/default/topic"]
    assert (await client.get(TOPICS)).json() == listed
    assert (await client.get(f"{TOPICS}/topic/stats")).json()["ownerBroker"] == "here:8080"
    assert (await client.put(f"{TOPICS}/topic/unload")).status_code == 204
    assert (await client.get(TOPICS)).json() == []
    assert (await client.put(f"{TOPICS}/topic/unload")).status_code == 404


async def test_a_topic_that_keeps_nothing_is_not_trimmed(broker: Broker) -> None:
    async with broker:
        name = TopicName.parse("non-persistent://public/default/topic")
        await broker.ownership.owner(name)
        await broker.topics.create(name, {})
        for change in (broker.administration.trim_topic, broker.administration.truncate_topic):
            with pytest.raises(NotAllowed, match="keeps no messages"):
                await change(name)


async def test_metrics_show_what_ledgers_count_under_bookkeepers_names(
    broker: Broker, client: httpx.AsyncClient
) -> None:
    counters = broker.ledgers.counters
    counters.ensemble_changes, counters.reads_speculative, counters.copies_missing = 3, 4, 5
    lines = (await client.get("/metrics/")).text.splitlines()
    client_of = "pulsar_managedLedger_client_bookkeeper_client"
    assert f"# TYPE {client_of}_NUM_ENSEMBLE_CHANGE counter" in lines
    assert f'{client_of}_NUM_ENSEMBLE_CHANGE{{cluster="standalone"}} 3' in lines
    assert f'{client_of}_SPECULATIVE_READ_COUNT{{cluster="standalone"}} 4' in lines
    assert 'geminga_ledger_copies_missing_total{cluster="standalone"} 5' in lines
    assert 'geminga_ledger_bookies_replaced_total{cluster="standalone"} 0' in lines


@pytest.fixture
async def storing_client(
    broker: Broker, topics: TopicDirectory
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the REST side of a broker whose topics store, in memory."""
    clock = SimulatedClock()
    health = HealthCheck(topics, clock, "here:8080")
    metrics = BrokerMetrics(
        clock,
        topics=topics,
        maintenance=TopicMaintenance(topics, clock),
        cache=EntryCache(CacheConfig(cache_bytes_max=1000)),
        ledger_counters=broker.ledgers.counters,
        sessions=context_over(topics),
        health=health,
        ownership=broker.ownership,
    )
    administration = Administration(topics, broker.ledgers, broker.ownership)
    text = partial(metrics.text, cluster="standalone", version="4.0.6", host="here")
    app = create_app(replace(broker.services(), broker=administration, metrics_text=text))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client


async def with_backlog(topics: TopicDirectory, name: str, *ages_s: int) -> Topic:
    """A topic with a subscription that has left messages of these ages."""
    topic = await topics.get(TopicName.parse(f"persistent://t/n/{name}"), create=True)
    await topic.subscribing.create("slow")
    producer = producer_of(NotedSession())
    await topic.publishing.connect(producer)
    now_ms = SimulatedClock().wall_ms()
    for age_s in ages_s:
        metadata = api.MessageMetadata(
            producer_name="p", sequence_id=0, publish_time=now_ms - age_s * 1000
        )
        producer.append_all([(encode_payload(metadata, bytes(1000)), 1, producer, 0, 0)])
    await asyncio.sleep(1)
    return topic


async def test_metrics_count_each_eviction_under_the_quota_that_asked_for_it(
    topics: TopicDirectory, storing_client: httpx.AsyncClient
) -> None:
    large = await with_backlog(topics, "large", *[0] * 20)
    old = await with_backlog(topics, "old", 3 * HOUR_S, 2 * HOUR_S, 0)
    limit = large.part(Backlog).size_bytes // 2
    evict, refuse = QuotaPolicy.EVICT_BACKLOG, QuotaPolicy.REFUSE_PRODUCERS
    large.apply(replace(large.policies, quotas=BacklogQuotas(size=Quota(limit, evict))))
    old.apply(replace(old.policies, quotas=BacklogQuotas(size=Quota(1, refuse))))
    for _ in range(2):  # the second time there is nothing left to evict, and producers are no loss
        await maintain(topics, Backlog)
    old.apply(replace(old.policies, quotas=BacklogQuotas(age=Quota(HOUR_S, evict))))
    await maintain(topics, Backlog)
    lines = (await storing_client.get("/metrics/")).text.splitlines()
    evictions = "storage_backlog_quota_exceeded_evictions_total"
    of = 'cluster="standalone",namespace="t/n",topic="persistent://t/n'
    assert lines.count(f"# TYPE pulsar_{evictions} counter") == 1
    assert [line for line in lines if line.startswith(f"pulsar_{evictions}")] == [
        f'pulsar_{evictions}{{{of}/large",quota_type="size"}} 1',
        f'pulsar_{evictions}{{{of}/large",quota_type="time"}} 0',
        f'pulsar_{evictions}{{{of}/old",quota_type="size"}} 0',
        f'pulsar_{evictions}{{{of}/old",quota_type="time"}} 1',
    ]
    assert f'pulsar_broker_{evictions}{{cluster="standalone",quota_type="size"}} 1' in lines
    assert f'pulsar_broker_{evictions}{{cluster="standalone",quota_type="time"}} 1' in lines


async def test_metrics_show_a_topics_quotas_and_the_age_of_its_backlog(
    topics: TopicDirectory, storing_client: httpx.AsyncClient
) -> None:
    topic = await with_backlog(topics, "topic", HOUR_S)
    hold = QuotaPolicy.HOLD_PRODUCERS
    topic.apply(
        replace(topic.policies, quotas=BacklogQuotas(Quota(10_000, hold), Quota(2 * HOUR_S, hold)))
    )
    await with_backlog(topics, "unlimited")
    await maintain(topics, Backlog)
    lines = (await storing_client.get("/metrics/")).text.splitlines()
    shown = {
        name: value
        for name, value in (line.rsplit(" ", 1) for line in lines)
        if "_backlog_quota_limit" in name or "_backlog_age" in name
    }
    of = 'cluster="standalone",namespace="t/n",topic="persistent://t/n'
    assert shown[f'pulsar_storage_backlog_quota_limit{{{of}/topic"}}'] == "10000"
    assert shown[f'pulsar_storage_backlog_quota_limit_time{{{of}/topic"}}'] == "7200"
    age_s = int(shown[f'pulsar_storage_backlog_age_seconds{{{of}/topic"}}'])
    assert HOUR_S <= age_s < HOUR_S + 60
    for name in ("quota_limit", "quota_limit_time", "age_seconds"):
        assert shown[f'pulsar_storage_backlog_{name}{{{of}/unlimited"}}'] == "-1"
