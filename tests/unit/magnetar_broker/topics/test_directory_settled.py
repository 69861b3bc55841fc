"""Whoever deletes a namespace can wait for what is under way with its topics, and delete them when
nobody finds their bundles any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.magnetar_broker.log.stand_ins import MemoryLedgers, logs_over

from magnetar_broker.errors import ServiceNotReady, TopicNotFound
from magnetar_broker.topics.directory import TopicDirectory
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName
from magnetar_protocol.records.namespaces import Policies
from magnetar_runtime.clock import SystemClock
from magnetar_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]
NAME = TopicName.parse("persistent://t/n/topic")


async def test_a_namespaces_topics_are_settled_when_they_are_loaded_or_gone(
    coordination: Coordination, ledgers: MemoryLedgers, settle: Settle
) -> None:
    may_load = asyncio.Event()

    async def policies(_: NamespaceName) -> Policies:
        await may_load.wait()
        return Policies()

    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(logs, SystemClock(), owns=lambda _: True, policies=policies) as one:
        await one.settled(NAME.namespace)
        loading = asyncio.ensure_future(one.get(NAME, create=True))
        await settle()
        await one.settled(NamespaceName("t", "another"))
        settled = asyncio.ensure_future(one.settled(NAME.namespace))
        await settle()
        assert not settled.done()
        may_load.set()
        await settled
        assert one.find(NAME) is await loading
        deleting = asyncio.ensure_future(one.delete(NAME, force=True))
        await asyncio.sleep(0)
        await one.settled(NAME.namespace)
        assert not await one.exists(NAME)
        await deleting


async def test_a_topic_of_a_namespace_that_nobody_finds_any_more_can_still_be_deleted(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    bundles = [NAME.namespace]
    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(logs, SystemClock(), owns=lambda _: bool(bundles)) as one:
        loading = asyncio.ensure_future(one.get(NAME, create=True))
        await asyncio.sleep(0)
        bundles.clear()  # the namespace is marked as deleted
        with pytest.raises(ServiceNotReady):
            await loading
        assert await one.exists(NAME)
        with pytest.raises(ServiceNotReady):
            await one.delete(NAME, force=True)
        await one.delete_doomed(NAME)
        assert not await one.exists(NAME)
        with pytest.raises(TopicNotFound):
            await one.delete_doomed(NAME)
        with pytest.raises(ServiceNotReady):
            await one.get(NAME, create=True)
