"""Proves, over many seeds, that no confirmed change of a policy or of a bundle is lost, whichever
broker makes it and whatever else is changed at the same time, and that topics that are open come to
follow what their namespace and they themselves say.

Each writer has a policy of its own, of a namespace or of a topic, and raises its number; all that
write of one topic change the same record. Meanwhile brokers cut bundles at the same time. ZooKeeper
fails often, since most that is asked here is asked of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.bugs.planted_policies import (
    change_what_was_read_before,
    cut_whatever_was_cut_meanwhile,
)
from tests.simulation.clients.errands import again
from tests.simulation.seeds import first_seeds

from geminga_broker.broker import Broker
from geminga_broker.ownership.assignment.split import split_boundaries
from geminga_broker.topic_policies.store import Change
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import SHORT_FAULTS, Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
NAMESPACE = NamespaceName("public", "default")
TOPICS = [TopicName.parse(f"persistent://{NAMESPACE}/topic-{number}") for number in range(3)]
SHAPES = (Shape(), Shape(brokers=2), Shape(brokers=3))
# None of them changes what happens to a topic that no client publishes to.
TOPIC_FIELDS = ("message_ttl_s", "unacked_per_consumer_max", "compaction_threshold_bytes")
NAMESPACE_FIELDS = ("unacked_per_subscription_max", "consumers_per_subscription_max")
FIRST_VALUE = 1000
# In each round all write for so long, and then wait till topics follow, under the same faults.
ROUNDS = 4
WRITE_S = 3.0
PAUSE_S_MAX = 1.5
# Changes that failed at one broker may be stored so much later; who changes a topic at another
# broker meanwhile may undo them, or they undo that (``TopicPolicyStore.change``).
DOUBT_S = 40.0
FOLLOWED_S = 60.0
RETRY_S = 0.5
TIME_LIMIT_S = 900.0
SHAKY_ZOOKEEPER = CoordinationConditions(
    delay_s_max=0.05, loss_probability=0.02, write_loss_probability=0.05, late_probability=0.05
)
WEATHERS = (
    FaultMenu(),
    FaultMenu(coordination=SHAKY_ZOOKEEPER),
    FaultMenu(coordination=SHAKY_ZOOKEEPER, zookeeper_restart_rate=0.2, zookeeper_away_s_max=4.0),
    replace(SHORT_FAULTS, coordination=SHAKY_ZOOKEEPER),
)


AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class Register:
    """A policy that one writer sets: it must hold what is ``confirmed``, or anything set later."""

    name: str
    confirmed: int = FIRST_VALUE - 1
    tried: int = FIRST_VALUE - 1

    def check(self, held: int | None) -> None:
        """Raise where a confirmed change is missing, or something is held that was never set."""
        value = FIRST_VALUE - 1 if held is None else held
        if not self.confirmed <= value <= self.tried:
            raise InvariantViolated(
                f"{self.name} is {held}: {self.confirmed} was confirmed, {self.tried} tried last"
            )


# A broker's host, and which of its lives.
Life = tuple[Host, int]


@dataclass(slots=True)
class Registers:
    """All policies that are written, of ``place``: a topic, or the namespace as a whole. Those of a
    topic are not changed at two brokers at a time, for the later change would win."""

    place: object
    fields: tuple[str, ...]
    of: dict[str, Register] = field(default_factory=dict[str, Register])
    # By the life of a broker: changes that are under way, and when those in doubt are over.
    _under_way: Counter[Life] = field(default_factory=Counter[Life])
    _in_doubt_until_s: dict[Life, float] = field(default_factory=dict[Life, float])

    def __post_init__(self) -> None:
        self.of = {name: Register(f"{name} of {self.place}") for name in self.fields}

    def may_change_at(self, life: Life, now_s: float) -> bool:
        """Whether no other broker is changing the record, or may still have a change under way."""
        changing = {each for each, count in self._under_way.items() if count}
        changing |= {each for each, until_s in self._in_doubt_until_s.items() if until_s > now_s}
        return not changing - {life}

    def begin(self, life: Life) -> None:
        """A change is made there."""
        self._under_way[life] += 1

    def end(self, life: Life, in_doubt_until_s: float = 0.0) -> None:
        """A change was made; or it failed, and may be made all the same until that time."""
        self._under_way[life] -= 1
        known_s = self._in_doubt_until_s.get(life, 0.0)
        self._in_doubt_until_s[life] = max(known_s, in_doubt_until_s)


class Writers:
    """All that change policies, each its own, until ``is_over``."""

    def __init__(self, cluster: Cluster, chance: Random) -> None:
        self.topics = {topic: Registers(topic, TOPIC_FIELDS) for topic in TOPICS}
        self.namespace = Registers(NAMESPACE, NAMESPACE_FIELDS)
        # Where bundles were cut, by those who were told that it is done.
        self.cuts: list[int] = []
        self._cluster = cluster
        self._chance = chance

    def all(self) -> list[Awaitable[None]]:
        """The work of each in one round."""
        of_topics = [
            self._keep_writing(self._set_of_topic, topic, name)
            for topic in TOPICS
            for name in TOPIC_FIELDS
        ]
        of_namespace = [
            self._keep_writing(self._set_of_namespace, NAMESPACE, name) for name in NAMESPACE_FIELDS
        ]
        return [*of_topics, *of_namespace, self._cut_everywhere()]

    async def _keep_writing(
        self, set_one: Callable[[Any, str], Awaitable[None]], place: object, name: str
    ) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITE_S):
                while True:
                    await asyncio.sleep(self._chance.random() * PAUSE_S_MAX)
                    await set_one(place, name)

    async def _set_of_topic(self, topic: TopicName, name: str) -> None:
        registers = self.topics[topic]
        register = registers.of[name]
        owners = [
            host
            for host in self._cluster.brokers
            if (broker := self._cluster.broker(host)) is not None and broker.ownership.owns(topic)
        ]
        loop = asyncio.get_running_loop()
        if len(owners) != 1:
            return
        life = owners[0], owners[0].lives
        if not registers.may_change_at(life, loop.time()):
            return
        register.tried += 1
        value: dict[str, Any] = {name: register.tried}
        change: Change = lambda policies: replace(policies, **value)  # noqa: E731
        registers.begin(life)
        try:
            await self._at(owners[0], lambda broker: broker.topic_policies.change(topic, change))
        except (GemingaError, HostCrashed):
            registers.end(life, loop.time() + DOUBT_S)
        else:
            register.confirmed = register.tried
            registers.end(life)

    async def _set_of_namespace(self, namespace: NamespaceName, name: str) -> None:
        register = self.namespace.of[name]
        register.tried += 1
        value: dict[str, Any] = {name: register.tried}
        change: Callable[[Policies], Policies] = lambda policies: replace(policies, **value)  # noqa: E731
        broker = self._chance.choice(self._cluster.brokers)
        with suppress(GemingaError, HostCrashed):
            await self._at(broker, lambda each: each.namespaces.update(namespace, change))
            register.confirmed = register.tried

    async def _cut_everywhere(self) -> None:
        await asyncio.sleep(self._chance.random() * WRITE_S)
        await asyncio.gather(*map(self._cut_at, self._cluster.brokers))

    async def _cut_at(self, host: Host) -> None:
        """Have a broker cut the first bundle that it owns."""
        broker = self._cluster.broker(host)
        owned = [] if broker is None else [*broker.ownership.owned.generations]
        bundles = [each for each in owned if each.namespace == NAMESPACE]
        if not bundles:
            return
        bundle = min(bundles, key=lambda each: each.lower)
        cuts = split_boundaries(bundle, "range_equally_divide", hashes=[], positions=[])
        with suppress(GemingaError, HostCrashed):
            await self._at(host, lambda each: each.ownership.split(bundle, cuts))
            self.cuts += cuts

    async def _at(self, host: Host, work: Callable[[Broker], Awaitable[object]]) -> None:
        """Run something in the broker of a host. Raises ``HostCrashed``, and what that raises."""
        broker = self._cluster.broker(host)
        if broker is None:
            raise HostCrashed(host.name)

        async def done() -> None:
            await work(broker)

        await host.run(done())


async def check_what_is_stored(cluster: Cluster, writers: Writers) -> None:
    """Each broker reads all that was confirmed."""
    for host in cluster.brokers:
        broker = await serving(cluster, host)
        stored = await patiently(partial(broker.namespaces.policies, NAMESPACE))
        for name, register in writers.namespace.of.items():
            register.check(getattr(stored, name))
        for topic, registers in writers.topics.items():
            said = await patiently(partial(broker.topic_policies.local, topic))
            for name, register in registers.of.items():
                register.check(getattr(said, name))
        bundles = await patiently(partial(broker.namespaces.bundles, NAMESPACE))
        boundaries = bundles.boundaries
        lost = [cut for cut in writers.cuts if f"0x{cut:08x}" not in boundaries]
        if lost:
            raise InvariantViolated(f"cuts {lost} were confirmed, there are {boundaries}")


async def patiently(ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Ask until there is an answer: a client notices late that a connection went dark."""
    for _ in range(int(FOLLOWED_S / RETRY_S)):
        with suppress(GemingaError):
            return await ask()
        await asyncio.sleep(RETRY_S)
    return await ask()


async def until_followed(cluster: Cluster) -> None:
    """Return when each open topic keeps to its policies, as a reader of them finds them now."""
    behind: list[str] = []
    for _ in range(int(FOLLOWED_S / RETRY_S)):
        behind.clear()
        for host in cluster.brokers:
            await serving(cluster, host)
            try:
                # In the broker's process, which may crash while it answers.
                await cluster.do(host, partial(add_those_behind, behind))
            except (GemingaError, HostCrashed):
                behind.append(f"some topic on {host.name}")
        if not behind:
            return
        await asyncio.sleep(RETRY_S)
    raise InvariantViolated(f"after {FOLLOWED_S:.0f} s these follow older policies: {behind}")


async def add_those_behind(behind: list[str], broker: Broker) -> None:
    """Add the open topics of a broker that follow other policies than a reader finds now.

    Raises an error where the broker cannot read policies.
    """
    for name in TOPICS:
        topic = broker.topics.loaded.get(name)
        if topic is not None and topic.policies != await broker.policies.of(name):
            behind.append(str(name))


async def serving(cluster: Cluster, host: Host) -> Broker:
    """The broker of a host, once it serves."""
    while (broker := cluster.broker(host)) is None:  # noqa: ASYNC110 - a simulated host
        await asyncio.sleep(RETRY_S)
    return broker


async def live_through(cluster: Cluster, menu: FaultMenu, chance: Random) -> int:
    """One story; how many changes were confirmed."""
    writers = Writers(cluster, chance)
    victims = [*cluster.storage.bookies, *cluster.brokers]
    async with cluster.client("client") as client:
        # Clients keep the topics open, on whichever broker.
        for topic in TOPICS:
            await client.producer(str(topic), send_timeout_s=None)
        async with FaultInjector(cluster.world, menu, victims):
            for _ in range(ROUNDS):
                await asyncio.gather(*writers.all())
                await until_followed(cluster)
        # A producer may have been told half a minute ago that its topic is open; now it is.
        for topic in TOPICS:
            opening = partial(client.producer, str(topic), send_timeout_s=None)
            await (await again(opening)).close()
        await until_followed(cluster)
        await check_what_is_stored(cluster, writers)
    registers = [writers.namespace, *writers.topics.values()]
    return sum(
        each.confirmed - FIRST_VALUE + 1 for written in registers for each in written.of.values()
    )


async def story(menu: FaultMenu, shape: Shape) -> int:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape)
        await cluster.open()
        host = world.host("client")
        host.start(lambda _: asyncio.Event().wait())
        confirmed = await host.run(live_through(cluster, menu, world.loop.stream("story")))
        raise_loop_failures(world)
    return confirmed


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the cluster and the weather."""
    random = Random(seed)
    menu = random.choice(WEATHERS).drawn(random)
    told = partial(story, menu, random.choice(SHAPES))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("policies", SEEDS_A_TEST))
def test_no_change_of_a_policy_is_lost_and_topics_follow(first: int) -> None:
    confirmed = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert sum(confirmed) > SEEDS_A_TEST * 50


@pytest.mark.parametrize("plant", [cut_whatever_was_cut_meanwhile, change_what_was_read_before])
def test_a_planted_bug_is_found_by_a_checker(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug
