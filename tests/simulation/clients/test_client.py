"""Proves, over many seeds, that a client's errand ends well whatever becomes of its connections:
each is cut at every command that a client sends or receives, just before it and just after.

An errand is also run while brokers are killed and stand still and links break or go dark, and
leaves nothing behind: no task, no stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts
from tests.simulation.bugs.planted import (
    Plant,
    forget_to_send_again,
    found_by,
    leave_connections_open,
)
from tests.simulation.bugs.planted_histories import forget_single_acknowledgements
from tests.simulation.clients.cut_links import Cut, CuttingNetwork, Moment, name_of
from tests.simulation.clients.errands import Errand
from tests.simulation.listened import listen
from tests.simulation.seeds import first_seeds
from tests.simulation.topics import once

from geminga import connect
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_scenarios.cluster import SHAPES, Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import ROUGH_NETWORK, FaultMenu
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
TIME_LIMIT_S = 3000.0
# Links and brokers: what bookies and ZooKeeper do to messages is told by other stories.
STORM = FaultMenu(
    kill_rate=0.1,
    pause_rate=0.2,
    reset_rate=0.5,
    half_open_rate=0.03,
    down_s_max=1.0,
    pause_s_max=1.5,
    network=ROUGH_NETWORK,
)
STORMY_CLIENTS = 5
# Both sides ping in that time.
PING_S = 35.0


class Errands:
    """Clients on hosts of their own, in one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.clients = 0

    async def run(self, cut: Cut | None = None, *, is_calm: bool = True) -> CuttingNetwork:
        """One client's errand, with a cut or without."""
        cluster, number = self._cluster, self.clients
        self.clients += 1
        host = cluster.world.host(f"client-{number:03}")
        host.start(lambda _: asyncio.Event().wait())
        network = CuttingNetwork(cluster.network_of(host), cut)
        is_idle = cut is None or cut.kind in (BaseCommand.PING, BaseCommand.PONG)
        errand = Errand(
            f"errand-{number:03}",
            self._unload,
            opens_at_once=is_calm,
            idle_s=PING_S if is_idle else 0.0,
        )

        async def work() -> None:
            async with connect(
                cluster.service_url, network=network, clock=host.clock, random=host.random
            ) as client:
                await errand.run(client)

        try:
            await host.run(work())
        except BaseException as error:
            error.add_note(f"{host.name}, cut {cut}")
            raise
        await asyncio.sleep(1.0)  # what was closed here is closed there, too
        self._check_nothing_is_left(host.name)
        return network

    async def _unload(self, topic: str) -> None:
        name = TopicName.parse(topic)
        await self._cluster.do_everywhere(lambda each: each.administration.unload_topic(name))

    def _check_nothing_is_left(self, host: str) -> None:
        world = self._cluster.world
        tasks = [each for each in world.loop.pending_tasks() if each.startswith(f"{host}: ")]
        streams = [each for each in world.network.streams(host) if not each.is_gone]
        if len(tasks) > 1 or streams:  # the process itself is one
            raise InvariantViolated(f"{host} leaves {tasks} and {len(streams)} streams")


async def cut_everywhere(cluster: Cluster, chance: Random) -> frozenset[str]:
    """One errand without a cut tells which commands there are; then two for each of them.

    Returns the ways and names of these commands.
    """
    errands = Errands(cluster)
    seen = (await errands.run()).seen
    cuts = [
        Cut(way, kind, moment, min(chance.choice((1, 1, 2, 3)), count))
        for (way, kind), count in sorted(seen.items(), key=str)
        for moment in Moment
    ]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(errands.run(cut)) for cut in cuts]
    for cut, done in zip(cuts, running, strict=True):
        if cut.occurrence == 1 and done.result().cut is not None:
            raise InvariantViolated(f"nothing was cut {cut}")
    return frozenset(f"{cut.way.value} {cut.name}" for cut in cuts)


async def live_through_storms(cluster: Cluster, chance: Random) -> frozenset[str]:
    """Errands of several clients while brokers and links fail, for as long as they take.

    Returns the ways and names of the commands they needed.
    """
    del chance
    errands = Errands(cluster)
    async with FaultInjector(cluster.world, STORM, cluster.brokers), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(errands.run(is_calm=False)) for _ in range(STORMY_CLIENTS)]
    seen = {each for done in running for each in done.result().seen}
    return frozenset(f"{way.value} {name_of(kind)}" for way, kind in seen)


async def story(
    tell: Callable[[Cluster, Random], Awaitable[frozenset[str]]], shape: Shape
) -> frozenset[str]:
    """``tell`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape)
        histories = listen(cluster)
        await cluster.open()
        await cluster.create_namespace(once.NAMESPACE, once.POLICIES)
        try:
            commands = await tell(cluster, world.loop.stream("story"))
        except ExceptionGroup as group:  # of the errands the first that failed tells why
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    return commands


def run(seed: int, *, is_stormy: bool = False, record: bool = False) -> Outcome[frozenset[str]]:
    """The story of one seed, which also chooses the cluster."""
    tell = live_through_storms if is_stormy else cut_everywhere
    shape = Random(seed).choice(SHAPES)
    return simulate(seed, partial(story, tell, shape), time_limit_s=TIME_LIMIT_S, record=record)


# Of those that brokers and clients send each other, those that need a fault or a wrong question
# (ERROR, SEND_ERROR), authentication or transactions are left out.
COMMANDS = {
    *("ACK", "CLOSE_CONSUMER", "CLOSE_PRODUCER", "CONNECT", "FLOW", "GET_LAST_MESSAGE_ID"),
    *("GET_SCHEMA", "GET_TOPICS_OF_NAMESPACE", "LOOKUP", "PARTITIONED_METADATA", "PING", "PONG"),
    *("PRODUCER", "REDELIVER_UNACKNOWLEDGED_MESSAGES", "SEEK", "SEND", "SUBSCRIBE", "UNSUBSCRIBE"),
    *("WATCH_TOPIC_LIST", "WATCH_TOPIC_LIST_CLOSE"),
}
ANSWERS = {
    *("ACK_RESPONSE", "ACTIVE_CONSUMER_CHANGE", "CLOSE_CONSUMER", "CLOSE_PRODUCER", "CONNECTED"),
    *("GET_LAST_MESSAGE_ID_RESPONSE", "GET_SCHEMA_RESPONSE", "GET_TOPICS_OF_NAMESPACE_RESPONSE"),
    *("LOOKUP_RESPONSE", "MESSAGE", "PARTITIONED_METADATA_RESPONSE", "PING", "PONG"),
    *("PRODUCER_SUCCESS", "SEND_RECEIPT", "SUCCESS", "WATCH_TOPIC_LIST_SUCCESS"),
    "WATCH_TOPIC_UPDATE",
}


@pytest.mark.parametrize("seed", first_seeds("client", 1))
def test_a_connection_may_break_at_every_command(seed: int) -> None:
    (cut_at,) = results(run, [seed])
    assert cut_at == {f"sent {each}" for each in COMMANDS} | {
        f"received {each}" for each in ANSWERS
    }


@pytest.mark.parametrize("first", first_seeds("client storms", SEEDS_A_TEST))
def test_a_client_lives_through_storms_of_brokers_and_links(first: int) -> None:
    seeds = range(first, first + SEEDS_A_TEST)
    for commands in results(partial(run, is_stormy=True), seeds):
        assert {"sent SEEK", "sent ACK", "received WATCH_TOPIC_UPDATE"} <= commands


@pytest.mark.parametrize(
    "plant", [forget_to_send_again, leave_connections_open, forget_single_acknowledgements]
)
def test_a_planted_bug_is_found_by_a_checker(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    tell = partial(run, is_stormy=True)
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(tell)
    tell(seed)  # the same story is clean without the bug
