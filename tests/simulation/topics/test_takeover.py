"""Proves, over many seeds, that topics which change hands again and again lose nothing, while the
broker that had them still runs and does not know yet that it has them no longer.

Sessions with ZooKeeper are ended by the server, and their brokers learn of it late; the clients'
connections break at that moment, so that they find the next owner at once. Bundles are unloaded in
good order, too. Bookies answer slowly, so that loading a topic takes its time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts
from tests.simulation.bugs.planted import (
    Plant,
    found_by,
    let_the_last_owner_write_on,
    name_the_ledger_before,
)
from tests.simulation.bugs.planted_histories import answer_from_a_stale_cache
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.listened import listen
from tests.simulation.seeds import first_seeds
from tests.simulation.topics.traffic import (
    FAILOVER,
    LOG_TOPIC,
    MESSAGES,
    PRODUCERS,
    QUEUE_TOPIC,
    SHARED,
    SUBSCRIPTION,
    Told,
    check_log,
    check_queue,
    pass_by,
    publish,
    publish_end,
    read_all,
    receive_the_rest,
    settle_all,
    settle_some,
    take_in,
    until_delivered,
)

from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster, Shape, Sizes
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import CoordinationConditions, DiskConditions
from geminga_simulation.errors import HostCrashed
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
SHAPES = (Shape(brokers=2), Shape(brokers=3), Shape(3, 2, Sizes(3, 3, 2)))
CLIENTS = ("client", "other-client")
SEND_S = 5.0
FAULTY_S = 15.0
HAND_OVERS = 8
# Of so many hand-overs one is made in good order.
UNLOADED_EACH = 4
SLOW_CLOSE_S_MAX = 6.0
TIME_LIMIT_S = 900.0
# Loading a topic takes about as long as a broker takes to learn that its session is over.
SLOW_DISK = DiskConditions(access_s_max=0.05, uncached_probability=0.9, sync_s_max=0.02)
SLOW_ZOOKEEPER = CoordinationConditions(
    delay_s_max=0.05, loss_probability=0.1, write_loss_probability=0.1, late_probability=0.05
)
WEATHERS = (
    FaultMenu(disk=SLOW_DISK),
    FaultMenu(coordination=SLOW_ZOOKEEPER),
    FaultMenu(disk=SLOW_DISK, coordination=SLOW_ZOOKEEPER),
)


async def hand_over_again_and_again(cluster: Cluster, chance: Random) -> None:
    """Take all from some broker, again and again."""
    namespace = TopicName.parse(LOG_TOPIC).namespace
    for _ in range(HAND_OVERS):
        await asyncio.sleep(chance.random() * SEND_S / HAND_OVERS * 2)
        broker = chance.choice(cluster.brokers)
        if chance.randrange(UNLOADED_EACH):
            _end_session(cluster.world, broker)
        else:
            if chance.randrange(2):
                # What is closed waits for bookies, at times for longer than brokers take to close.
                bookie = chance.choice(cluster.storage.bookies)
                bookie.pause(chance.random() * SLOW_CLOSE_S_MAX)
            with suppress(GemingaError, HostCrashed):
                await cluster.do(broker, lambda each: each.ownership.unload_namespace(namespace))


def _end_session(world: World, broker: Host) -> None:
    """ZooKeeper ends the session of the broker; its clients look for another broker at once."""
    world.note(f"the sessions of {broker.name} end")
    for session in world.zookeeper.sessions(broker.name):
        world.zookeeper.expire(session)
    for stream in world.network.streams():
        if stream.host in CLIENTS and stream.peer.host == broker.name:
            world.network.reset(stream)


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> int:
    """One story; how many acknowledgements were confirmed."""
    log, queue = Told(LOG_TOPIC), Told(QUEUE_TOPIC)
    async with (
        cluster.client(CLIENTS[0]) as client,
        cluster.client(CLIENTS[1]) as other,
        asyncio.TaskGroup() as tasks,
    ):
        shared = await client.consumer(LOG_TOPIC, SUBSCRIPTION, **SHARED)
        failover = await other.consumer(QUEUE_TOPIC, SUBSCRIPTION, **FAILOVER)
        settling = [
            tasks.create_task(take_in(shared, log)),
            tasks.create_task(take_in(failover, queue)),
            tasks.create_task(settle_some(shared, log)),
            tasks.create_task(settle_all(failover, queue)),
        ]
        async with FaultInjector(cluster.world, menu, []):
            changing = tasks.create_task(hand_over_again_and_again(cluster, chance))
            passing = tasks.create_task(pass_by(other, LOG_TOPIC, Random(chance.random())))
            publishing = [
                tasks.create_task(publish(each, told, name, SEND_S))
                for told in (log, queue)
                for each, name in zip((client, other), PRODUCERS, strict=True)
            ]
            await changing
            await asyncio.wait(publishing, timeout=FAULTY_S)
            passing.cancel()
        await asyncio.wait(publishing)
        await until_delivered(log)
        await until_delivered(queue)
        for task in settling:
            task.cancel()
    cluster.restart_brokers()
    async with cluster.client(CLIENTS[0]) as client:
        await asyncio.gather(publish_end(client, log), publish_end(client, queue))
        await read_all(client, log)
        await asyncio.gather(
            receive_the_rest(client, log, SHARED), receive_the_rest(client, queue, FAILOVER)
        )
    check_log(log)
    check_queue(queue)
    return len(log.settled) + len(queue.settled)


async def story(menu: FaultMenu, shape: Shape, ledgers: LedgerConfig) -> int:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers)
        histories = listen(cluster)
        await cluster.open()
        client, other = map(world.host, CLIENTS)
        for host in (client, other):
            host.start(lambda _: asyncio.Event().wait())
        try:
            settled = await client.run(live_through(cluster, menu, world.loop.stream("story")))
        except ExceptionGroup as group:  # of the story's tasks the first that failed tells why
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    return settled


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the cluster, how slow it is, and how patient."""
    random = Random(seed)
    menu = with_bad_disks(random.choice(WEATHERS), random)
    told = partial(story, menu, random.choice(SHAPES), patience(menu, random))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("takeover", SEEDS_A_TEST))
def test_a_topic_that_changes_hands_forgets_nothing(first: int) -> None:
    settled = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert sum(settled) > SEEDS_A_TEST * MESSAGES, "of the four times so many that were sent"


# The second one is rare: the seeds before the first that finds it are left out.
@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (let_the_last_owner_write_on, 0),
        (name_the_ledger_before, 110),
        (answer_from_a_stale_cache, 0),
    ],
)
def test_a_planted_bug_is_found_by_a_checker(
    plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run, first)
    run(seed)  # the same story is clean without the bug
