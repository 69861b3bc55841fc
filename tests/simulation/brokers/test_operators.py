"""Proves, over many seeds, that a cluster stands what operators do to it, and another process to
its records: namespaces that are changed, deleted and made again while they are used, bundles that
are split, unloaded and moved by several at once, a load manager whose moves fail, nodes of owners
that vanish, ZooKeeper away for longer than a client waits, a broker that ends while it reaches no
bookie.

Nothing that is confirmed is lost, no two owners have one generation of a bundle, and when all is
well again each topic has an owner and works.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.brokers.bundle_rest import serve_bundles
from tests.simulation.brokers.intruder import Intruder
from tests.simulation.brokers.test_policies import SHAKY_ZOOKEEPER
from tests.simulation.features.stage import CALM_S_MAX, RETRY_S, Log, opened, taking
from tests.simulation.harm import patience
from tests.simulation.seeds import first_seeds

from geminga import Client, ClientError, Message
from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.errors import TopicReplicated
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.load_report import LoadReportConfig
from geminga_broker.ownership.assignment.split import (
    RANGE_EQUALLY_DIVIDE,
    TOPIC_COUNT_EQUALLY_DIVIDE,
    split_boundaries,
)
from geminga_broker.policies.backlog import MESSAGE_AGE, BacklogConfig, QuotaPolicy
from geminga_broker.policies.effective import PolicyConfig
from geminga_cluster.clusters import Clusters
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.cluster.namespaces import BacklogQuota, Policies
from geminga_runtime.coordination import SessionState
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import SHORT_FAULTS, Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.histories.checkers import check_nothing_lost
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
DEFAULT = NamespaceName("public", "default")
PASSING = NamespaceName("public", "passing")
# Of another cluster in which nothing answers: what is replicated there waits.
FAR, LATE = "far", "late"
STEADY = TopicName.parse(f"persistent://{DEFAULT}/steady")
TOPICS = [
    TopicName.parse(f"persistent://{namespace}/topic-{number}")
    for namespace in (DEFAULT, PASSING)
    for number in range(4)
]
SHAPES = (Shape(2, 3), Shape(brokers=2))
CLIENTS = ("client", "other-client")
MESSAGES = 40
LIVE_S = 15.0
OPERATED_EACH_S = 0.25
USED_EACH_S = 0.4
LOOK_S = 0.05
ASKED_EACH_S = 0.02
# Longer than a broker, and a client, waits for an answer; and so long that a broker is in doubt of
# its session, which ZooKeeper keeps, while requests still wait.
AWAY_S, DOUBTFUL_S = 32.0, 5.45
# Sessions are taken up again within less.
BACK_S_MAX = 2.0
AWAY_SHARE, DOUBTFUL_SHARE, CUT_OFF_SHARE = 0.5, 0.4, 0.6
STOP_S_MAX = 20.0
TIME_LIMIT_S = 1500.0
WEATHERS = (FaultMenu(), FaultMenu(coordination=SHAKY_ZOOKEEPER), SHORT_FAULTS)
CONFIG = BrokerConfig(
    stats_period_s=1.0,
    load_reports=LoadReportConfig(
        load_balancer_report_interval_min_s=0.5, load_balancer_report_interval_max_s=3.0
    ),
    load_manager=LoadManagerConfig(
        load_balancer_shedding_interval_s=1.5,
        load_balancer_shedding_grace_s=2.0,
        load_balancer_shedding_hits=1,
        load_balancer_shedding_rate_min=0.0,
        load_balancer_arrivals_max=2,
        load_balancer_history_interval_s=1.0,
        load_balancer_unload_timeout_s=3.0,
        load_balancer_split_interval_s=2.0,
        load_balancer_bundle_topics_max=1,
        load_balancer_namespace_bundles_max=12,
    ),
    policies=PolicyConfig(backlog=BacklogConfig(backlog_quota_check_s=1.0)),
)
# No backlog is as old, but each time it is looked for the oldest message.
POLICIES = Policies(
    backlog_quota_map={
        MESSAGE_AGE: BacklogQuota(limit_time=100_000, policy=QuotaPolicy.EVICT_BACKLOG.value)
    }
)


@dataclass(slots=True)
class Generations:
    """Which broker had a bundle when, by the generations of ownership that brokers report."""

    owners: dict[tuple[Bundle, int], str] = field(default_factory=dict[tuple[Bundle, int], str])

    async def observe(self, cluster: Cluster) -> None:
        """Look again and again. Never ends; raises ``InvariantViolated``."""
        while True:
            for broker, _ in cluster.serving():
                for bundle, generation in broker.ownership.owned.generations.items():
                    self._note(bundle, generation, broker.address.broker_id)
            await asyncio.sleep(LOOK_S)

    def _note(self, bundle: Bundle, generation: int, broker_id: str) -> None:
        owner = self.owners.setdefault((bundle, generation), broker_id)
        if owner != broker_id:
            raise InvariantViolated(f"{generation} of {bundle} is {owner}'s and {broker_id}'s")


class Operators:
    """What operators have brokers do, whichever they ask."""

    def __init__(self, cluster: Cluster, chance: Random) -> None:
        self.deeds = 0
        self._cluster = cluster
        self._chance = chance

    async def operate_until(self, end_s: float) -> None:
        """Several of them, who know nothing of each other."""
        while asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(2 * OPERATED_EACH_S * self._chance.random())
            deed = self._chance.choice(self._deeds())
            hosts = self._chance.choices(self._cluster.brokers, k=self._chance.randint(1, 2))
            await asyncio.gather(*[self._have_done(host, deed) for host in hosts])

    async def _have_done(self, host: Host, deed: Callable[[Broker], Awaitable[object]]) -> None:
        async def done(broker: Broker) -> None:
            await deed(broker)
            self.deeds += 1

        with suppress(GemingaError, HostCrashed):
            await self._cluster.do(host, done)

    async def split_everywhere(self) -> None:
        """Have each broker split one of its bundles."""
        split = partial(self._split, RANGE_EQUALLY_DIVIDE)
        await asyncio.gather(*[self._have_done(host, split) for host in self._cluster.brokers])

    def _deeds(self) -> Sequence[Callable[[Broker], Awaitable[object]]]:
        topic = self._chance.choice(TOPICS)
        return (
            partial(self._split, RANGE_EQUALLY_DIVIDE),
            partial(self._split, TOPIC_COUNT_EQUALLY_DIVIDE),
            self._unload,
            partial(self._look_up, topic),
            partial(self._change_policies, topic.namespace),
            partial(self._change_policies, topic.namespace),
            lambda broker: broker.check_health(),
            lambda broker: broker.persistent_topics.stored(topic),
            lambda broker: broker.persistent_topics.cursors(topic),
            partial(self._delete, topic),
            self._end_heartbeats,
        )

    def _one_of(self, broker: Broker) -> Bundle | None:
        owned = sorted(broker.ownership.owned.generations, key=str)
        return self._chance.choice(owned) if owned else None

    async def _split(self, algorithm: str, broker: Broker) -> None:
        if (bundle := self._one_of(broker)) is None:
            return
        hashes: list[int] = []
        if algorithm == TOPIC_COUNT_EQUALLY_DIVIDE:
            topics = await broker.persistent_topics.names(bundle.namespace)
            hashes = [topic.hash for topic in topics if bundle.covers(topic.hash)]
        cuts = split_boundaries(bundle, algorithm, hashes=hashes, positions=[])
        await broker.ownership.split(bundle, cuts)

    async def _unload(self, broker: Broker) -> None:
        if (bundle := self._one_of(broker)) is not None:
            await broker.ownership.unload(bundle)

    async def _look_up(self, topic: TopicName, broker: Broker) -> None:
        await broker.ownership.owner(topic, authoritative=self._chance.random() < 0.5)

    async def _change_policies(self, namespace: NamespaceName, broker: Broker) -> None:
        """Turn deduplication, or replication to a cluster far away, on or off."""
        if self._chance.random() < 0.5:
            is_on = self._chance.random() < 0.5
            change = lambda policies: replace(policies, deduplication_enabled=is_on)  # noqa: E731
        else:
            clusters = (self._cluster.name, FAR)[: self._chance.randint(1, 2)]
            change = lambda policies: replace(policies, replication_clusters=clusters)  # noqa: E731
        await broker.namespaces.update(namespace, change)

    async def _delete(self, topic: TopicName, broker: Broker) -> None:
        """One that is replicated is not deleted, unless by force."""
        if not broker.ownership.owns(topic):
            return
        loaded = broker.topics.loaded.get(topic)
        is_replicated = loaded is not None and bool(loaded.policies.replication.remotes)
        try:
            await broker.topics.delete(topic, force=False)
        except TopicReplicated:
            if not is_replicated and loaded is not None:
                raise InvariantViolated(f"{topic} is said to be replicated") from None
            raise
        if is_replicated:
            raise InvariantViolated(f"{topic} is deleted, and it was replicated")

    async def _end_heartbeats(self, broker: Broker) -> None:
        """The topic of health checks of a broker takes no more messages: the broker is unwell until
        that topic is deleted."""
        await broker.check_health()
        topic = TopicName.of("persistent", "pulsar", broker.address.broker_id, "healthcheck")
        await broker.administration.terminate_topic(topic)
        try:
            await broker.check_health()
        except GemingaError:
            pass
        else:
            raise InvariantViolated(f"{topic} is terminated, and took a message")
        await broker.topics.delete(topic, force=True)
        await broker.check_health()


async def publish(client: Client, log: Log) -> None:
    """Publish numbered messages to the steady topic, however long that takes."""
    opening = partial(client.producer, str(STEADY), send_timeout_s=None, batching=None)
    async with await opened(opening) as producer:
        while log.sent < MESSAGES:
            log.send(producer)
            await asyncio.sleep(LIVE_S / MESSAGES)
        await producer.flush()


async def acknowledge(client: Client) -> None:
    """Acknowledge what the steady topic delivers, which its broker has to store. Never ends."""
    opening = partial(client.consumer, str(STEADY), "worker", initial_position="earliest")
    consumer = await opened(opening)
    while True:
        consumer.ack(await consumer.receive())


async def use_until(client: Client, chance: Random, end_s: float) -> None:
    """Come to topics, or to all of a namespace, and leave."""
    while asyncio.get_running_loop().time() < end_s:
        await asyncio.sleep(2 * USED_EACH_S * chance.random())
        topic = chance.choice(TOPICS)
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(AWAY_S * chance.choice((0.02, 2))):
                if chance.random() < 0.3:
                    pattern = re.compile(f"{topic.namespace}/{chance.choice('tx')}.*")
                    async with client.consumer(pattern, "guest", type="shared"):
                        await asyncio.sleep(USED_EACH_S)
                else:
                    async with client.producer(str(topic), send_timeout_s=1.0) as producer:
                        await producer.send(b"hello")


async def stay_away(cluster: Cluster, operators: Operators, chance: Random) -> None:
    """ZooKeeper is away for long, in some seeds just when brokers have bundles to split."""
    if chance.random() >= AWAY_SHARE:
        return
    await asyncio.sleep(LIVE_S / 2 * chance.random())
    zookeeper = cluster.world.zookeeper
    cluster.world.note("zookeeper is away")
    zookeeper.go_away()
    await asyncio.sleep(0.2 + chance.random())
    splitting = asyncio.create_task(operators.split_everywhere())
    is_doubtful = chance.random() < DOUBTFUL_SHARE
    if is_doubtful:
        await come_for_a_moment(cluster, chance)
    await asyncio.sleep(DOUBTFUL_S if is_doubtful else AWAY_S)
    zookeeper.come_back(keeps_sessions=is_doubtful or chance.random() < 0.7)
    await splitting


async def come_for_a_moment(cluster: Cluster, chance: Random) -> None:
    """ZooKeeper comes back, and is away again before it has answered a broker. The broker looks
    after its bundles whenever a connection ends, and then lets those go on that waited for one of
    them."""
    zookeeper, is_back = cluster.world.zookeeper, asyncio.Event()

    def changed(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            is_back.set()

    for session in zookeeper.sessions(chance.choice(cluster.brokers).name):
        session.on_session(changed)
    zookeeper.come_back(keeps_sessions=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(BACK_S_MAX):
            await is_back.wait()
    zookeeper.go_away()


async def end_cut_off(cluster: Cluster, chance: Random) -> None:
    """A broker is told to end while no bookie answers it, in some seeds."""
    if chance.random() >= CUT_OFF_SHARE:
        return
    await asyncio.sleep(LIVE_S * chance.random())
    owners = [each for each in cluster.brokers if owns_steady(cluster.broker(each))]
    host = chance.choice(owners or cluster.brokers)
    for bookie in cluster.storage.bookies:
        cluster.world.partition(host.name, bookie.name)
    await asyncio.sleep(chance.random())
    asking = asyncio.create_task(ask_again_and_again(cluster, host))
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await host.stop()
    except TimeoutError:
        host.kill()
    asking.cancel()
    for bookie in cluster.storage.bookies:
        cluster.world.heal(host.name, bookie.name)
    if not host.is_running:
        host.restart()


def owns_steady(broker: Broker | None) -> bool:
    """Whether the broker owns the topic whose cursor moves all the time."""
    return broker is not None and broker.ownership.owns(STEADY)


async def ask_again_and_again(cluster: Cluster, host: Host) -> None:
    """Look all topics up at this broker, as if a leader that knows no better had redirected clients
    to it. Never ends."""
    while True:
        for topic in TOPICS:
            await asyncio.sleep(ASKED_EACH_S)
            with suppress(GemingaError, HostCrashed):
                await cluster.do(host, partial(owner_at, topic=topic))


async def owner_at(broker: Broker, topic: TopicName) -> None:
    """Have a broker acquire a topic's bundle, where none owns it."""
    await broker.ownership.owner(topic, authoritative=True)


async def initialize_together(cluster: Cluster) -> None:
    """Three processes initialize one more cluster at the same time: its records are written
    once."""

    async def initialize(number: int) -> None:
        async with cluster.place.host(f"setup-{number}").coordination() as setup:
            urls = ClusterUrls(f"http://{LATE}:8080", f"pulsar://{LATE}:6650")
            await initialize_cluster_metadata(setup, LATE, urls, instance_id=f"{number}")

    await asyncio.gather(*map(initialize, range(3)))
    async with cluster.place.host("setup").coordination() as setup:
        allowed = (await Tenants(setup).get("public")).allowed_clusters
        entered = (await Namespaces(setup).policies(DEFAULT)).replication_clusters
        for clusters in (allowed, entered):
            if clusters.count(LATE) != 1 or cluster.name not in clusters:
                raise InvariantViolated(f"{LATE} was entered by three at once: {clusters}")

        def leave(policies: Policies) -> Policies:
            others = tuple(each for each in policies.replication_clusters if each != LATE)
            return replace(policies, replication_clusters=others)

        await Namespaces(setup).update(DEFAULT, leave)


async def check_steady(client: Client) -> None:
    """The subscription that kept everything has all that was confirmed."""
    came: list[int] = []
    consumer = await opened(partial(client.consumer, str(STEADY), "keeper"))
    async with (
        taking(consumer.receive, lambda message: came.append(number_of(message))),
        await opened(partial(client.producer, str(STEADY))) as producer,
    ):
        await producer.send(b"%d" % MESSAGES)
        with suppress(TimeoutError):
            async with asyncio.timeout(CALM_S_MAX):
                while MESSAGES not in came:  # noqa: ASYNC110 -- calm times
                    await asyncio.sleep(RETRY_S)
    await consumer.close()
    check_nothing_lost(range(MESSAGES + 1), came)


def number_of(message: Message[bytes]) -> int:
    """Which it is."""
    return int(message.data)


async def check_rings(cluster: Cluster) -> None:
    """However bundles were split, those of each namespace cover the whole ring."""
    async with cluster.place.host("setup").coordination() as setup:
        for namespace in (DEFAULT, PASSING):
            bounds = (await Namespaces(setup).bundles(namespace)).boundaries
            if [*bounds] != sorted({*bounds, "0x00000000", "0xffffffff"}):
                raise InvariantViolated(f"{namespace} is cut at {bounds}")


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> int:
    """One story; how much operators had done."""
    loop, world = asyncio.get_running_loop(), cluster.world
    operators, log = Operators(cluster, chance), Log(world.host(CLIENTS[0]).clock)
    observing = asyncio.create_task(Generations().observe(cluster))
    async with cluster.client(CLIENTS[0]) as client, cluster.client(CLIENTS[1]) as other:
        opening = partial(client.consumer, str(STEADY), "keeper", initial_position="earliest")
        await (await opened(opening)).close()
        end_s = loop.time() + LIVE_S
        publishing = asyncio.create_task(publish(client, log))
        working = asyncio.create_task(acknowledge(other))
        intruding = asyncio.create_task(Intruder(cluster, PASSING, chance).intrude())
        async with FaultInjector(world, menu, cluster.brokers), asyncio.TaskGroup() as tasks:
            tasks.create_task(operators.operate_until(end_s))
            for each in (client, other):
                tasks.create_task(use_until(each, chance, end_s))
            tasks.create_task(stay_away(cluster, operators, chance))
            tasks.create_task(end_cut_off(cluster, chance))
        for task in (intruding, working):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await initialize_together(cluster)
        cluster.restart_brokers()  # all bundles are looked up at once
        for topic in TOPICS:
            await (await opened(partial(other.producer, str(topic)))).close()
        await publishing
        await check_steady(client)
        await check_rings(cluster)
    if observing.done():  # which only a violation ends
        observing.result()
    observing.cancel()
    return operators.deeds


async def story(menu: FaultMenu, shape: Shape, ledgers: LedgerConfig) -> int:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers, config=CONFIG)
        serve_bundles(cluster)
        await cluster.open()
        await cluster.create_namespace(PASSING, POLICIES)
        async with world.host("setup").coordination() as setup:
            await Clusters(setup).create(FAR, ClusterData(broker_service_url="pulsar://far:6650"))
            await Namespaces(setup).update(
                DEFAULT,
                lambda policies: replace(policies, backlog_quota_map=POLICIES.backlog_quota_map),
            )
        hosts = [world.host(name) for name in CLIENTS]
        for host in hosts:
            host.start(lambda _: asyncio.Event().wait())
        deeds = await hosts[0].run(live_through(cluster, menu, world.loop.stream("story")))
        raise_loop_failures(world)
    return deeds


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the cluster and what goes wrong besides."""
    random = Random(seed)
    menu = random.choice(WEATHERS).drawn(random)
    told = partial(story, menu, random.choice(SHAPES), patience(menu, random))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("operators", SEEDS_A_TEST))
def test_a_cluster_stands_what_operators_do_to_it(first: int) -> None:
    assert sum(results(run, range(first, first + SEEDS_A_TEST))) > SEEDS_A_TEST
