"""Proves, over many seeds, that no topic ever has two owners while brokers are killed, cut off from
ZooKeeper, and have their bundles split and unloaded; that every topic has one in the end; and that
clients which follow them lose nothing.

What a broker says of itself is looked at every few milliseconds, as by an observer of all brokers
at once. Left out are brokers that stand still, and those that hear nothing of ZooKeeper: they know
that another may have what they own, and bookies fence them (the story of takeovers), so that what
they confirm is in the log that all read in the end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from tests.simulation.cluster import Cluster, Shape
from tests.simulation.planted import Plant, found_by
from tests.simulation.seeds import first_seeds
from tests.simulation.traffic import (
    LOG_TOPIC,
    MESSAGES,
    PRODUCERS,
    QUEUE_TOPIC,
    SHARED,
    SUBSCRIPTION,
    Told,
    check_log,
    publish,
    publish_end,
    read_all,
    receive_the_rest,
)
from tests.simulation.verdicts import raise_loop_failures, results

from geminga_broker.broker import Broker
from geminga_broker.ownership.owned_bundles import OwnedBundles
from geminga_broker.ownership.split import split_boundaries
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.faults import FaultInjector, FaultMenu
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
SHAPE = Shape(brokers=3)
TOPICS = [TopicName.parse(name) for name in (LOG_TOPIC, QUEUE_TOPIC)] + [
    TopicName.parse(f"persistent://public/default/idle-{number}") for number in range(8)
]
CHANGES = 80
SEND_S = 20.0
LOOK_S = 0.005
FAULTY_S = 15.0
TIME_LIMIT_S = 900.0
# A session ends six seconds after its last sign of life: partitions are longer, some of them.
MENU = FaultMenu(
    kill_rate=0.3,
    partition_rate=1.0,
    session_loss_rate=0.3,
    reset_rate=0.3,
    down_s_max=8.0,
    partition_s_max=15.0,
    coordination=CoordinationConditions(delay_s_max=0.02, loss_probability=0.02),
)


async def observe(cluster: Cluster) -> None:
    """Raise ``InvariantViolated`` when two running brokers are certain to serve one topic."""
    while True:
        serving = cluster.serving()
        for topic in TOPICS:
            owners = [
                broker.address.broker_id
                for broker in serving
                if broker.ownership.is_certain and broker.ownership.owns(topic)
            ]
            if len(owners) > 1:
                raise InvariantViolated(f"{topic} has the owners {', '.join(owners)}")
        await asyncio.sleep(LOOK_S)


async def change(broker: Broker, chance: Random) -> None:
    """Split, unload or look up some bundle of this broker's."""
    ownership, topic = broker.ownership, chance.choice(TOPICS)
    bundle = await ownership.bundle_of(topic)
    what = chance.randrange(8)
    if what > 1:
        await ownership.owner(topic, authoritative=bool(chance.randrange(2)))
    elif what:
        await ownership.unload(bundle)
    else:
        cuts = split_boundaries(bundle, "range_equally_divide", hashes=[], positions=[])
        await ownership.split(bundle, cuts)


async def change_again_and_again(cluster: Cluster, chance: Random) -> None:
    for _ in range(CHANGES):
        await asyncio.sleep(chance.random() * SEND_S / CHANGES * 2)
        with suppress(GemingaError, HostCrashed):  # most are not that broker's to change
            await cluster.do(chance.choice(cluster.brokers), partial(change, chance=chance))


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> int:
    """One story; how many messages were stored."""
    log = Told(LOG_TOPIC)
    observing = asyncio.create_task(observe(cluster))
    async with cluster.client("client") as client:
        async with await client.consumer(LOG_TOPIC, SUBSCRIPTION, **SHARED):
            pass  # from now on everything is kept for it
        async with FaultInjector(cluster.world, menu, cluster.brokers):
            changing = asyncio.create_task(change_again_and_again(cluster, chance))
            publishing = [
                asyncio.create_task(publish(client, log, name, SEND_S)) for name in PRODUCERS
            ]
            await changing
            await asyncio.wait(publishing, timeout=FAULTY_S)
        await asyncio.gather(*publishing)
        await publish_end(client, log)
        await read_all(client, log)
        await receive_the_rest(client, log, SHARED)
        for topic in TOPICS:  # each has an owner again, whichever broker is asked
            async with await client.producer(str(topic)):
                pass
    if observing.done():  # which only a violation ends
        observing.result()
    observing.cancel()
    check_log(log)
    return len(log.stored)


async def story(menu: FaultMenu) -> int:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, SHAPE)
        await cluster.open()
        client = world.host("client")
        client.start(lambda _: asyncio.Event().wait())
        stored = await client.run(live_through(cluster, menu, world.loop.stream("story")))
        raise_loop_failures(world)
    return stored


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses what goes wrong."""
    menu = replace(MENU.drawn(Random(seed)), coordination=MENU.coordination)
    return simulate(seed, partial(story, menu), time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("many brokers", SEEDS_A_TEST))
def test_no_topic_has_two_owners(first: int) -> None:
    stored = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert sum(stored) > SEEDS_A_TEST * MESSAGES, "of the two times so many that were sent"


def keep_what_a_lost_session_had(patch: pytest.MonkeyPatch) -> None:
    """A broker whose session is over goes on as if it owned its bundles (upstream's #24478)."""

    def keep(owned: OwnedBundles) -> None:
        del owned

    patch.setattr(OwnedBundles, "_give_up_all", keep)


@pytest.mark.parametrize("plant", [keep_what_a_lost_session_had])
def test_a_planted_bug_is_found_by_the_observer(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug


def test_a_seed_repeats() -> None:
    assert run(3) == run(3)
