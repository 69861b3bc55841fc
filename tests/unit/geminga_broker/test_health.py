"""Proves that a health check is one message there and back, and says what stands in its way."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_broker.clients_and_logs import resolver_over
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import ServiceNotReady, StorageUnavailable
from geminga_broker.health import CHECK_TIMEOUT_S, HealthCheck
from geminga_broker.policies.publish import PublishConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock


async def test_each_check_publishes_one_message_and_leaves_no_client_connected(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    health = HealthCheck(topics, SimulatedClock(), "here:8080")
    claims = [health.is_healthy]
    await asyncio.gather(health.run(), health.run())
    claims.append(health.is_healthy)
    assert claims == [None, True]
    topic = topics.loaded.get(health.topic)
    assert topic is not None
    assert topic.publishing.messages_in == 2
    assert not topic.connected_count
    assert not topic.subscribing.subscriptions
    assert str(health.topic) == "persistent://pulsar/here:8080/healthcheck"
    assert len(ledgers.writers) == 1


async def test_bookies_that_do_not_answer_are_blamed_in_time(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    health = HealthCheck(topics, SimulatedClock(), "here:8080")
    await health.run()
    ledgers.is_prompt = False
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(StorageUnavailable, match="are the bookies up"):
        await health.run()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(CHECK_TIMEOUT_S)
    assert health.is_healthy is False
    topic = topics.loaded.get(health.topic)
    assert topic is not None
    assert not topic.connected_count


async def test_checks_while_the_bookies_are_away_do_not_pile_up(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    health = HealthCheck(topics, SimulatedClock(), "here:8080")
    await health.run()
    ledgers.is_prompt = False
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            await health.run()
    (entries,) = ledgers.entries.values()
    assert len(entries) == 2
    ledgers.is_prompt = True
    ledgers.writers[0].confirm()
    await health.run()
    assert health.is_healthy


async def test_the_check_succeeds_where_clients_must_encrypt(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    factory = logs_over(coordination, ledgers)
    strict = resolver_over(
        factory, publishing=PublishConfig(encryption_required=True, deduplication=True)
    )
    async with TopicDirectory(
        factory, SimulatedClock(), owns=lambda _: True, policies=strict
    ) as topics:
        await HealthCheck(topics, SimulatedClock(), "here:8080").run()


async def test_a_topic_that_is_not_ours_is_the_answer(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: False) as topics:
        with pytest.raises(ServiceNotReady, match="does not own"):
            await HealthCheck(topics, SimulatedClock(), "here:8080").run()
