"""Proves, over many seeds, that those who read a topic compacted see the newest message of every
key, whenever the topic is compacted, by whichever broker, and whatever becomes of the broker.

Compactions are asked for again and again while messages flow; what they have passed is trimmed
away. Some read from the beginning meanwhile, others when all is published and compacted for the
last time: they get the newest messages and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import (
    Plant,
    compact_up_to_the_end,
    forget_the_former_compaction,
    found_by,
)
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.topics.reading import Published, channels, producer_of, read_all, story
from tests.simulation.topics.traffic import PRODUCERS

from geminga import Client
from geminga_broker.broker import Broker
from geminga_broker.compaction.report import CompactionStatus
from geminga_broker.compaction.topic_compactor import BEGUN_PROPERTY
from geminga_broker.errors import TopicFenced
from geminga_broker.managed_ledger.records.properties import set_property
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.ledgers.ledger_metadata import ledger_path
from geminga_protocol.records.topics.managed_ledger import managed_ledger_path
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import RESTART_S, SHAPES, SHORT_FAULTS, Cluster
from geminga_scenarios.verdicts import results
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.histories.checkers import check_nothing_invented
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.zookeeper.node_tree import Event

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
TOPIC = TopicName.parse("persistent://public/default/newest")
# Most keys have a few messages; the last of some come early, and are compacted several times.
KEYS = 20
MESSAGES = 60
BURST_MAX = 6
READERS = 3
SEND_S = 6.0
FAULTY_S = 12.0
# A topic of so few messages is compacted in a moment.
COMPACT_S_MAX = 0.6
# The broker that compacts is killed so often, and so soon after it has begun to write.
INTERRUPTED_EACH_S, INTERRUPTED_S_MAX = 0.7, 0.015
TAKEN_AWAY = 0.3
BEGUN_LOOK_S = 0.002
LOOK_S = 0.1
COMPACTED_S = 200.0
TIME_LIMIT_S = 1500.0
CALM = FaultMenu()


def _payload(producer: str, key: int, number: int) -> bytes:
    """Keys are a producer's own, so that its order says which message is the newest."""
    return f"{producer}/{key}/{number}".encode()


def _key(payload: bytes) -> str:
    return payload.decode().rpartition("/")[0]


async def publish(client: Client, published: Published, name: str, chance: Random) -> None:
    """Send messages of all keys in bursts, and wait for all receipts."""
    producer = await producer_of(client, published.topic, name)
    sent = published.sent[name] = []
    while len(sent) < MESSAGES:
        for _ in range(min(chance.randint(1, BURST_MAX), MESSAGES - len(sent))):
            await producer.ready()
            sent.append(_payload(name, chance.randrange(KEYS), len(sent)))
            on_sent = partial(published.receipt, sent[-1])
            producer.send_nowait(sent[-1], on_sent, key=_key(sent[-1]))
        await asyncio.sleep(chance.random() * SEND_S * BURST_MAX / MESSAGES)
    await producer.flush()


async def compact_again_and_again(cluster: Cluster, chance: Random) -> None:
    """Ask some broker for a compaction; most of the time it is the topic's, and none runs."""
    while True:
        await asyncio.sleep(chance.random() * COMPACT_S_MAX)
        broker = chance.choice(cluster.brokers)
        with suppress(GemingaError, HostCrashed):
            await cluster.do(broker, lambda each: each.administration.compact_topic(TOPIC))


async def interrupt(cluster: Cluster, chance: Random) -> None:
    """Kill the broker that compacts, again and again. The next one deletes the ledger that was
    begun, and gets no answer. Never ends."""
    zookeeper, begun = cluster.world.zookeeper, set[str]()

    def disconnect() -> None:
        for host in cluster.brokers:
            for session in zookeeper.sessions(host.name):
                session.cut_link()

    def changed(event: Event, path: str) -> None:
        if event is Event.DELETED and path in begun:
            zookeeper.loop.call_soon(disconnect, context=zookeeper.context)

    zookeeper.observers.append(changed)
    try:
        while True:
            await asyncio.sleep(chance.random() * 2 * INTERRUPTED_EACH_S)
            if chance.random() < TAKEN_AWAY:
                await take_away(cluster)
            host, ledger = await begun_at(cluster, begun)
            begun.add(ledger)
            await asyncio.sleep(chance.random() * INTERRUPTED_S_MAX)
            host.kill()
            await asyncio.sleep(RESTART_S)
            restart_those_killed(cluster)
    finally:
        zookeeper.observers.remove(changed)
        restart_those_killed(cluster)


async def take_away(cluster: Cluster) -> None:
    """Another process writes the record of the log of the topic. The owner finds out when it writes
    the record itself, and refuses to compact when it is asked just then."""
    zookeeper = cluster.world.zookeeper
    path = managed_ledger_path(TOPIC.managed_ledger_name)
    begun: list[Broker] = []

    async def write(broker: Broker) -> None:
        topic = await broker.administration.persistent_topic(TOPIC)
        zookeeper.put(path, zookeeper.tree.get(path)[0])
        try:
            await set_property(topic.managed_ledger, "written", "again")
        except TopicFenced:
            if broker.topics.loaded.get(TOPIC) is topic:
                await broker.administration.compact_topic(TOPIC)
                begun.append(broker)

    await cluster.do_everywhere(write)
    if begun:
        raise InvariantViolated("a log is compacted that is another broker's")


def restart_those_killed(cluster: Cluster) -> None:
    """All brokers run."""
    for host in cluster.brokers:
        if not host.is_running:
            host.restart()


async def begun_at(cluster: Cluster, known: Collection[str]) -> tuple[Host, str]:
    """A broker that has begun to write a compacted ledger which is not ``known``, and its node."""
    while True:
        for host in cluster.brokers:
            broker = cluster.broker(host)
            topic = None if broker is None else broker.topics.loaded.get(TOPIC)
            for cursor in [] if topic is None else topic.part(TopicCompaction).cursors():
                ledger_id = cursor.position_properties.get(BEGUN_PROPERTY)
                if ledger_id is not None and ledger_path(ledger_id) not in known:
                    return host, ledger_path(ledger_id)
        await asyncio.sleep(BEGUN_LOOK_S)


async def compact_once(cluster: Cluster) -> None:
    """Return when the topic is compacted up to what is its end now, by whichever broker."""
    statuses: list[CompactionStatus] = []

    async def compact(broker: Broker) -> None:
        await broker.administration.compact_topic(TOPIC)
        status = CompactionStatus.RUNNING
        while status is CompactionStatus.RUNNING:
            await asyncio.sleep(LOOK_S)
            status = (await broker.administration.compaction_report(TOPIC)).status
        statuses.append(status)

    async with asyncio.timeout(COMPACTED_S):
        while CompactionStatus.SUCCESS not in statuses:
            for broker in cluster.brokers:
                with suppress(GemingaError):
                    await cluster.do(broker, compact)
            await asyncio.sleep(LOOK_S)


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> Published:
    """One story: publish, compact and read; then some read what is left in the end."""
    is_strict = menu is CALM or len(cluster.brokers) == 1
    published = Published(is_strict, topic=str(TOPIC), is_compacted=True)
    async with (
        cluster.client("client") as client,
        cluster.client("other-client") as other,
        channels(cluster, "client") as reading_here,
        channels(cluster, "other-client") as reading_there,
        asyncio.TaskGroup() as tasks,
    ):
        clients = (client, other)
        readers = (reading_here, reading_there)
        # The first compaction keeps from then on what is not compacted yet.
        async with await producer_of(client, published.topic, "nobody"):
            await compact_once(cluster)
        compacting = tasks.create_task(compact_again_and_again(cluster, Random(chance.random())))
        async with FaultInjector(cluster.world, menu, [*cluster.storage.bookies, *cluster.brokers]):
            publishing = [
                tasks.create_task(publish(each, published, name, Random(chance.random())))
                for each, name in zip(clients, PRODUCERS, strict=True)
            ]
            reading = [
                tasks.create_task(
                    read_all(
                        readers[number % 2], published, f"reader-{number}", Random(chance.random())
                    )
                )
                for number in range(READERS)
            ]
            interrupting = asyncio.create_task(interrupt(cluster, Random(chance.random())))
            if menu is CALM:
                interrupting.cancel()
            await asyncio.wait(publishing, timeout=FAULTY_S)
            interrupting.cancel()
            with suppress(asyncio.CancelledError):
                await interrupting
        await asyncio.wait(publishing)
        published.is_over = True
        await asyncio.wait(reading)
        compacting.cancel()
        await compact_once(cluster)
        last = [
            await read_all(each, published, f"last-{number}", Random(chance.random()))
            for number, each in enumerate(readers)
        ]
    for each in reading:
        check_newest(published, each.result())
    for found in last:
        check_newest(published, found)
        if len(found) != len({_key(each) for each in found}):
            raise InvariantViolated(f"not compacted: {len(found)} messages were left")
    return published


def check_newest(published: Published, read: Sequence[bytes]) -> None:
    """Of every key the newest message came, and none that is older came behind it."""
    sent = [each for messages in published.sent.values() for each in messages]
    check_nothing_invented(sent, read)
    newest = {_key(each): each for each in sent}
    found = {_key(each): each for each in read}
    for key, payload in newest.items():
        if found.get(key) != payload:
            raise InvariantViolated(f"the last of {key} was {payload!r}, read {found.get(key)!r}")


def run(seed: int, *, menu: FaultMenu | None = None, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the cluster and what may go wrong in it."""
    random = Random(seed)
    storm = with_bad_disks(SHORT_FAULTS.drawn(random), random)
    drawn = random.choice((CALM, storm, storm))
    told = partial(
        story, live_through, menu or drawn, random.choice(SHAPES), patience(drawn, random)
    )
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("compaction", SEEDS_A_TEST))
def test_compacted_readers_see_the_newest_of_every_key(first: int) -> None:
    stored = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert stored == [MESSAGES * len(PRODUCERS)] * SEEDS_A_TEST


@pytest.mark.parametrize("plant", [compact_up_to_the_end, forget_the_former_compaction])
def test_a_planted_bug_is_found_by_a_checker(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    tell = partial(run, menu=CALM)
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(tell)
    tell(seed)  # the same story is clean without the bug
