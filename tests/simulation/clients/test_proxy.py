"""Proves, over many seeds, that clients which reach only proxies do all that clients do, while
proxies, brokers and links fail; and that a client is never told that its subscription or its
producer's name is taken by what its dead proxy left behind.

An errand is that of ``test_client``, without a link from the client to any broker.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts
from tests.simulation.bugs.planted import found_by
from tests.simulation.clients.cut_links import name_of
from tests.simulation.clients.test_client import STORM, Errands
from tests.simulation.features.test_features import end_in_order
from tests.simulation.listened import listen
from tests.simulation.seeds import first_seeds
from tests.simulation.topics import once

from geminga_proxy.lookups import Lookups
from geminga_scenarios.cluster import Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
TIME_LIMIT_S = 3000.0
CLIENTS = 4
SHAPE = Shape(brokers=2, proxies=2)
# In so many seeds a proxy reaches no broker for a while.
ISOLATED_SHARE = 0.5
ISOLATED_AFTER_S_MAX, ISOLATED_S = 3.0, 35.0
CALM = FaultMenu(down_s_max=1.0)


async def isolate(cluster: Cluster, chance: Random) -> None:
    """Cut a proxy off from all brokers, for longer than it lets a question wait; it may be told to
    end meanwhile."""
    network, proxy = cluster.world.network, chance.choice(cluster.proxies)
    await asyncio.sleep(chance.random() * ISOLATED_AFTER_S_MAX)
    cluster.world.note(f"{proxy.name} reaches no broker")
    for broker in cluster.brokers:
        network.cut(proxy.name, broker.name)
    try:
        await asyncio.sleep(chance.random() * ISOLATED_S)
        if chance.randrange(2):
            await end_in_order(proxy)
            if not proxy.is_running:
                proxy.restart()
        await asyncio.sleep(ISOLATED_S)
    finally:
        for broker in cluster.brokers:
            network.heal(proxy.name, broker.name)


async def story(menu: FaultMenu) -> frozenset[str]:
    """Errands of several clients behind two proxies. Returns the ways and names of the commands
    they needed."""
    async with World() as world:
        cluster = Cluster(world, SHAPE)
        histories = listen(cluster)
        await cluster.open()
        await cluster.create_namespace(once.NAMESPACE, once.POLICIES)
        for number in range(CLIENTS):
            for broker in cluster.brokers:
                world.network.cut(f"client-{number:03}", broker.name)
        errands = Errands(cluster)
        try:
            async with (
                FaultInjector(world, menu, [*cluster.brokers, *cluster.proxies]),
                asyncio.TaskGroup() as tasks,
            ):
                running = [tasks.create_task(errands.run(is_calm=False)) for _ in range(CLIENTS)]
                chance = world.loop.stream("isolation")
                if chance.random() < ISOLATED_SHARE:
                    tasks.create_task(isolate(cluster, chance))
        except ExceptionGroup as group:  # of the errands the first that failed tells why
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    seen = {each for done in running for each in done.result().seen}
    return frozenset(f"{way.value} {name_of(kind)}" for way, kind in seen)


def run(seed: int, *, menu: FaultMenu = STORM, record: bool = False) -> Outcome[frozenset[str]]:
    """The story of one seed."""
    return simulate(seed, partial(story, menu), time_limit_s=TIME_LIMIT_S, record=record)


def test_through_a_proxy_clients_do_all_that_clients_do() -> None:
    (commands,) = results(partial(run, menu=CALM), [0])
    assert {"sent LOOKUP", "sent SEEK", "sent ACK", "received MESSAGE"} <= commands
    assert "sent WATCH_TOPIC_LIST" not in commands  # the proxy says in CONNECTED that it has none


@pytest.mark.parametrize("first", first_seeds("proxy", SEEDS_A_TEST))
def test_clients_behind_proxies_live_through_storms(first: int) -> None:
    seeds = range(first, first + SEEDS_A_TEST)
    for commands in results(run, seeds):
        assert {"sent SEEK", "sent ACK"} <= commands


def count_answers_alone_down(patch: pytest.MonkeyPatch) -> None:
    """Proxies count a question for ever as open when its client has gone."""
    honest = Lookups._answered

    def answered(lookups: Lookups, task: asyncio.Task[object]) -> None:
        if not task.cancelled():
            honest(lookups, task)

    patch.setattr(Lookups, "_answered", answered)


@pytest.mark.full  # it takes 7 s to find
def test_a_planted_bug_is_found_by_a_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        count_answers_alone_down(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug
