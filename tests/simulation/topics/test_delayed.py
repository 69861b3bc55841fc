"""Proves, over many seeds, that delayed messages come, and none of them early, though brokers hear
of every request that fails: ZooKeeper's answers get lost, whether or not what was asked for was
done, connections to bookies break, bookies are away for a moment. Brokers are killed now and then.

Elsewhere brokers are patient: what is over soon they never notice, so that what they do when they
give up is hardly ever done.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts
from tests.simulation.bugs.planted import (
    Plant,
    deliver_early,
    found_by,
    skip_segments_that_cannot_be_read,
)
from tests.simulation.harm import with_bad_disks
from tests.simulation.listened import listen
from tests.simulation.seeds import first_seeds
from tests.simulation.topics.delayed import (
    DELAY_S_MAX,
    MESSAGES,
    OPTIONS,
    SUBSCRIPTION,
    TOPIC,
    Appointments,
    check_appointments,
    send_ahead,
    wait_for_them,
)

from geminga_runtime.clock import Clock
from geminga_scenarios.cluster import IMPATIENT, Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
SHAPES = (Shape(), Shape(brokers=2))
# While messages become due; then all is well, and what is left comes at once.
FAULTY_S = DELAY_S_MAX + 5.0
DONE_S_MAX = 200.0
LOOK_S = 0.1
RESTARTS_MAX = 2
TIME_LIMIT_S = 900.0
MENUS = (
    FaultMenu(coordination=CoordinationConditions(loss_probability=0.1, reconnect_s_max=0.1)),
    FaultMenu(reset_rate=5.0, kill_rate=0.5, down_s_max=0.2),
    FaultMenu(
        reset_rate=2.0,
        coordination=CoordinationConditions(loss_probability=0.05, reconnect_s_max=0.1),
    ),
)


async def live_through(
    cluster: Cluster, menu: FaultMenu, clock: Clock, chance: Random
) -> Appointments:
    """One story: send messages ahead, take them when they come, while much fails."""
    appointments = Appointments()
    loop = asyncio.get_running_loop()
    async with cluster.client("client") as client, asyncio.TaskGroup() as tasks:
        async with await client.consumer(TOPIC, SUBSCRIPTION, **OPTIONS):
            pass
        taking = tasks.create_task(wait_for_them(client, appointments, clock))
        async with FaultInjector(cluster.world, menu, cluster.storage.bookies):
            end_s = loop.time() + FAULTY_S
            sending = tasks.create_task(send_ahead(client, appointments, clock, chance))
            for _ in range(chance.randint(0, RESTARTS_MAX)):
                await asyncio.sleep(chance.random() * FAULTY_S / RESTARTS_MAX)
                cluster.restart_brokers()
            await asyncio.sleep(end_s - loop.time())
        await sending
        end_s = loop.time() + DONE_S_MAX
        while not appointments.is_done and loop.time() < end_s:  # noqa: ASYNC110 -- calm times
            await asyncio.sleep(LOOK_S)
        taking.cancel()
    return appointments


async def story(menu: FaultMenu, shape: Shape) -> int:
    """``live_through`` in a world of its own, and its checks; how many messages came."""
    async with World() as world:
        cluster = Cluster(world, shape, IMPATIENT, acknowledges_all=True)
        histories = listen(cluster)
        await cluster.open()
        client = world.host("client")
        client.start(lambda _: asyncio.Event().wait())
        try:
            told = await client.run(
                live_through(cluster, menu, client.clock, world.loop.stream("story"))
            )
        except ExceptionGroup as group:  # of the story's tasks the first that failed tells why
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    check_appointments(told, clocks_jump=False)
    return len(told.delivered)


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the cluster and what fails."""
    random = Random(seed)
    menu = with_bad_disks(random.choice(MENUS), random)
    told = partial(story, menu, random.choice(SHAPES))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("delayed", SEEDS_A_TEST))
def test_delayed_messages_come_whatever_fails(first: int) -> None:
    assert list(results(run, range(first, first + SEEDS_A_TEST))) == [MESSAGES] * SEEDS_A_TEST


@pytest.mark.parametrize("plant", [skip_segments_that_cannot_be_read, deliver_early])
def test_a_planted_bug_is_found_by_a_checker(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug
