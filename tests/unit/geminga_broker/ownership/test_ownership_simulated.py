"""Three brokers under partitions, crashes and lost sessions: never two owners, one in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.brokers import Brokers
from geminga_broker.ownership.ownership import Ownership
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.brokers import LocalBrokerData
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import ROUGH_COORDINATION, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

# A process killed in the simulator is thrown away in the middle of its work; Python then tells of
# every ``finally`` in it that would have awaited something.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPICS = [TopicName.parse(f"topic-{number}") for number in range(8)]
HOSTS = ("one", "two", "three")
URLS = ClusterUrls("http://one:8080", "pulsar://one:6650")

# What a broker is told of in time: it is in doubt before the server frees its bundles.
TOLD = FaultMenu(
    crash_rate=0.3,
    kill_rate=0.3,
    partition_rate=0.5,
    session_loss_rate=0.5,
    partition_s_max=10.0,
    coordination=ROUGH_COORDINATION,
)
# What it learns of late: a stopped process, a session that the server ended by itself.
SURPRISING = replace(TOLD, pause_rate=0.3, pause_s_max=10.0, session_expiry_rate=0.3)
FAULTY_S = 20.0
CALM_S = 30.0


class LookingBroker(Service):
    """A broker reduced to its ownership, which keeps looking topics up."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        address = BrokerAddress(
            f"{host.name}:8080", f"pulsar://{host.name}:6650", f"http://{host.name}:8080"
        )
        self.coordination = host.coordination()
        namespaces = Namespaces(self.coordination)
        self.ownership = Ownership(self.coordination, namespaces, address)
        self.brokers = Brokers(
            self.coordination, host.clock, address, LocalBrokerData, version="4.0.6"
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.coordination)
        await stack.enter_async_context(self.ownership)
        while True:
            try:
                await stack.enter_async_context(self.brokers)
            except GemingaError:
                await asyncio.sleep(0.5)
            else:
                break
        self.spawn(self._look(), name="look")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._host.random.random() * 0.2)
            try:
                await self.ownership.owner(self._host.random.choice(TOPICS))
            except GemingaError:
                continue


class Cluster:
    """The brokers, and who of them lives."""

    def __init__(self, world: World) -> None:
        self.hosts = [world.host(name) for name in HOSTS]
        self.brokers: dict[str, LookingBroker] = {}

    def make(self, host: Host) -> LookingBroker:
        broker = self.brokers[host.name] = LookingBroker(host)
        return broker

    def living(self) -> Iterator[LookingBroker]:
        return (self.brokers[host.name] for host in self.hosts if host.is_running)

    def check_owners(self) -> None:
        """Each bundle has one owner at most, among those that are certain of what they own."""
        owners: dict[Bundle, str] = {}
        for broker in self.living():
            if not broker.ownership.owned.is_certain:
                continue
            for bundle in broker.ownership.owned.generations:
                other = owners.setdefault(bundle, broker.ownership.address.broker_id)
                assert other == broker.ownership.address.broker_id, bundle

    async def agree(self) -> None:
        """All brokers name the same owner, who thinks so too; one leads; all are registered."""
        for topic in TOPICS:
            owners = [await broker.ownership.owner(topic) for broker in self.living()]
            assert len({owner.broker_url for owner in owners}) == 1, topic
            assert [owner.is_self for owner in owners].count(True) == 1, topic
        leaders = [broker.brokers.election.is_leader for broker in self.living()]
        assert leaders.count(True) == 1
        for broker in self.living():
            assert await broker.brokers.living.ids() == sorted(f"{name}:8080" for name in HOSTS)
        self.check_owners()


async def scenario(menu: FaultMenu, *, is_strict: bool) -> None:
    async with World() as world:
        setup = world.host("setup")
        session = setup.coordination()
        await initialize_cluster_metadata(session, "sim", URLS, instance_id="sim")
        cluster = Cluster(world)
        for host in cluster.hosts:
            await host.serve(cluster.make)
        drawn = menu.drawn(world.loop.stream("menu"))
        async with FaultInjector(world, drawn, cluster.hosts):
            for _ in range(int(FAULTY_S / 0.01)):
                await asyncio.sleep(0.01)
                if is_strict:
                    cluster.check_owners()
        await asyncio.sleep(CALM_S)
        await cluster.agree()
        assert world.errors == []


@pytest.mark.parametrize("seed", range(25))
def test_a_bundle_never_has_two_owners(seed: int) -> None:
    simulate(seed, lambda: scenario(TOLD, is_strict=True))


@pytest.mark.parametrize("seed", range(25))
def test_after_any_trouble_all_brokers_agree(seed: int) -> None:
    simulate(seed, lambda: scenario(SURPRISING, is_strict=False))
