"""Proves, over many seeds, that a reader reads everything and knows where the topic ends, whatever
becomes of the topic: it is unloaded again and again, alone or with its bundle, the brokers are
killed once, or brokers and bookies crash, are killed, stand still and are cut off.

Readers come while all that happens, and when all is published.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import (
    Plant,
    acknowledge_whole_ledgers,
    forget_to_send_on,
    found_by,
    keep_consumers_of_closed_topics,
)
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.topics.reading import (
    MESSAGES,
    TOPIC,
    Published,
    channels,
    check_read,
    publish,
    read_all,
    read_late,
    story,
)
from tests.simulation.topics.traffic import FROM_THE_FIRST, PRODUCERS, READER

from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import SHAPES, SHORT_FAULTS, Cluster
from geminga_scenarios.verdicts import results
from geminga_simulation.errors import HostCrashed
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.simulate import Outcome, simulate

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
UNLOADS = 12
READERS = 6
SEND_S = 6.0
FAULTY_S = 12.0
TIME_LIMIT_S = 1500.0
CALM = FaultMenu()


async def unload_again_and_again(cluster: Cluster, chance: Random) -> None:
    """Unload the topic at random moments, sometimes its bundle, which another broker may take."""
    name = TopicName.parse(TOPIC)
    for _ in range(UNLOADS):
        await asyncio.sleep(chance.random() * SEND_S / UNLOADS * 2)
        broker = chance.choice(cluster.brokers)
        with suppress(GemingaError, HostCrashed):
            if chance.randrange(4):
                await cluster.do(broker, lambda each: each.administration.unload_topic(name))
            else:
                await cluster.do(
                    broker, lambda each: each.ownership.unload_namespace(name.namespace)
                )


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> Published:
    """One story: publish and read while the topic moves; then some read when all is there."""
    published = Published(is_strict=menu is CALM or len(cluster.brokers) == 1)
    async with (
        cluster.client("client") as client,
        cluster.client("other-client") as other,
        channels(cluster, "client") as reading_here,
        channels(cluster, "other-client") as reading_there,
        asyncio.TaskGroup() as tasks,
    ):
        # A topic without a subscription keeps nothing.
        async with await client.consumer(TOPIC, READER, **FROM_THE_FIRST):
            pass
        clients = (client, other)
        reading_over = (reading_here, reading_there)
        unloading = tasks.create_task(unload_again_and_again(cluster, Random(chance.random())))
        async with FaultInjector(cluster.world, menu, [*cluster.storage.bookies, *cluster.brokers]):
            reading = [
                tasks.create_task(
                    read_late(
                        reading_over[each % 2],
                        published,
                        f"reader-{each}",
                        Random(chance.random()),
                        begin_s_max=SEND_S * 1.5,
                    )
                )
                for each in range(READERS)
            ]
            publishing = [
                tasks.create_task(publish(each, published, name, Random(chance.random())))
                for each, name in zip(clients, PRODUCERS, strict=True)
            ]
            if chance.randrange(2):
                await asyncio.sleep(chance.random() * SEND_S)
                cluster.restart_brokers()
            await asyncio.wait(publishing, timeout=FAULTY_S)
        await asyncio.wait(publishing)
        published.is_over = True
        last = [
            tasks.create_task(read_all(each, published, f"last-{number}", Random(chance.random())))
            for number, each in enumerate(reading_over)
        ]
        await asyncio.wait([*reading, *last, unloading])
    for each in (*reading, *last):
        check_read(published, each.result())
    return published


def run(seed: int, *, menu: FaultMenu | None = None, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the cluster and what may go wrong in it."""
    random = Random(seed)
    drawn = random.choice((CALM, with_bad_disks(SHORT_FAULTS.drawn(random), random)))
    shape = random.choice(SHAPES)
    told = partial(story, live_through, menu or drawn, shape, patience(drawn, random))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("reading", SEEDS_A_TEST))
def test_readers_read_everything_and_know_the_end(first: int) -> None:
    stored = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert stored == [MESSAGES * len(PRODUCERS)] * SEEDS_A_TEST


@pytest.mark.parametrize(
    "plant", [forget_to_send_on, keep_consumers_of_closed_topics, acknowledge_whole_ledgers]
)
def test_a_planted_bug_is_found_by_a_checker(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    tell = partial(run, menu=CALM)
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(tell)
    tell(seed)  # the same story is clean without the bug
