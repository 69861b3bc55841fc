"""Proves, over many seeds, that a topic has one history of schemas, whichever brokers its clients
and operators come to at the same time, while bookies, brokers and ZooKeeper fail.

A schema that was let in is found by its version, and by each message that was sent with it, until
it is deleted; none comes behind one that it may not follow; versions are numbered one by one. Of a
topic whose schemas are all deleted for good nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.clients.errands import again
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.topics.schemas import PARTITIONS, Orders, Registries, Scrapped, strive

from geminga import AutoProduceSchema, Client
from geminga_broker.schemas.storage import SchemaStorage, StoredSchemas
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.topics.schemas import SchemaInfo
from geminga_runtime.coordination import ANY_VERSION
from geminga_scenarios.cluster import SHORT_FAULTS, Cluster, Shape, Sizes
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
ORDERS = TopicName.parse("persistent://public/default/orders")
SCRAPPED = TopicName.parse("persistent://public/scrapped/orders")
PLAIN = "persistent://public/default/plain"
CLIENTS = ("client", "other-client")
SHAPES = (Shape(brokers=2), Shape(brokers=3), Shape(3, 2, Sizes(2, 2, 2)))
# Each of those who do something does it so often, in about so many seconds.
DEEDS = 8
LIVE_S = 5.0
FAULTY_S = 15.0
STRIFE_SHARE = 0.5
TIME_LIMIT_S = 1500.0


async def again_and_again(deeds: Sequence[Callable[[], Awaitable[object]]], chance: Random) -> None:
    """Do these in an order of chance, each once, with pauses."""
    for deed in chance.sample(deeds, len(deeds)):
        await asyncio.sleep(chance.random() * 2 * LIVE_S / len(deeds))
        await deed()


async def send_what_fits(client: Client) -> None:
    """A topic without a schema takes what a client sends that has whichever schema the topic has,
    and then has none."""
    opening = partial(client.producer, PLAIN, schema=AutoProduceSchema(), send_timeout_s=None)
    producer = await again(opening)
    await producer.send(b"plain")
    await producer.close()
    if (info := await again(partial(client.schema, PLAIN))) is not None:
        raise InvariantViolated(f"a topic without a schema has {info}")


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> tuple[int, int]:
    """One story: how many messages were stored, and how many schemas refused."""
    registries = Registries(cluster, chance)
    orders, scrapped = Orders(registries, ORDERS), Scrapped(registries, SCRAPPED)
    async with cluster.client(CLIENTS[0]) as client, cluster.client(CLIENTS[1]) as other:
        for partition in range(PARTITIONS):  # whose messages are kept
            name = str(ORDERS.partition(partition))
            await again(partial(client.consumer, name, "keeper", initial_position="earliest"))
        work = [
            again_and_again([partial(orders.send, each)] * DEEDS, chance)
            for each in (client, other)
        ]
        work += [
            again_and_again([partial(orders.look, other)] * DEEDS, chance),
            again_and_again([orders.race] * (DEEDS // 2), chance),
            again_and_again([orders.delete] * chance.randrange(3), chance),
            again_and_again([scrapped.upload] * DEEDS + [scrapped.look] * DEEDS, chance),
            again_and_again([scrapped.scrap] * 3, chance),
        ]
        if chance.random() < STRIFE_SHARE:
            work += [
                again_and_again([partial(strive, cluster, topic, act, chance)], chance)
                for topic, act in ((ORDERS, orders.upload), (SCRAPPED, scrapped.scrap))
            ]
        tasks = [asyncio.create_task(each) for each in work]
        victims = [*cluster.storage.bookies, *cluster.brokers]
        async with FaultInjector(cluster.world, menu, victims):
            await asyncio.wait(tasks, timeout=FAULTY_S)
        await asyncio.gather(*tasks)
        await send_what_fits(other)
        if chance.randrange(2):
            cluster.restart_brokers()
        await scrapped.finish(client)
        return await orders.finish(client), orders.refusals


async def story(menu: FaultMenu, shape: Shape, ledgers: LedgerConfig) -> tuple[int, int]:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers)
        await cluster.open()
        async with world.host("setup").coordination() as setup:
            await PartitionedTopics(setup).create(ORDERS, PARTITIONS)
        await cluster.create_namespace(NamespaceName("public", "scrapped"), Policies())
        hosts = [world.host(name) for name in CLIENTS]
        for host in hosts:
            host.start(lambda _: asyncio.Event().wait())
        told = await hosts[0].run(live_through(cluster, menu, world.loop.stream("story")))
        raise_loop_failures(world)
    return told


def run(seed: int, *, record: bool = False) -> Outcome[tuple[int, int]]:
    """The story of one seed, which also chooses the cluster and what may go wrong in it."""
    random = Random(seed)
    menu = with_bad_disks(SHORT_FAULTS.drawn(random), random)
    told = partial(story, menu, random.choice(SHAPES), patience(menu, random))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("schemas", SEEDS_A_TEST))
def test_a_topic_has_one_history_of_schemas(first: int) -> None:
    told = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert sum(stored for stored, _ in told) > SEEDS_A_TEST
    assert sum(refused for _, refused in told) > SEEDS_A_TEST


def store_over_what_came_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Of two versions that two brokers store at the same time, one is lost."""
    honest = SchemaStorage.append

    async def append(
        storage: SchemaStorage, present: StoredSchemas, info: SchemaInfo, digest: bytes
    ) -> int:
        if present.locator is not None:
            present = replace(present, node_version=ANY_VERSION)
        return await honest(storage, present, info, digest)

    patch.setattr(SchemaStorage, "append", append)


def judge_by_no_other(patch: pytest.MonkeyPatch) -> None:
    """What a topic has says nothing of what may follow."""
    patch.setattr("geminga_broker.schemas.registry.check_following", lambda *_: None)


def leave_what_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """Versions from before a deletion are there behind it."""
    patch.setattr(
        "geminga_broker.schemas.registry.live",
        lambda stored: [each for each in stored.versions if not each.info.is_deleted],
    )


@pytest.mark.parametrize(
    "plant", [store_over_what_came_meanwhile, judge_by_no_other, leave_what_is_deleted]
)
def test_a_planted_bug_is_found_by_the_history(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug
