"""Carries a fault menu out on a simulated world: chooses moments and victims, and undoes the harm.

All choices come from a random stream of its own, so the same seed gives the same faults whatever
the processes under test do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from geminga_simulation.conditions import (
    CoordinationConditions,
    DiskConditions,
    NetworkConditions,
)
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.run_control import (
    CONDITIONS,
    RUN_CONTROL,
    RunControl,
    chosen_from,
    dish_names,
    dishes_of,
)
from geminga_simulation.world import ZOOKEEPER, World
from geminga_simulation.zookeeper.requests import Follower
from geminga_simulation.zookeeper.server import SimulatedZooKeeper
from geminga_simulation.zookeeper.session import SimulatedSession
from geminga_simulation.zookeeper.write_troubles import Trouble

# A device that fails to read does not do so each time: what is tried again may work.
FAILED_READS = 0.3


class FaultInjector:
    """Carries a menu out on a world: ``async with`` it around the work that must survive.

    ``victims`` are the hosts that may go down; links and sessions of all hosts may suffer. Syncs of
    the disks of ``liars`` may make nothing safe. Leaving the block ends all faults: partitions
    heal, hosts that are down start again, conditions are good. What was promised must then hold.
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
        # All faults have ended; those that were planned for later must not begin.
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        # What this injector has done and must undo, in the order of doing it. A story may harm the
        # world besides: that is not undone here.
        self._partitions: dict[tuple[str, str], None] = {}
        # Hosts whose process was killed, crashed or stopped by this injector.
        self._down: dict[Host, None] = {}
        self._away: dict[SimulatedZooKeeper, None] = {}

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
        # Cuts that a swizzle has planned for later do nothing from here on.
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
        # In the order of the menu's fields, on which the draws depend.
        names = [name for name in dish_names(FaultMenu) if name not in CONDITIONS]
        rates: list[float] = [getattr(self._menu, f"{name}_rate") for name in names]
        total = sum(rates)
        while total > 0:
            # A Poisson process: faults have no memory, and may come in bursts.
            await asyncio.sleep(self._random.expovariate(total))
            if self._world.loop.now_s > self._end_s:
                self.calm()
                return
            (name,) = self._random.choices(names, rates)
            self.orders[name] += 1
            serve: Callable[[], None] = getattr(self, name)
            serve()

    # --- the dishes: a method for each rate of the menu ---------------------------------------

    def crash(self) -> None:
        """Let the power of a host fail; it is started again later."""
        host = self._victim()
        if host is not None:
            host.crash(is_silent=self._random.random() < self._menu.silent_probability)
            self._bring_up_later(host, self._menu.down_s_max)

    def kill(self) -> None:
        """Kill a process; it is started again later."""
        host = self._victim()
        if host is not None:
            host.kill()
            self._bring_up_later(host, self._menu.down_s_max)

    def pause(self) -> None:
        """Let a process stand still for a while, as SIGSTOP does."""
        host = self._victim()
        if host is not None:
            seconds = self._random.random() * self._menu.pause_s_max
            host.pause(seconds)
            self._down[host] = None
            self._world.later(seconds, partial(self._bring_up, host))

    def partition(self) -> None:
        """Cut two hosts apart, or a host and ZooKeeper."""
        one, other = self._random.sample([*self._world.hosts, ZOOKEEPER], 2)
        self._cut(one, other, self._random.random() * self._menu.partition_s_max)

    def one_way_partition(self) -> None:
        """Cut the way from one host to another; the way back works."""
        if len(self._world.hosts) > 1:
            one, other = self._random.sample(list(self._world.hosts), 2)
            seconds = self._random.random() * self._menu.partition_s_max
            self._cut(one, other, seconds, is_one_way=True)

    def swizzle(self) -> None:
        """Cut all links of one host, one after the other, and heal them in another order."""
        hosts = list(self._world.hosts)
        host = self._random.choice(hosts)
        for other in [*hosts, ZOOKEEPER]:
            # Chance decides for each link when it breaks and heals: for a while the host reaches
            # some of the others and not the rest.
            if other != host:
                begin_s, end_s = sorted(
                    self._random.random() * self._menu.partition_s_max for _ in range(2)
                )
                self._world.later(begin_s, partial(self._cut, host, other, end_s - begin_s))

    def _cut(self, one: str, other: str, seconds: float, *, is_one_way: bool = False) -> None:
        """Cut two hosts apart for so long, unless they are apart, or all faults have ended."""
        if self._is_over or self._world.loop.now_s > self._end_s:
            return
        if (one, other) in self._partitions or (other, one) in self._partitions:
            return
        self._partitions[one, other] = None
        self._world.partition(one, other, is_one_way=is_one_way)
        self._world.later(seconds, partial(self._heal, (one, other)))

    def reset(self) -> None:
        """Break a stream at both ends."""
        streams = self._world.network.streams()
        if streams:
            stream = self._random.choice(streams)
            self._world.note(f"stream {stream.host}>{stream.peer.host} is reset")
            self._world.network.reset(stream)

    def half_open(self) -> None:
        """Let nothing through on a stream any more, unknown to both ends."""
        streams = self._world.network.streams()
        if streams:
            stream = self._random.choice(streams)
            self._world.note(f"stream {stream.host}>{stream.peer.host} goes dark")
            self._world.network.darken(stream)

    def session_loss(self) -> None:
        """Break the connection of a session; the session itself lives."""
        sessions = self._sessions()
        if sessions:
            _, session = self._random.choice(sessions)
            self._world.note(f"{session.host} loses its connection to ZooKeeper")
            session.cut_link()

    def session_expiry(self) -> None:
        """End a session at the server."""
        sessions = self._sessions()
        if sessions:
            zookeeper, session = self._random.choice(sessions)
            self._world.note(f"the session of {session.host} expires")
            is_noticed = self._random.random() >= self._menu.unnoticed_probability
            noticed_s = 0.0 if is_noticed else self._random.random() * self._menu.unnoticed_s_max
            zookeeper.expire(session, noticed_s)

    def zookeeper_restart(self) -> None:
        """Stop a ZooKeeper for a while; it keeps its sessions."""
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

    def zookeeper_lag(self) -> None:
        """Connect some sessions to a follower that learns of changes late."""
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
        # Another follower may lag by now, if the story had this one catch up.
        if zookeeper.follower is follower:
            zookeeper.catch_up()

    def coordination_step(self) -> None:
        """Let one of the next writes to a ZooKeeper meet with a trouble."""
        sessions = self._sessions()
        if sessions:
            zookeeper, _ = self._random.choice(sessions)
            zookeeper.troubles.plan(self._random.choice(list(Trouble)), self._world.note)

    def disk_stall(self) -> None:
        """Make every operation of a disk slow for a while."""
        seconds = self._random.random() * self._menu.disk_stall_s_max
        disk = self._disk()
        if disk is not None:
            self._world.note(f"{disk.name} is slow for {seconds:.6f} s")
            slow = replace(disk.conditions, slow_probability=1.0, slow_s_max=seconds)
            self._change_for(disk, slow, seconds)

    def disk_failure(self) -> None:
        """Let reads of a disk fail for a while."""
        seconds = self._random.random() * self._menu.disk_failure_s_max
        disk = self._disk()
        if disk is not None:
            self._world.note(f"reads of {disk.name} fail for {seconds:.6f} s")
            failing = replace(disk.conditions, read_error_probability=FAILED_READS)
            self._change_for(disk, failing, seconds)

    def lying_sync(self) -> None:
        """Let the syncs of one host's disks make nothing safe for a while, and then its power fail.
        The longer that takes, the more has been confirmed and is lost."""
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
        # The truth was told again if all faults have ended: nothing may be lost any more then.
        if host.is_running and any(disk.is_lying for disk in host.devices.values()):
            host.crash()
            self._bring_up_later(host, self._menu.down_s_max)
        self._tell_the_truth(host)

    def _tell_the_truth(self, host: Host) -> None:
        for disk in host.devices.values():
            disk.is_lying = False

    def _disk(self) -> SimulatedDisk | None:
        """A disk of a victim that no fault has befallen now; None where there is none."""
        disks = [
            disk
            for host in self._victims
            for disk in host.devices.values()
            if disk.conditions is self._world.disk_conditions
        ]
        return self._random.choice(disks) if disks else None

    def _change_for(self, disk: SimulatedDisk, conditions: DiskConditions, seconds: float) -> None:
        """Give a disk other conditions for so long, unless the world's are changed meanwhile."""
        disk.conditions = conditions
        self._world.later(seconds, partial(self._repair, disk, conditions))

    def _repair(self, disk: SimulatedDisk, conditions: DiskConditions) -> None:
        # By identity: the end of all faults, or a story, may have set others meanwhile.
        if disk.conditions is conditions:
            disk.conditions = self._world.disk_conditions

    def _sessions(self) -> list[tuple[SimulatedZooKeeper, SimulatedSession]]:
        """All sessions of living processes, each with the server that keeps it."""
        return [(each, session) for each in self._world.zookeepers for session in each.sessions()]

    def clock_jump(self) -> None:
        """Set the wall clock of a host wrong."""
        host = self._random.choice(list(self._world.hosts.values()))
        bound_ms = self._menu.clock_jump_ms_max
        milliseconds = self._random.randint(-bound_ms, bound_ms)
        self._world.note(f"the clock of {host.name} jumps by {milliseconds} ms")
        host.clock.skew_ms += milliseconds

    def clock_drift(self) -> None:
        """Let a victim's monotonic clock go at another rate. Stories tell by the clocks of the
        other hosts in which order things happened."""
        if self._victims:
            host = self._random.choice(self._victims)
            drift = self._random.uniform(-self._menu.clock_drift_max, self._menu.clock_drift_max)
            self._world.note(f"the monotonic clock of {host.name} goes at {1 + drift:.4f}")
            self._world.loop.change_pace(host.pace, 1 + drift)

    # --- going down and coming up -------------------------------------------------------------

    def _victim(self) -> Host | None:
        """A host that may go down now; None where as many are down as may be."""
        if len(self._down) >= self._menu.hosts_down_max:
            return None
        # A host that stands still has a process, and counts as down.
        standing = [host for host in self._victims if host.is_running and host not in self._down]
        return self._random.choice(standing) if standing else None

    def _bring_up_later(self, host: Host, seconds_max: float) -> None:
        self._down[host] = None
        seconds = self._random.random() * seconds_max
        self._world.later(seconds, partial(self._bring_up, host))

    def _bring_up(self, host: Host) -> None:
        if host in self._down:
            del self._down[host]
            # It runs where it only stood still, or where the story has started it again.
            if not host.is_running:
                host.restart()

    def _heal(self, pair: tuple[str, str]) -> None:
        if pair in self._partitions:
            del self._partitions[pair]
            self._world.heal(*pair)
