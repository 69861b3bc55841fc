"""The fault menu, and who orders from it.

A ``FaultMenu`` says what may go wrong and how often: rates are events per virtual second over all
hosts, bounds have units. ``FaultInjector`` draws the moments and the victims from the world's seed.
Faults that belong to every operation (delays, torn writes, disk errors) are the menu's conditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from random import Random
from typing import Any, Self

from geminga_simulation.conditions import (
    Conditions,
    CoordinationConditions,
    DiskConditions,
    NetworkConditions,
)
from geminga_simulation.coordination import SimulatedZooKeeper
from geminga_simulation.coordination_session import SimulatedSession
from geminga_simulation.host import Host
from geminga_simulation.run_control import RUN_CONTROL, RunControl, chosen_from, dishes_of
from geminga_simulation.world import ZOOKEEPER, World

# Conditions that are bad enough to matter and good enough for work to be done.
ROUGH_NETWORK = NetworkConditions(
    delay_s_max=0.003,
    late_probability=0.02,
    cut_probability=0.2,
    merge_probability=0.2,
    window_bytes=16 * 1024,
)
ROUGH_DISK = DiskConditions(sync_s_max=0.003, slow_probability=0.01, torn_probability=0.7)
FAILING_DISK = replace(
    ROUGH_DISK,
    read_error_probability=0.001,
    write_error_probability=0.001,
    sync_error_probability=0.001,
    full_probability=0.001,
)
ROUGH_COORDINATION = CoordinationConditions(delay_s_max=0.01, loss_probability=0.01)


@dataclass(frozen=True, slots=True)
class FaultMenu(Conditions):
    """What may go wrong. A rate of 0 keeps a dish off the table.

    At most ``hosts_down_max`` hosts are down at a time (crashed, killed or standing still), each
    for at most ``down_s_max`` or ``pause_s_max``. A crash is silent (the machine dark until it is
    back) with ``silent_probability``.
    """

    crash_rate: float = 0.0
    kill_rate: float = 0.0
    pause_rate: float = 0.0
    partition_rate: float = 0.0
    reset_rate: float = 0.0
    half_open_rate: float = 0.0
    session_loss_rate: float = 0.0
    session_expiry_rate: float = 0.0
    clock_jump_rate: float = 0.0
    hosts_down_max: int = 1
    down_s_max: float = 3.0
    pause_s_max: float = 3.0
    partition_s_max: float = 3.0
    clock_jump_ms_max: int = 60_000
    silent_probability: float = 0.3
    network: NetworkConditions = field(default_factory=NetworkConditions)
    disk: DiskConditions = field(default_factory=DiskConditions)
    coordination: CoordinationConditions = field(default_factory=CoordinationConditions)

    def drawn(self, random: Random) -> FaultMenu:
        """This menu with each dish left out by chance.

        Runs in which some faults never happen find what runs with everything at once hide.
        """
        left_out: dict[str, Any] = {
            entry.name: 0.0
            for entry in fields(self)
            if entry.name.endswith("_rate") and random.random() < 0.5
        }
        network = self.network if random.random() < 0.5 else NetworkConditions()
        disk = self.disk if random.random() < 0.5 else DiskConditions()
        coordination = self.coordination if random.random() < 0.5 else CoordinationConditions()
        drawn = replace(self, network=network, disk=disk, coordination=coordination, **left_out)
        return chosen_from(self, drawn)


FULL_MENU = FaultMenu(
    crash_rate=0.5,
    kill_rate=0.3,
    pause_rate=0.3,
    partition_rate=0.3,
    reset_rate=1.0,
    half_open_rate=0.1,
    session_loss_rate=0.3,
    session_expiry_rate=0.1,
    clock_jump_rate=0.1,
    network=ROUGH_NETWORK,
    disk=ROUGH_DISK,
    coordination=ROUGH_COORDINATION,
)


class FaultInjector:
    """Carries a menu out on a world: ``async with`` it around the work that must survive.

    ``victims`` are the hosts that may go down; links and sessions of all hosts may suffer. Leaving
    the block ends all faults: partitions heal, hosts that are down start again, conditions are
    good. What was promised must then hold.
    """

    def __init__(self, world: World, menu: FaultMenu, victims: Sequence[Host]) -> None:
        control = RUN_CONTROL.get(None) or RunControl()
        self._world = world
        self._menu = chosen_from(menu, menu)
        self._end_s = control.faults_end_s
        control.dishes = dishes_of(self._menu)
        self._victims = list(victims)
        self._random = world.loop.stream("faults")
        self._task: asyncio.Task[None] | None = None
        self._partitions: dict[tuple[str, str], None] = {}
        self._down: dict[Host, None] = {}
        self._dishes: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "kill": self._kill,
            "pause": self._pause,
            "partition": self._partition,
            "reset": self._reset,
            "half_open": self._half_open,
            "session_loss": self._session_loss,
            "session_expiry": self._session_expiry,
            "clock_jump": self._clock_jump,
        }

    async def __aenter__(self) -> Self:
        menu = self._menu
        self._set_conditions(menu.network, menu.disk, menu.coordination)
        self._task = self._world.loop.create_task(self._run(), name="faults")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        self.calm()

    def calm(self) -> None:
        """End all faults."""
        self._set_conditions(NetworkConditions(), DiskConditions(), CoordinationConditions())
        for pair in list(self._partitions):
            self._heal(pair)
        for host in list(self._down):
            self._bring_up(host)

    def _set_conditions(
        self, network: NetworkConditions, disk: DiskConditions, coordination: CoordinationConditions
    ) -> None:
        self._world.network.conditions = network
        self._world.disk_conditions = disk
        for zookeeper in self._world.zookeepers:
            zookeeper.conditions = coordination

    async def _run(self) -> None:
        names = list(self._dishes)
        rates: list[float] = [getattr(self._menu, f"{name}_rate") for name in names]
        total = sum(rates)
        while total > 0:
            await asyncio.sleep(self._random.expovariate(total))
            if self._world.loop.time() > self._end_s:
                self.calm()
                return
            (name,) = self._random.choices(names, rates)
            self._dishes[name]()

    # --- the dishes ---------------------------------------------------------------------------

    def _crash(self) -> None:
        host = self._victim()
        if host is not None:
            host.crash(is_silent=self._random.random() < self._menu.silent_probability)
            self._bring_up_later(host, self._menu.down_s_max)

    def _kill(self) -> None:
        host = self._victim()
        if host is not None:
            host.kill()
            self._bring_up_later(host, self._menu.down_s_max)

    def _pause(self) -> None:
        host = self._victim()
        if host is not None:
            seconds = self._random.random() * self._menu.pause_s_max
            host.pause(seconds)
            self._down[host] = None
            self._world.later(seconds, partial(self._bring_up, host))

    def _partition(self) -> None:
        names = [*self._world.hosts, ZOOKEEPER]
        one, other = self._random.sample(names, 2)
        pair = (one, other)
        if pair not in self._partitions and (other, one) not in self._partitions:
            self._partitions[pair] = None
            self._world.partition(one, other)
            seconds = self._random.random() * self._menu.partition_s_max
            self._world.later(seconds, partial(self._heal, pair))

    def _reset(self) -> None:
        streams = self._world.network.streams()
        if streams:
            stream = self._random.choice(streams)
            self._world.note(f"stream {stream.host}>{stream.peer.host} is reset")
            self._world.network.reset(stream)

    def _half_open(self) -> None:
        streams = self._world.network.streams()
        if streams:
            stream = self._random.choice(streams)
            self._world.note(f"stream {stream.host}>{stream.peer.host} goes dark")
            self._world.network.darken(stream)

    def _session_loss(self) -> None:
        sessions = self._sessions()
        if sessions:
            zookeeper, session = self._random.choice(sessions)
            self._world.note(f"{session.host} loses its connection to ZooKeeper")
            zookeeper.disconnect(session)

    def _session_expiry(self) -> None:
        sessions = self._sessions()
        if sessions:
            zookeeper, session = self._random.choice(sessions)
            self._world.note(f"the session of {session.host} expires")
            zookeeper.expire(session)

    def _sessions(self) -> list[tuple[SimulatedZooKeeper, SimulatedSession]]:
        """All sessions of living processes, each with the server that keeps it."""
        return [(each, session) for each in self._world.zookeepers for session in each.sessions()]

    def _clock_jump(self) -> None:
        host = self._random.choice(list(self._world.hosts.values()))
        bound_ms = self._menu.clock_jump_ms_max
        milliseconds = self._random.randint(-bound_ms, bound_ms)
        self._world.note(f"the clock of {host.name} jumps by {milliseconds} ms")
        host.clock.jump(milliseconds)

    # --- going down and coming up -------------------------------------------------------------

    def _victim(self) -> Host | None:
        """A host that may go down now."""
        if len(self._down) >= self._menu.hosts_down_max:
            return None
        standing = [host for host in self._victims if host.is_running and host not in self._down]
        return self._random.choice(standing) if standing else None

    def _bring_up_later(self, host: Host, seconds_max: float) -> None:
        self._down[host] = None
        seconds = self._random.random() * seconds_max
        self._world.later(seconds, partial(self._bring_up, host))

    def _bring_up(self, host: Host) -> None:
        if host in self._down:
            del self._down[host]
            if not host.is_running:
                host.restart()

    def _heal(self, pair: tuple[str, str]) -> None:
        if pair in self._partitions:
            del self._partitions[pair]
            self._world.heal(*pair)
