"""Proves that what workers read of functions and assignments is whole, whatever they missed while
they were cut off, and that a leader which was half made is in no worker's way.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.simulation.functions.test_functions_workers import (
    LOOK_S,
    NAMES,
    PATIENCE_S,
    SETTLE_S,
    TIME_LIMIT_S,
)

from geminga import AccessMode
from geminga_broker.admin.topics.stats import StatsQuery
from geminga_functions.cluster import keyed_log
from geminga_functions.cluster.keyed_log import KeyedLog
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.names import FunctionName
from geminga_functions.worker import function_log
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_scenarios.cluster import Cluster, Shape
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# The connection is given up, and the compaction is over by then.
COMPACTED_S = 90.0


async def removal_behind_a_compaction() -> None:
    """A worker is cut off while a function is removed and the log compacted."""
    async with World() as world:
        cluster = Cluster(world, Shape())
        await cluster.open()
        follower, broker = world.host("follower"), cluster.brokers[0]
        config = FunctionsWorkerConfig()
        topic = TopicName.parse(config.topic(config.function_metadata_topic_name))
        logs: list[KeyedLog[FunctionName, FunctionMetaData]] = []

        async def follow(_: object) -> None:
            async with cluster.client("follower") as client, function_log(client, config) as log:
                logs.append(log)
                await asyncio.Event().wait()

        async def remove() -> None:
            async with (
                cluster.client("leader") as client,
                await client.producer(str(topic), batching=None) as producer,
            ):
                for name in NAMES[:2]:
                    metadata = FunctionMetaData(version=1).SerializeToString()
                    await producer.send(metadata, key=str(name))
                follower.start(follow)
                while not logs or len(logs[0].records) < 2:  # noqa: ASYNC110 - another host
                    await asyncio.sleep(LOOK_S)
                world.partition("follower", broker.name)
                await producer.send(b"", key=str(NAMES[0]))
                await cluster.do(broker, lambda each: each.administration.compact_topic(topic))
                await asyncio.sleep(COMPACTED_S)
                world.heal("follower", broker.name)
                # Even if nothing more is ever written.
                async with asyncio.timeout(SETTLE_S):
                    while list(logs[0].records) != [NAMES[1]]:  # noqa: ASYNC110 - another host
                        await asyncio.sleep(LOOK_S)

        leader = world.host("leader")
        leader.start(lambda _: asyncio.Event().wait())
        await leader.run(remove())


def test_a_removal_that_a_compaction_dropped_meanwhile_is_noticed() -> None:
    simulate(0, removal_behind_a_compaction, time_limit_s=TIME_LIMIT_S)


async def half_made_producer() -> None:
    """The answer of the broker to a worker that takes a log for itself is lost for a while."""
    async with World() as world:
        cluster = Cluster(world, Shape())
        await cluster.open()
        broker = cluster.brokers[0]
        config = FunctionsWorkerConfig()
        topic = TopicName.parse(config.topic(config.function_metadata_topic_name))

        async def take() -> None:
            async with (
                cluster.client("leader") as client,
                function_log(client, config) as log,
                AsyncExitStack() as stack,
            ):
                world.network.cut(broker.name, "leader", is_one_way=True)
                with pytest.raises(TimeoutError):
                    await log.writer(stack, PATIENCE_S)
                world.network.heal(broker.name, "leader")
                # The half-made producer neither stands in the way nor stays behind.
                writer = await log.writer(stack, SETTLE_S)
                await writer.put(NAMES[0], FunctionMetaData(version=1).SerializeToString())
                serving = cluster.broker(broker)
                assert serving is not None
                stats = await serving.administration.topic_stats(topic, StatsQuery())
                assert len(stats["publishers"]) == 1

        leader = world.host("leader")
        leader.start(lambda _: asyncio.Event().wait())
        await leader.run(take())


def test_a_producer_that_was_made_too_late_stands_in_no_leaders_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The fence of the next leader would hide what the first attempt had left.
    monkeypatch.setattr(keyed_log, "LEADERS_ACCESS", AccessMode.EXCLUSIVE)
    simulate(0, half_made_producer, time_limit_s=TIME_LIMIT_S)
