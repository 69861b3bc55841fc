"""The fault menu, and who orders from it.

A ``FaultMenu`` says what may go wrong and how often: rates are events per virtual second over all
hosts, bounds have units. ``FaultInjector`` draws the moments and the victims from the world's seed.
Faults that belong to every operation (delays, torn writes, disk errors) are the menu's conditions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
from geminga_simulation.coordination import SESSION_TIMEOUT_S_DEFAULT, SimulatedZooKeeper
from geminga_simulation.coordination_requests import Follower
from geminga_simulation.coordination_session import SimulatedSession
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.host import Host
from geminga_simulation.run_control import RUN_CONTROL, RunControl, chosen_from, dishes_of
from geminga_simulation.world import ZOOKEEPER, World
from geminga_simulation.write_troubles import Trouble

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
    read_error_probability=0.01,
    write_error_probability=0.001,
    sync_error_probability=0.001,
    full_probability=0.001,
)
# Much of what is read comes late or not at all; writes are as good as on a rough disk.
UNREADABLE_DISK = replace(
    ROUGH_DISK, uncached_probability=0.8, read_error_probability=0.2, slow_probability=0.1
)
ROUGH_COORDINATION = CoordinationConditions(
    delay_s_max=0.01,
    loss_probability=0.01,
    write_loss_probability=0.05,
    late_probability=0.02,
)
WHOLE_MENU_PROBABILITY = 0.25
# How much faster or slower than true time a monotonic clock may go. Two of them then run apart by
# less than a tenth, which is what leases of functions workers rely on (``CLOCK_MARGIN``) and what
# the doubt of a session leaves (``DOUBT_FRACTION``). Real ones are far better, except while chrony
# slews them, by 8.3 % at most unless it is told otherwise.
CLOCK_DRIFT_MAX = 0.045
# A device that fails to read does not do so each time: what is tried again may work.
FAILED_READS = 0.3


@dataclass(frozen=True, slots=True)
class FaultMenu(Conditions):
    """What may go wrong. A rate of 0 keeps a dish off the table.

    At most ``hosts_down_max`` hosts are down at a time (crashed, killed or standing still), each
    for at most ``down_s_max`` or ``pause_s_max``. A crash is silent (the machine dark until it is
    back) with ``silent_probability``. A session that expires is told so by the end of its
    connection, which with ``unnoticed_probability`` comes up to ``unnoticed_s_max`` later: clients
    break a connection on which they hear nothing for two thirds of their time-out.
    A swizzle cuts all links of one host, one after the other, and heals them in another order.
    A coordination step is one write to ZooKeeper that fails, is doubtful or late, rather of a kind
    that is seldom written (``write_troubles.py``).
    Syncs lie on the disks of those hosts only which a story names, for it must know what they may
    lose.
    """

    crash_rate: float = 0.0
    kill_rate: float = 0.0
    pause_rate: float = 0.0
    partition_rate: float = 0.0
    one_way_partition_rate: float = 0.0
    swizzle_rate: float = 0.0
    reset_rate: float = 0.0
    half_open_rate: float = 0.0
    session_loss_rate: float = 0.0
    session_expiry_rate: float = 0.0
    zookeeper_restart_rate: float = 0.0
    zookeeper_lag_rate: float = 0.0
    coordination_step_rate: float = 0.0
    disk_stall_rate: float = 0.0
    disk_failure_rate: float = 0.0
    lying_sync_rate: float = 0.0
    clock_jump_rate: float = 0.0
    clock_drift_rate: float = 0.0
    hosts_down_max: int = 1
    down_s_max: float = 3.0
    pause_s_max: float = 3.0
    partition_s_max: float = 3.0
    zookeeper_away_s_max: float = 2.0
    zookeeper_lag_s_max: float = 2.0
    disk_stall_s_max: float = 2.0
    disk_failure_s_max: float = 1.0
    lying_sync_s_max: float = 2.0
    unnoticed_s_max: float = SESSION_TIMEOUT_S_DEFAULT * 2 / 3
    clock_jump_ms_max: int = 60_000
    clock_drift_max: float = CLOCK_DRIFT_MAX
    silent_probability: float = 0.3
    unnoticed_probability: float = 0.5
    network: NetworkConditions = field(default_factory=NetworkConditions)
    disk: DiskConditions = field(default_factory=DiskConditions)
    coordination: CoordinationConditions = field(default_factory=CoordinationConditions)

    def drawn(self, random: Random) -> FaultMenu:
        """The whole menu, once in four times; else with each dish left out by chance.

        Runs in which some faults never happen find what runs with everything at once hide, and
        some mistakes need everything at once.
        """
        if random.random() < WHOLE_MENU_PROBABILITY:
            return chosen_from(self, self)
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
    one_way_partition_rate=0.2,
    swizzle_rate=0.1,
    reset_rate=1.0,
    half_open_rate=0.1,
    session_loss_rate=0.3,
    session_expiry_rate=0.1,
    zookeeper_restart_rate=0.1,
    zookeeper_lag_rate=0.3,
    coordination_step_rate=2.0,
    disk_stall_rate=0.1,
    disk_failure_rate=0.2,
    lying_sync_rate=0.5,
    clock_jump_rate=0.1,
    clock_drift_rate=0.3,
    network=ROUGH_NETWORK,
    disk=ROUGH_DISK,
    coordination=ROUGH_COORDINATION,
)


class FaultInjector:
    """Carries a menu out on a world: ``async with`` it around the work that must survive.

    ``victims`` are the hosts that may go down; links and sessions of all hosts may suffer. The
    syncs of ``liars`` may make nothing safe. Leaving the block ends all faults: partitions heal,
    hosts that are down start again, conditions are good. What was promised must then hold.
    """

    def __init__(
        self,
        world: World,
        menu: FaultMenu,
        victims: Sequence[Host],
        *,
        liars: Sequence[Host] = (),
    ) -> None:
        control = RUN_CONTROL.get(None) or RunControl()
        self._world = world
        self._menu = chosen_from(menu, menu)
        self._end_s = control.faults_end_s
        control.dishes = dishes_of(self._menu)
        self._victims = list(victims)
        self._liars = list(liars)
        self._random = world.loop.stream("faults")
        # How often each dish was ordered.
        self.orders = Counter[str]()
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        self._partitions: dict[tuple[str, str], None] = {}
        self._down: dict[Host, None] = {}
        self._away: dict[SimulatedZooKeeper, None] = {}
        self._dishes: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "kill": self._kill,
            "pause": self._pause,
            "partition": self._partition,
            "one_way_partition": self._one_way_partition,
            "swizzle": self._swizzle,
            "reset": self._reset,
            "half_open": self._half_open,
            "session_loss": self._session_loss,
            "session_expiry": self._session_expiry,
            "zookeeper_restart": self._zookeeper_restart,
            "zookeeper_lag": self._zookeeper_lag,
            "coordination_step": self._coordination_step,
            "disk_stall": self._disk_stall,
            "disk_failure": self._disk_failure,
            "lying_sync": self._lying_sync,
            "clock_jump": self._clock_jump,
            "clock_drift": self._clock_drift,
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
        self._is_over = True
        self._set_conditions(NetworkConditions(), DiskConditions(), CoordinationConditions())
        for pair in list(self._partitions):
            self._heal(pair)
        for host in list(self._down):
            self._bring_up(host)
        for host in self._liars:
            self._tell_the_truth(host)
        for host in self._victims:
            if host.pace.rate != 1.0:
                self._world.loop.change_pace(host.pace, 1.0)
        for zookeeper in list(self._away):
            self._come_back(zookeeper)
        for zookeeper in self._world.zookeepers:
            zookeeper.troubles.clear()
            zookeeper.catch_up()

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
            if self._world.loop.now_s > self._end_s:
                self.calm()
                return
            (name,) = self._random.choices(names, rates)
            self.orders[name] += 1
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
        one, other = self._random.sample([*self._world.hosts, ZOOKEEPER], 2)
        self._cut(one, other, self._random.random() * self._menu.partition_s_max)

    def _one_way_partition(self) -> None:
        if len(self._world.hosts) > 1:
            one, other = self._random.sample(list(self._world.hosts), 2)
            seconds = self._random.random() * self._menu.partition_s_max
            self._cut(one, other, seconds, is_one_way=True)

    def _swizzle(self) -> None:
        hosts = list(self._world.hosts)
        host = self._random.choice(hosts)
        for other in [*hosts, ZOOKEEPER]:
            if other != host:
                begin_s, end_s = sorted(
                    self._random.random() * self._menu.partition_s_max for _ in range(2)
                )
                self._world.later(begin_s, partial(self._cut, host, other, end_s - begin_s))

    def _cut(self, one: str, other: str, seconds: float, *, is_one_way: bool = False) -> None:
        """Cut two hosts apart for so long, unless they are already, or all faults have ended."""
        if self._is_over or self._world.loop.now_s > self._end_s:
            return
        if (one, other) in self._partitions or (other, one) in self._partitions:
            return
        self._partitions[one, other] = None
        self._world.partition(one, other, is_one_way=is_one_way)
        self._world.later(seconds, partial(self._heal, (one, other)))

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
            is_noticed = self._random.random() >= self._menu.unnoticed_probability
            noticed_s = 0.0 if is_noticed else self._random.random() * self._menu.unnoticed_s_max
            zookeeper.expire(session, noticed_s)

    def _zookeeper_restart(self) -> None:
        zookeeper = self._random.choice(self._world.zookeepers)
        if zookeeper not in self._away and not zookeeper.is_away:
            self._world.note("ZooKeeper is restarted")
            self._away[zookeeper] = None
            zookeeper.go_away()
            seconds = self._random.random() * self._menu.zookeeper_away_s_max
            self._world.later(seconds, partial(self._come_back, zookeeper))

    def _come_back(self, zookeeper: SimulatedZooKeeper) -> None:
        if zookeeper in self._away:
            del self._away[zookeeper]
            zookeeper.come_back(keeps_sessions=True)

    def _zookeeper_lag(self) -> None:
        sessions = self._sessions()
        if not sessions:
            return
        zookeeper, _ = self._random.choice(sessions)
        if zookeeper.follower is None and not zookeeper.is_away:
            behind = [each for each in zookeeper.sessions() if self._random.random() < 0.5]
            seconds = self._random.random() * self._menu.zookeeper_lag_s_max
            hosts = ", ".join(dict.fromkeys(session.host for session in behind))
            self._world.note(f"a follower lags by {seconds:.6f} s, which serves {hosts or 'none'}")
            zookeeper.fall_behind(behind)
            self._world.later(seconds, partial(self._catch_up, zookeeper, zookeeper.follower))

    def _catch_up(self, zookeeper: SimulatedZooKeeper, follower: Follower | None) -> None:
        if zookeeper.follower is follower:
            zookeeper.catch_up()

    def _coordination_step(self) -> None:
        sessions = self._sessions()
        if sessions:
            zookeeper, _ = self._random.choice(sessions)
            zookeeper.troubles.plan(self._random.choice(list(Trouble)), self._world.note)

    def _disk_stall(self) -> None:
        seconds = self._random.random() * self._menu.disk_stall_s_max
        disk = self._disk()
        if disk is not None:
            self._world.note(f"{disk.name} is slow for {seconds:.6f} s")
            slow = replace(disk.conditions, slow_probability=1.0, slow_s_max=seconds)
            self._have(disk, slow, seconds)

    def _disk_failure(self) -> None:
        seconds = self._random.random() * self._menu.disk_failure_s_max
        disk = self._disk()
        if disk is not None:
            self._world.note(f"reads of {disk.name} fail for {seconds:.6f} s")
            self._have(disk, replace(disk.conditions, read_error_probability=FAILED_READS), seconds)

    def _lying_sync(self) -> None:
        """The syncs of one host's disks return, for a while, and make nothing safe; then its power
        fails. The later a disk is told the truth, the more has been confirmed and is lost."""
        honest = [
            host
            for host in self._liars
            if host.is_running and not any(disk.is_lying for disk in host.devices.values())
        ]
        if honest:
            host = self._random.choice(honest)
            seconds = self._random.random() * self._menu.lying_sync_s_max
            self._world.note(f"syncs of {host.name} make nothing safe for {seconds:.6f} s")
            for disk in host.devices.values():
                disk.is_lying = True
            self._world.later(seconds, partial(self._lose_power, host))

    def _lose_power(self, host: Host) -> None:
        if host.is_running and any(disk.is_lying for disk in host.devices.values()):
            host.crash()
            self._bring_up_later(host, self._menu.down_s_max)
        self._tell_the_truth(host)

    def _tell_the_truth(self, host: Host) -> None:
        for disk in host.devices.values():
            disk.is_lying = False

    def _disk(self) -> SimulatedDisk | None:
        """A disk that works as well as all others do."""
        disks = [
            disk
            for host in self._victims
            for disk in host.devices.values()
            if disk.conditions is self._world.disk_conditions
        ]
        return self._random.choice(disks) if disks else None

    def _have(self, disk: SimulatedDisk, conditions: DiskConditions, seconds: float) -> None:
        disk.conditions = conditions
        self._world.later(seconds, partial(self._repair, disk, conditions))

    def _repair(self, disk: SimulatedDisk, conditions: DiskConditions) -> None:
        if disk.conditions is conditions:
            disk.conditions = self._world.disk_conditions

    def _sessions(self) -> list[tuple[SimulatedZooKeeper, SimulatedSession]]:
        """All sessions of living processes, each with the server that keeps it."""
        return [(each, session) for each in self._world.zookeepers for session in each.sessions()]

    def _clock_jump(self) -> None:
        host = self._random.choice(list(self._world.hosts.values()))
        bound_ms = self._menu.clock_jump_ms_max
        milliseconds = self._random.randint(-bound_ms, bound_ms)
        self._world.note(f"the clock of {host.name} jumps by {milliseconds} ms")
        host.clock.jump(milliseconds)

    def _clock_drift(self) -> None:
        """One of the victims: stories tell by the clocks of the other hosts what came when."""
        if self._victims:
            host = self._random.choice(self._victims)
            drift = self._random.uniform(-self._menu.clock_drift_max, self._menu.clock_drift_max)
            self._world.note(f"the monotonic clock of {host.name} goes at {1 + drift:.4f}")
            self._world.loop.change_pace(host.pace, 1 + drift)

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
