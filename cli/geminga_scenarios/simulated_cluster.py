"""The simulated cluster as a scenario sees it: it connects to it, and does it harm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from geminga import Client, ClientError, Opening, connect
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_scenarios.cluster import RESTART_S, SHORT_FAULTS, Cluster
from geminga_scenarios.errors import NoSuchHost
from geminga_simulation.event_loop.incarnation import CURRENT
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.world import World

# The function in a scenario's file, the host that it runs on, and its stream of chance.
SCENARIO = "scenario"


class SimulatedCluster:
    """A cluster of bookies and brokers on simulated hosts.

    Time is virtual: ``asyncio.sleep`` takes none, ``asyncio.get_running_loop().time()`` shows it.
    """

    def __init__(self, world: World, cluster: Cluster) -> None:
        # Everything in the simulation, for scenarios that need more than the methods below.
        self.world = world
        self.service_url = cluster.service_url
        # All the chance that a scenario needs, drawn from the seed.
        self.random: Random = world.loop.stream(SCENARIO)
        self._cluster = cluster
        # Apart from the scenario's own stream: a scenario that draws more keeps the faults of its
        # seed.
        self._menu_chance = world.loop.stream("menu")
        # Hosts of programs; faults strike them, and the run fails with an error that ended one.
        self.programs: list[Host] = []

    # --- what a scenario does -----------------------------------------------------------------

    def connect(self, **options: Any) -> Opening[Client]:  # noqa: ANN401 -- those of the client
        """A client on the caller's host: ``async with cluster.connect() as client``.

        It takes the options of ``geminga.connect``.
        """
        # The scenario and each program have a host; their code runs in its incarnation. So a client
        # dies with the program that opened it, and is cut off with its host.
        host = self.world.host(CURRENT.get().name)
        return connect(
            self.service_url,
            network=host.network,
            clock=host.clock,
            random=host.random,
            **(self._cluster.client_options | options),
        )

    def start(self, name: str, program: Callable[[Client], Coroutine[Any, Any, object]]) -> None:
        """Run ``program(client)`` in a process of its own, on the host ``name``.

        Faults strike it as they strike brokers: it may be killed at each ``await``. It then runs
        again from its beginning, as under a supervisor; so it does after a ``ClientError``. Any
        other error of it fails the scenario.
        """

        async def keep_running(host: Host) -> None:
            while True:
                try:
                    # Each run has a client of its own, as a process that is started again.
                    async with self.connect() as client:
                        # A program that returns is done, and is not run again, unless a fault kills
                        # its process first.
                        await program(client)
                        return
                except ClientError:
                    self.note(f"the program on {host.name} ends by an error and starts again")
                    await asyncio.sleep(RESTART_S)

        host = self.world.host(name)
        host.start(keep_running)
        self.programs.append(host)

    def faults(self, menu: FaultMenu = SHORT_FAULTS) -> FaultInjector:
        """Faults while the block runs: ``async with cluster.faults(): ...``; then all have ended.

        The seed draws which faults of ``menu`` come, when, and to which host. Bookies, brokers,
        proxies and programs are struck; the links between all hosts break.
        """
        cluster = self._cluster
        # Not the scenario's own host: what checks the run has to survive it.
        victims = [*cluster.storage.bookies, *cluster.brokers, *cluster.proxies, *self.programs]
        return FaultInjector(self.world, menu.drawn(self._menu_chance), victims)

    def note(self, text: str) -> None:
        """Add a line to the events that are shown when the scenario fails."""
        self.world.note(text)

    async def create_namespace(self, name: str, policies: Mapping[str, object]) -> None:
        """Create ``tenant/namespace``; ``policies`` have the names of Pulsar's REST, such as
        ``{"message_ttl_in_seconds": 60}``."""
        # As they are in ZooKeeper: the names of the record are those of the REST interface.
        record = Policies.decode(json.dumps(policies).encode())
        await self._cluster.create_namespace(NamespaceName(*name.split("/")), record)

    async def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with this many partitions."""
        async with self.world.host("setup").coordination() as setup:
            await PartitionedTopics(setup).create(TopicName.parse(topic), partitions)

    # --- faults that a scenario chooses itself ------------------------------------------------

    @property
    def hosts(self) -> list[str]:
        """The names of all hosts: ``bookie-0``, ``broker-0``, ``scenario`` and so on."""
        return list(self.world.hosts)

    def kill(self, name: str) -> None:
        """SIGKILL the process of a host; ``restart`` starts it again."""
        self._host(name).kill()

    def crash(self, name: str) -> None:
        """Cut a host's power: what its disks had not synced is lost, and its peers are not told."""
        self._host(name).crash(is_silent=True)

    def restart(self, name: str) -> None:
        """Start the process of a host again, after ``kill`` or ``crash``."""
        self._host(name).restart()

    def pause(self, name: str, seconds: float) -> None:
        """Stop the process of a host for so many seconds, as SIGSTOP does."""
        self._host(name).pause(seconds)

    def partition(self, one: str, other: str) -> None:
        """Cut the link between two hosts, of which one may be ``zookeeper``, until ``heal``."""
        self.world.partition(one, other)

    def heal(self, one: str, other: str) -> None:
        """End a partition."""
        self.world.heal(one, other)

    def _host(self, name: str) -> Host:
        host = self.world.hosts.get(name)
        if host is None:
            raise NoSuchHost(f"there is no host {name!r}; there are {', '.join(self.hosts)}")
        return host
