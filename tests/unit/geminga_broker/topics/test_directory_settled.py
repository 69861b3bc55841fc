"""The deletion of a namespace can wait for what is under way with its topics, and delete them when
no lookup finds their bundles any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, producer_of, resolver_over
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import ServiceNotReady, TopicNotFound
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

Settle = Callable[[], Awaitable[None]]
NAME = TopicName.parse("persistent://t/n/topic")


def of(namespace: NamespaceName) -> Callable[[TopicName], bool]:
    """The topics of a namespace."""
    return lambda name: name.namespace == namespace


async def test_a_namespaces_topics_are_settled_when_they_are_loaded_or_gone(
    coordination: Coordination, ledgers: MemoryLedgers, settle: Settle
) -> None:
    may_load = asyncio.Event()

    async def policies(_: NamespaceName) -> Policies:
        await may_load.wait()
        return Policies()

    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, policies),
    ) as one:
        await one.settled(of(NAME.namespace))
        loading = asyncio.ensure_future(one.get(NAME, create=True))
        await settle()
        await one.settled(of(NamespaceName("t", "another")))
        settled = asyncio.ensure_future(one.settled(of(NAME.namespace)))
        await settle()
        assert not settled.done()
        may_load.set()
        await settled
        assert one.loaded.get(NAME) is await loading
        deleting = asyncio.ensure_future(one.delete(NAME, force=True))
        await asyncio.sleep(0)
        await one.settled(of(NAME.namespace))
        assert not await one.exists(NAME)
        await deleting


async def test_a_topic_whose_namespace_look_ups_do_not_find_can_still_be_deleted(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    bundles = [NAME.namespace]
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: bool(bundles)) as one:
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


async def test_an_unload_ends_when_topics_are_gone_that_were_coming_or_going_when_it_began(
    coordination: Coordination, ledgers: MemoryLedgers, settle: Settle
) -> None:
    ledgers.is_prompt = False
    going, coming = NAME, TopicName.parse("persistent://t/n/coming")
    bundles, may_load = [NAME.namespace], asyncio.Event()
    may_load.set()

    async def policies(_: NamespaceName) -> Policies:
        await may_load.wait()
        return Policies()

    def owns(_: TopicName) -> bool:
        return bool(bundles)

    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory, SimulatedClock(), owns=owns, policies=resolver_over(factory, policies)
    ) as one:
        topic = await one.get(going, create=True)
        topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
        may_load.clear()
        closing = asyncio.ensure_future(one.unload(going))
        loading = asyncio.ensure_future(one.get(coming, create=True))
        await settle()
        assert not closing.done()
        bundles.clear()
        unloading = asyncio.ensure_future(one.unload_where(lambda _: True))
        await settle()
        assert not unloading.done(), "one is being closed, one is being loaded"
        ledgers.writers[0].confirm()
        await closing
        await settle()
        assert not unloading.done(), "one is being loaded"
        may_load.set()
        await unloading
        with pytest.raises(ServiceNotReady):
            await loading
        assert all(each.is_closed for each in ledgers.writers)


async def test_a_load_that_did_not_begin_before_the_directory_closed_fails(
    coordination: Coordination, ledgers: MemoryLedgers, settle: Settle
) -> None:
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as one:
        loading = asyncio.ensure_future(one.get(NAME, create=True))
        await asyncio.sleep(0)
    await settle()
    assert loading.done()
    with pytest.raises(ServiceNotReady):
        await loading
