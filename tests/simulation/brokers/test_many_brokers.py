"""Proves, over many seeds, that no topic ever has two owners that confirm what is published, while
brokers are killed, cut off from ZooKeeper, and have their bundles split and unloaded, and while
ZooKeeper itself is away for longer than sessions live; that every topic has an owner in the end;
and that clients which follow them lose nothing, and get it in order.

What a broker says of itself is looked at every few milliseconds, as by an observer of all brokers
at once: one at most serves a topic, of those that are certain of what they own, and of those whose
session ZooKeeper keeps, certain or not. Left out are brokers that stand still, and those whose
session is over while they hear nothing of ZooKeeper: they know that another may have what they own,
and bookies fence them, so that what they confirm is in the log that all read in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from random import Random

import pytest
from tests.histories.client_histories import ClientHistories
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.bugs.planted_histories import (
    keep_what_a_lost_session_had,
    lead_on_without_a_session,
)
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.listened import listen, note_leaders
from tests.simulation.seeds import first_seeds
from tests.simulation.topics.traffic import (
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

from geminga_bookie.storage.ledgers import Ledger
from geminga_bookie.storage.storage import Storage as BookieStorage
from geminga_broker.broker import Broker
from geminga_broker.ownership.assignment.split import split_boundaries
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import ZOOKEEPER, World
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
# In a ledger that is not full soon, a broker that is cut off from ZooKeeper can write on.
SHAPES = (Shape(brokers=3), Shape(brokers=3, ledger_entries_max=1000))
TOPICS = [TopicName.parse(name) for name in (LOG_TOPIC, QUEUE_TOPIC)] + [
    TopicName.parse(f"persistent://public/default/idle-{number}") for number in range(8)
]
CLIENTS = ("client", "other-client")
CHANGES = 80
# With each so many changes all brokers split a bundle at once.
SPLITS_EACH = 40
SEND_S = 20.0
LOOK_S = 0.005
# Of so many looks one is for the leader.
LEADERS_EACH = 20
FAULTY_S = 15.0
PRESENT_S_MAX = 10.0
AWAY_SESSIONS_MAX = 3
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


async def observe(cluster: Cluster, histories: ClientHistories) -> None:
    """Raise ``InvariantViolated`` when two running brokers serve one topic, and both have a live
    session or are certain of theirs. Note now and then which broker leads."""
    for look in count():
        if look % LEADERS_EACH == 0:
            note_leaders(cluster, histories)
        serving = [
            broker
            for broker, has_session in cluster.serving()
            if has_session or broker.ownership.owned.is_certain
        ]
        for topic in TOPICS if share_hashes(serving) else ():
            owners = [
                broker.address.broker_id for broker in serving if broker.ownership.owns(topic)
            ]
            if len(owners) > 1:
                raise InvariantViolated(f"{topic} has the owners {', '.join(owners)}")
        await asyncio.sleep(LOOK_S)


def share_hashes(brokers: Sequence[Broker]) -> bool:
    """Whether bundles that these brokers own overlap: where none do, no topic has two owners.
    Asking for each topic at each look took 80 % of the time of this story."""
    owned = sorted(
        (bundle.lower, bundle.upper)
        for broker in brokers
        for bundle in broker.ownership.owned.generations
        if bundle.namespace == TOPICS[0].namespace
    )
    return any(lower < upper for (_, upper), (lower, _) in pairwise(owned))


async def change(broker: Broker, chance: Random) -> None:
    """Split, unload or look up some bundle of this broker's."""
    ownership, topic = broker.ownership, chance.choice(TOPICS)
    bundle = await ownership.rings.bundle_of(topic)
    what = chance.randrange(8)
    if what > 1:
        await ownership.owner(topic, authoritative=bool(chance.randrange(2)))
    elif what:
        await ownership.unload(bundle)
    else:
        cuts = split_boundaries(bundle, "range_equally_divide", hashes=[], positions=[])
        await ownership.split(bundle, cuts)


async def split_one(broker: Broker) -> None:
    """Split one of this broker's bundles, whichever it has."""
    namespace = TOPICS[0].namespace
    owned = sorted(
        (each for each in broker.ownership.owned.generations if each.namespace == namespace),
        key=str,
    )
    if owned:
        cuts = split_boundaries(owned[0], "range_equally_divide", hashes=[], positions=[])
        await broker.ownership.split(owned[0], cuts)


async def split_together(cluster: Cluster) -> None:
    """All brokers split a bundle at the same time: all of them write to one record."""

    async def split(broker: Host) -> None:
        with suppress(GemingaError, HostCrashed):
            await cluster.do(broker, split_one)

    await asyncio.gather(*map(split, cluster.brokers))


async def change_again_and_again(cluster: Cluster, chance: Random) -> None:
    for number in range(CHANGES):
        await asyncio.sleep(chance.random() * SEND_S / CHANGES * 2)
        if number % SPLITS_EACH == 0:
            await split_together(cluster)
        with suppress(GemingaError, HostCrashed):  # most are not that broker's to change
            await cluster.do(chance.choice(cluster.brokers), partial(change, chance=chance))


async def stay_away_again_and_again(cluster: Cluster, chance: Random) -> None:
    """ZooKeeper stands still or is restarted, or a broker alone, the one with the log if there is
    one, is cut off from it and from one of its two clients, each time for longer than a session
    lives. Never ends."""
    world = cluster.world
    while True:
        await asyncio.sleep(chance.random() * PRESENT_S_MAX)
        away_s = SESSION_TIMEOUT_S_DEFAULT * (1 + AWAY_SESSIONS_MAX * chance.random())
        if chance.randrange(2):
            world.note("zookeeper is away")
            world.zookeeper.go_away()
            try:
                await asyncio.sleep(away_s)
            finally:
                world.zookeeper.come_back(keeps_sessions=bool(chance.randrange(2)))
        else:
            owners = [each for each, _ in cluster.serving() if each.ownership.owns(TOPICS[0])]
            names = [each.address.broker_id.partition(":")[0] for each in owners]
            broker = chance.choice(names or [each.name for each in cluster.brokers])
            # The other client finds another broker, the first one stays.
            for end in (ZOOKEEPER, CLIENTS[1]):
                world.partition(broker, end)
            for stream in world.network.streams():
                if (stream.host, stream.peer.host) == (CLIENTS[1], broker):
                    world.network.reset(stream)
            try:
                await asyncio.sleep(away_s)
            finally:
                for end in (ZOOKEEPER, CLIENTS[1]):
                    world.heal(broker, end)


async def live_through(
    cluster: Cluster, histories: ClientHistories, menu: FaultMenu, chance: Random
) -> int:
    """One story; how many messages were stored."""
    log = Told(LOG_TOPIC)
    observing = asyncio.create_task(observe(cluster, histories))
    async with cluster.client(CLIENTS[0]) as client, cluster.client(CLIENTS[1]) as other:
        async with await client.consumer(LOG_TOPIC, SUBSCRIPTION, **SHARED):
            pass  # from now on everything is kept for it
        async with FaultInjector(cluster.world, menu, cluster.brokers):
            straying = asyncio.create_task(stay_away_again_and_again(cluster, chance))
            changing = asyncio.create_task(change_again_and_again(cluster, chance))
            publishing = [
                asyncio.create_task(publish(each, log, name, SEND_S))
                for each, name in zip((client, other), PRODUCERS, strict=True)
            ]
            await changing
            await asyncio.wait(publishing, timeout=FAULTY_S)
            straying.cancel()
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


async def story(menu: FaultMenu, shape: Shape, ledgers: LedgerConfig) -> int:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers)
        histories = listen(cluster)
        await cluster.open()
        client, other = map(world.host, CLIENTS)
        for host in (client, other):
            host.start(lambda _: asyncio.Event().wait())
        stored = await client.run(
            live_through(cluster, histories, menu, world.loop.stream("story"))
        )
        raise_loop_failures(world)
    histories.check()
    return stored


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses what goes wrong."""
    random = Random(seed)
    menu = with_bad_disks(replace(MENU.drawn(random), coordination=MENU.coordination), random)
    told = partial(story, menu, random.choice(SHAPES), patience(menu, random))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("many brokers", SEEDS_A_TEST))
def test_no_topic_has_two_owners(first: int) -> None:
    stored = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert sum(stored) > SEEDS_A_TEST * MESSAGES, "of the two times so many that were sent"


def fence_nothing(patch: pytest.MonkeyPatch) -> None:
    """Bookies take what a ledger's writer sends after another has recovered the ledger."""

    def look(storage: BookieStorage, ledger_id: int, master_key: bytes) -> Ledger:
        ledger = storage._open(ledger_id, master_key)
        ledger.is_fence_durable = True
        return ledger

    patch.setattr(BookieStorage, "fence", look)


# The seed from which on each is looked for: a search from 0 on takes half a minute for the second.
@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (keep_what_a_lost_session_had, 4),
        pytest.param(fence_nothing, 131, marks=pytest.mark.full),
        (lead_on_without_a_session, 0),
    ],
)
def test_a_planted_bug_is_found_by_the_observer_or_a_checker(
    plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run, first)
    run(seed)  # the same story is clean without the bug
