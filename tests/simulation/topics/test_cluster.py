"""Proves, over many seeds, that a cluster under faults loses nothing it acknowledged, keeps the
order of each producer, and forgets no acknowledgement it confirmed, holes included.

One to five bookies, one or two brokers. Bookies and brokers crash, are killed, stand still, lose
their sessions; disks fail and fill up; links break; the power goes everywhere at once; a bookie
dies for good; a broker stands still until another has its topics, and then goes on. Then all faults
end, every broker starts anew, and all is read.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts, until_trimmed
from tests.simulation.bugs.planted import (
    Plant,
    answer_before_the_sync,
    confirm_a_copy_early,
    confirm_acknowledgements_early,
    found_by,
    name_a_last_message_of_before,
)
from tests.simulation.bugs.planted_histories import (
    forget_single_acknowledgements,
    send_again_what_lies_between,
)
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
    Told,
    ask_for_the_last,
    check_log,
    check_queue,
    pass_by,
    publish,
    publish_end,
    read_all,
    receive_the_rest,
    settle_all,
    settle_some,
    subscribe,
    take_in,
    until_delivered,
)

from geminga_ledger import LedgerConfig
from geminga_scenarios.cluster import Cluster, Shape, Sizes
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

# A process killed in the simulator is thrown away in the middle of its work; Python then tells of
# every ``finally`` in it that would have awaited something.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# So slow that crashes come within a sync often.
SLOW_DISK = DiskConditions(sync_s_min=0.005, sync_s_max=0.05, torn_probability=0.9)
# What planted bugs are looked for under: hosts crash twice a second, and disks are slow; or
# connections break three times a second.
CRASHES = FaultMenu(crash_rate=2.0, down_s_max=0.5, disk=SLOW_DISK)
RESETS = FaultMenu(reset_rate=3.0)
SEEDS_A_TEST = 10
SEND_S = 5.0
# Faults go on while messages are sent, and so long at the most.
FAULTY_S = 15.0
DOWN_S_MAX = 1.0
SETTLERS = 2
# In so many seeds the story waits until brokers have deleted what is needed no more.
TRIMMED_SHARE = 0.5
# The last messages are acknowledged within so long.
ACKNOWLEDGED_S = 0.2
# A broker that stands still for so long has lost its topics to another when it goes on.
FREEZE_S_MIN, FREEZE_S_MAX = 14.0, 22.0
CLIENT, OTHER_CLIENT = "client", "other-client"
# Those who pass by ask much: on a connection of their own, so that it is not they who find out that
# another's went dark.
PASSERS = "passers"
TIME_LIMIT_S = 900.0
SHORT_FAULTS = replace(FULL_MENU, down_s_max=DOWN_S_MAX, pause_s_max=1.5, partition_s_max=1.5)
SHAPES = (
    Shape(),
    Shape(4, 1, Sizes(3, 3, 2)),
    Shape(4, 2, Sizes(3, 3, 2)),
    Shape(4, 2, Sizes(3, 3, 2), recovers=True),
    Shape(5, 2, Sizes(4, 3, 2)),
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    stored: int
    settled: int
    faults: int


class Mischief:
    """What happens besides the menu: a bookie dies for good, the power goes everywhere at once."""

    def __init__(self, cluster: Cluster, chance: Random) -> None:
        self._storage = cluster.storage
        self._brokers = cluster.brokers
        self._network = cluster.world.network
        self._chance = chance
        bookies = cluster.storage.bookies
        is_spare = len(bookies) > cluster.shape.sizes.ensemble
        may_die = is_spare and chance.random() < 0.5
        self._doomed = bookies[0] if may_die else None
        self.victims = [
            *(bookie for bookie in bookies if bookie is not self._doomed),
            *cluster.brokers,
        ]
        self._cuts = chance.choice((0, 0, 1, 2))
        self._freezes = chance.choice((0, 1)) if len(cluster.brokers) > 1 else 0

    async def go_on(self) -> None:
        """Do it, at moments while messages are sent."""
        for _ in range(self._freezes):
            await asyncio.sleep(self._chance.random() * SEND_S / 2)
            self._freeze(self._chance.choice(self._brokers))
        for _ in range(self._cuts):
            await asyncio.sleep(self._chance.random() * SEND_S / 2)
            self._storage.cut_power(self._chance.random() * DOWN_S_MAX)
        await asyncio.sleep(self._chance.random() * SEND_S)
        if self._doomed is not None:
            self._storage.lose(self._doomed)

    def _freeze(self, broker: Host) -> None:
        """Let a broker stand still until another broker, which one client finds, has its topics.

        The other client's messages wait for the first broker to go on.
        """
        broker.pause(self._chance.uniform(FREEZE_S_MIN, FREEZE_S_MAX))
        for stream in self._network.streams():
            if (stream.host, stream.peer.host) == (CLIENT, broker.name):
                self._network.reset(stream)


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> Summary:
    """One story: faults while messages flow, then calm, then brokers that start anew."""
    may_repeat = cluster.has_former_owner
    log, queue = Told(LOG_TOPIC, may_repeat=may_repeat), Told(QUEUE_TOPIC, may_repeat=may_repeat)
    mischief = Mischief(cluster, chance)
    injector = FaultInjector(cluster.world, menu, mischief.victims)
    async with (
        cluster.client(CLIENT) as client,
        cluster.client(OTHER_CLIENT) as other,
        cluster.client(PASSERS) as passers,
        asyncio.TaskGroup() as tasks,
    ):
        async with AsyncExitStack() as faults:
            # Half of the topics and subscriptions are made under faults too.
            is_early = chance.random() < 0.5
            if is_early:
                await faults.enter_async_context(injector)
            # What comes before the first subscription is not kept.
            shared = await subscribe(client, LOG_TOPIC, SHARED)
            failover = await subscribe(client, QUEUE_TOPIC, FAILOVER)
            settling = [
                tasks.create_task(take_in(shared, log)),
                tasks.create_task(take_in(failover, queue)),
                # What one acknowledges while the other's is being written is not written yet.
                *(tasks.create_task(settle_some(shared, log)) for _ in range(SETTLERS)),
                tasks.create_task(ask_for_the_last(shared, log)),
                tasks.create_task(ask_for_the_last(failover, queue)),
                tasks.create_task(settle_all(failover, queue)),
            ]
            if not is_early:
                await faults.enter_async_context(injector)
            harm = tasks.create_task(mischief.go_on())
            passing = [
                tasks.create_task(pass_by(passers, topic, Random(chance.random())))
                for topic in chance.choice(((), (LOG_TOPIC,), (LOG_TOPIC, QUEUE_TOPIC)))
            ]
            publishing = [
                tasks.create_task(publish(each, told, name, SEND_S))
                for told in (log, queue)
                for each, name in zip((client, other), PRODUCERS, strict=True)
            ]
            await asyncio.wait(publishing, timeout=FAULTY_S)
            await harm
            for task in passing:
                task.cancel()
        await asyncio.wait(publishing)
        await settle_down(cluster, chance, log, queue)
        # In the middle of the last acknowledgements, or soon after: nothing but what was confirmed
        # by then is settled.
        await asyncio.sleep(chance.random() * ACKNOWLEDGED_S)
        cluster.restart_brokers()
        for task in settling:
            task.cancel()
    await look_back(cluster, log, queue)
    return Summary(
        len(log.stored) + len(queue.stored),
        len(log.settled) + len(queue.settled),
        len(cluster.world.events),
    )


async def settle_down(cluster: Cluster, chance: Random, *told: Told) -> None:
    """Return when what was stored is delivered, and, in some seeds, what is not needed deleted."""
    for each in told:
        await until_delivered(each)
    await cluster.storage.check_all_serve()
    if chance.random() < TRIMMED_SHARE:
        await until_trimmed(cluster)


async def look_back(cluster: Cluster, log: Told, queue: Told) -> None:
    """Read everything from the brokers that started anew, and hold it against what was told."""
    async with cluster.client(CLIENT) as client:
        await asyncio.gather(publish_end(client, log), publish_end(client, queue))
        await read_all(client, log)
        await asyncio.gather(
            receive_the_rest(client, log, SHARED), receive_the_rest(client, queue, FAILOVER)
        )
    check_log(log)
    check_queue(queue)


async def story(menu: FaultMenu, shape: Shape, ledgers: LedgerConfig) -> Summary:
    """``live_through`` in a world of its own; raises what the client's process ended by."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers)
        histories = listen(cluster)
        await cluster.open()
        chance = world.loop.stream("story")
        client, *others = map(world.host, (CLIENT, OTHER_CLIENT, PASSERS))
        for host in (client, *others):
            host.start(lambda _: asyncio.Event().wait())
        try:
            summary = await client.run(live_through(cluster, menu, chance))
        except ExceptionGroup as group:  # of the story's tasks the first that failed tells why
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    return summary


def run(
    seed: int,
    *,
    shape: Shape | None = None,
    menu: FaultMenu | None = None,
    record: bool = False,
) -> Outcome[Summary]:
    """The story of one seed, which also chooses the cluster and what may go wrong in it."""
    random = Random(seed)
    full = replace(SHORT_FAULTS, hosts_down_max=random.choice((1, 1, 2)))
    drawn = full.drawn(random)
    drawn = with_bad_disks(drawn, random)
    chosen = random.choice(SHAPES)
    return simulate(
        seed,
        partial(story, menu or drawn, shape or chosen, patience(drawn, random)),
        time_limit_s=TIME_LIMIT_S,
        record=record,
    )


@pytest.mark.parametrize("first", first_seeds("cluster", SEEDS_A_TEST))
def test_a_cluster_under_faults_keeps_what_it_promised(first: int) -> None:
    stored = settled = 0
    for summary in results(run, range(first, first + SEEDS_A_TEST)):
        stored += summary.stored
        settled += summary.settled
    assert stored == SEEDS_A_TEST * MESSAGES * 4, "two producers each of two topics"
    assert settled > stored / 2


@pytest.mark.parametrize(
    ("plant", "shape", "menu"),
    [
        (answer_before_the_sync, Shape(), CRASHES),
        (confirm_a_copy_early, Shape(3, 1, Sizes(3, 2, 2)), CRASHES),
        (confirm_acknowledgements_early, Shape(), CRASHES),
        (name_a_last_message_of_before, Shape(), CRASHES),
        (forget_single_acknowledgements, Shape(), CRASHES),
        (send_again_what_lies_between, Shape(), RESETS),
    ],
)
def test_a_planted_bug_is_found_by_a_checker(
    plant: Plant, shape: Shape, menu: FaultMenu, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmed = partial(run, shape=shape, menu=menu)
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(harmed)
    harmed(seed)  # the same story under the same faults is clean without the bug
