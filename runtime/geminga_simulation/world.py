"""The simulated world: hosts, the network between them, their disks, their ZooKeeper.

Used inside a ``SimulatedLoop``::

    async def scenario() -> None:
        async with World() as world:
            bookie = world.host("bookie")
            service = await bookie.serve(lambda host: Bookie(..., host.disk("journal")))
            ...
            bookie.crash()
            bookie.restart()

    simulate(seed, scenario)

The scenario itself runs in the loop's main incarnation: it never dies and its turns take no time.

Where there are several clusters, each is a ``Site``: it has a ZooKeeper of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from geminga_simulation.canary import Canary
from geminga_simulation.conditions import (
    CoordinationConditions,
    DiskConditions,
    NetworkConditions,
)
from geminga_simulation.disk import CAPACITY_BYTES_DEFAULT
from geminga_simulation.event_loop.incarnation import CURRENT
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.host import Host
from geminga_simulation.run_control import RUN_CONTROL
from geminga_simulation.tcp.network import SimulatedNetwork
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

# The name under which partitions between a host and its coordination service are made.
ZOOKEEPER = "zookeeper"
# One turn of a busy process's event loop, about.
TURN_COST_S_DEFAULT = 0.000_02
# Errors kept for reading; a process that fails in a circle must not fill the memory.
ERRORS_KEPT_MAX = 1_000
# Of each kind, in what is said of a failed run.
EVENTS_DESCRIBED_MAX = 15


class World:
    """Everything outside the processes under test. All chance comes from the loop's seed."""

    def __init__(
        self,
        *,
        turn_cost_s: float = TURN_COST_S_DEFAULT,
        network: NetworkConditions | None = None,
        disk: DiskConditions | None = None,
        coordination: CoordinationConditions | None = None,
        disk_capacity_bytes: int = CAPACITY_BYTES_DEFAULT,
        canary: Canary = Canary.NONE,
    ) -> None:
        self.loop = loop = running_loop()
        self.turn_cost_s = turn_cost_s
        self.network = SimulatedNetwork(loop, network)
        self.network.is_leaky = canary is Canary.LEAKY_STREAM
        # What ZooKeepers and disks are made with, those of hosts and sites to come included.
        self._coordination = coordination
        self._canary = canary
        # The one for hosts of no site, then one for each site.
        self.zookeepers: list[SimulatedZooKeeper] = []
        # Sites make theirs later: ``zookeepers`` grows, and the fault injector asks it each time.
        self.zookeeper = self._new_zookeeper(ZOOKEEPER)
        self.hosts: dict[str, Host] = {}
        # What was done to the world, and when: (virtual seconds, text).
        self.events: list[tuple[float, str]] = []
        # What the processes logged as errors: (virtual seconds, host, text). Bounded by
        # ``ERRORS_KEPT_MAX``; ``events`` is bounded by the faults of the run.
        self.errors: list[tuple[float, str, str]] = []
        # A tool that runs a story reads them from there, also when the run fails before its end.
        control = RUN_CONTROL.get(None)
        if control is not None:
            # The same lists, not copies: what a run adds before it fails is in them.
            control.events, control.errors = self.events, self.errors
        # How all disks behave, those made later included; a disk's own differ while a fault of it
        # lasts. ``set_disk_conditions`` changes them.
        self.disk_conditions = disk or DiskConditions()
        self.disk_capacity_bytes = disk_capacity_bytes
        self.are_disks_lying = canary is Canary.LYING_DISK
        self._listener = _ErrorListener(self)

    async def __aenter__(self) -> Self:
        # The root logger is that of this Python process: two worlds at a time would both listen.
        logging.getLogger().addHandler(self._listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logging.getLogger().removeHandler(self._listener)
        control = RUN_CONTROL.get(None)
        if control is not None:
            control.events = list(self.events)  # without those of the kills below
        elif error is not None:
            error.add_note(self.describe())
        # Objects of a story's processes must not outlive it: the next one may run in this process.
        for host in self.hosts.values():
            host.kill()
        # Here, while the loop runs: the cleanup of dead tasks asks for the running loop.
        self.loop.bury()

    def describe(self) -> str:
        """The state of the world in words, for the report of a failed run: each host with its
        status, the last errors that processes logged, and what was last done to the world."""
        lines = [f"at {self.loop.now_s:.3f} s of virtual time", "hosts:"]
        lines += (f"  {host.name} {host.describe()}" for host in self.hosts.values())
        cuts = ", ".join(f"{one} to {other}" for one, other in sorted(self.network.cuts))
        lines += [f"cut links: {cuts or 'none'}", "errors, the last ones:"]
        last_errors = self.errors[-EVENTS_DESCRIBED_MAX:]
        lines += (f"  {at_s:.3f} {host}: {text}" for at_s, host, text in last_errors)
        lines += ["events, the last ones:"]
        lines += (f"  {at_s:.3f} {text}" for at_s, text in self.events[-EVENTS_DESCRIBED_MAX:])
        return "\n".join(lines)

    def host(self, name: str, zookeeper: SimulatedZooKeeper | None = None) -> Host:
        """The host ``name``, made when first asked for; it runs nothing by itself.

        Its ZooKeeper is the one for hosts of no site, unless another is given.
        """
        assert name != ZOOKEEPER, "ZooKeeper's machine runs no process of ours"
        found = self.hosts.get(name)
        if found is None:
            # Never removed: a host that is down keeps its disks, its clock and the count of its
            # lives.
            found = self.hosts[name] = Host(self, name, zookeeper or self.zookeeper)
        return found

    def site(self, name: str) -> Site:
        """A new site. The names of its hosts begin with its name."""
        zookeeper = self._new_zookeeper(f"{name}-{ZOOKEEPER}")
        return Site(name, zookeeper, lambda host: self.host(f"{name}-{host}", zookeeper))

    def _new_zookeeper(self, name: str) -> SimulatedZooKeeper:
        zookeeper = SimulatedZooKeeper(self.loop, self._coordination, name=name)
        zookeeper.is_deaf = self._canary is Canary.DEAF_WATCH
        self.zookeepers.append(zookeeper)
        return zookeeper

    def set_disk_conditions(self, conditions: DiskConditions) -> None:
        """Let all disks behave like this, whatever befell single ones before."""
        self.disk_conditions = conditions
        for host in self.hosts.values():
            for disk in host.devices.values():
                disk.conditions = conditions

    def partition(self, one: str, other: str, *, is_one_way: bool = False) -> None:
        """Let nothing through between two hosts; either may be ``ZOOKEEPER``, the other's own.

        ``is_one_way``: what ``other`` sends still reaches ``one``. This does not work with
        ``ZOOKEEPER``, whose sessions have one state for both ways.
        """
        way = (
            f"{one} no longer reaches {other}" if is_one_way else f"{one} and {other} are cut apart"
        )
        self.note(way)
        # ZooKeeper has no host here: its sessions are no streams of the simulated network.
        if ZOOKEEPER in (one, other):
            host = other if one == ZOOKEEPER else one
            self._zookeeper_of(host).isolate(host)
        else:
            self.network.cut(one, other, is_one_way=is_one_way)

    def heal(self, one: str, other: str) -> None:
        """End a partition."""
        self.note(f"{one} and {other} are joined again")
        if ZOOKEEPER in (one, other):
            host = other if one == ZOOKEEPER else one
            self._zookeeper_of(host).restore(host)
        else:
            self.network.heal(one, other)

    def _zookeeper_of(self, host: str) -> SimulatedZooKeeper:
        # A host that was not made yet can be cut off in advance.
        known = self.hosts.get(host)
        return self.zookeeper if known is None else known.zookeeper

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something to the world later, outside of all processes: the one that asks may die."""
        self.loop.after(seconds, act, context=self.loop.main.context)

    def note(self, text: str) -> None:
        """Record, also in the trace, that something was done to the world."""
        self.events.append((self.loop.now_s, text))
        self.loop.trace.note(text)


@dataclass(frozen=True, slots=True)
class Site:
    """Hosts with a ZooKeeper of their own, as a cluster has one; the network is the world's.

    ``host`` gives the host of a name within the site, made when first asked for.
    """

    name: str
    zookeeper: SimulatedZooKeeper
    host: Callable[[str], Host]


class _ErrorListener(logging.Handler):
    """Records what the processes log as errors, with the host."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        errors = self._world.errors
        incarnation = CURRENT.get(None)
        # The process that logs is the one that runs: records themselves name no host. The first
        # errors are kept, for the later ones mostly follow from them.
        if len(errors) < ERRORS_KEPT_MAX:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text}: {record.exc_info[1]!r}"
            host = "main" if incarnation is None else incarnation.name
            errors.append((self._world.loop.now_s, host, text))
