"""Carries a fault menu out on a simulated world: chooses moments and victims, and undoes the harm.

All choices come from a random stream of its own, so the same seed gives the same faults whatever
the processes under test do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from geminga_simulation.conditions import (
    CoordinationConditions,
    DiskConditions,
    NetworkConditions,
)
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
from geminga_simulation.zookeeper.server import SimulatedZooKeeper
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
        # Infinite, unless a tool repeats the run with faults that end earlier.
        self._end_s = control.faults_end_s
        control.dishes = dishes_of(self._menu)
        self._victims = list(victims)
        self._liars = list(liars)
        self._random = world.loop.stream("faults")
        # How often each dish was ordered.
        self.orders = Counter[str]()
        # All faults have ended; those that were planned for later must not begin. Set once, by
        # ``calm``; timers that were planned before look at it.
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        # What this injector has done and must undo, in the order of doing it. A story may harm the
        # world besides: that is not undone here. A dictionary for its order: ``calm`` heals in the
        # order of cutting, in every run.
        self._partitions: dict[tuple[str, str], None] = {}
        # Hosts whose process was killed, crashed or stopped by this injector.
        self._down: dict[Host, None] = {}
        self._away: dict[SimulatedZooKeeper, None] = {}

    async def __aenter__(self) -> Self:
        menu = self._menu
        # Before the task's first fault: links are rough from the first message on.
        self._set_conditions(menu.network, menu.disk, menu.coordination)
        self._task = self._world.loop.create_task(self._run(), name="faults")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        # First the task, then ``calm``: no fault may begin after the last one was undone.
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
            for disk in host.devices.values():
                disk.is_lying = False
        for host in self._victims:
            if host.pace.rate != 1.0:
                self._world.loop.change_pace(host.pace, 1.0)
        for zookeeper in list(self._away):
            self._come_back(zookeeper)
        for zookeeper in self._world.zookeepers:
            zookeeper.troubles.waiting.clear()
            zookeeper.catch_up()

    def _set_conditions(
        self, network: NetworkConditions, disk: DiskConditions, coordination: CoordinationConditions
    ) -> None:
        self._world.network.conditions = network
        self._world.set_disk_conditions(disk)
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
            # One draw for the kind and one for the moment: independent Poisson processes of each
            # rate, merged.
            (name,) = self._random.choices(names, rates)
            self.orders[name] += 1
            match name:
                case "crash" | "kill" | "pause":
                    self._harm_process(name)
                case "partition" | "one_way_partition" | "swizzle":
                    self._cut_links(name)
                case "reset" | "half_open":
                    self._harm_stream(name)
                case "session_loss" | "session_expiry" | "zookeeper_lag" | "coordination_step":
                    self._harm_session(name)
                case "zookeeper_restart":
                    self._restart_zookeeper()
                case "disk_stall" | "disk_failure":
                    self._harm_disk(name)
                case "lying_sync":
                    self._let_syncs_lie()
                case "clock_jump" | "clock_drift":
                    self._harm_clock(name)
                case _:
                    raise AssertionError(f"the menu has a dish that nothing serves: {name}")

    # --- the dishes: a method for those that befall the same kind of thing -------------------

    def _harm_process(self, dish: str) -> None:
        """Let the power of a host fail, kill its process, or let it stand still as SIGSTOP does; it
        is started again, or goes on, later."""
        # A fault that finds no victim is dropped. Put off, such faults would come in a heap as soon
        # as there is one.
        if len(self._down) >= self._menu.hosts_down_max:
            return
        # A host that stands still has a process, and counts as down.
        standing = [host for host in self._victims if host.is_running and host not in self._down]
        if not standing:
            return
        # A list in the order of ``victims``: a set would draw another host in another process.
        host = self._random.choice(standing)
        if dish == "pause":
            seconds = self._random.random() * self._menu.pause_s_max
            host.pause(seconds)
        else:
            if dish == "crash":
                host.crash(is_silent=self._random.random() < self._menu.silent_probability)
            else:
                host.kill()
            seconds = self._random.random() * self._menu.down_s_max
        self._bring_up_later(host, seconds)

    def _cut_links(self, dish: str) -> None:
        """Cut two hosts apart, or a host and ZooKeeper; or the way from one host to another, while
        the way back works; or all links of one host, one after the other."""
        hosts = list(self._world.hosts)
        seconds_max = self._menu.partition_s_max
        if dish == "partition":
            one, other = self._random.sample([*hosts, ZOOKEEPER], 2)
            self._cut(one, other, self._random.random() * seconds_max)
        elif dish == "one_way_partition":
            if len(hosts) > 1:
                one, other = self._random.sample(hosts, 2)
                self._cut(one, other, self._random.random() * seconds_max, is_one_way=True)
        else:
            host = self._random.choice(hosts)
            for other in [*hosts, ZOOKEEPER]:
                # Chance decides for each link when it breaks and heals: for a while the host
                # reaches some of the others and not the rest.
                if other != host:
                    begin_s, end_s = sorted(self._random.random() * seconds_max for _ in range(2))
                    self._world.later(begin_s, partial(self._cut, host, other, end_s - begin_s))

    def _cut(self, one: str, other: str, seconds: float, *, is_one_way: bool = False) -> None:
        """Cut two hosts apart for so long, unless they are apart, or all faults have ended."""
        if self._is_over or self._world.loop.now_s > self._end_s:
            return
        if (one, other) in self._partitions or (other, one) in self._partitions:
            return
        # Before it is planned to heal; ``_heal`` does nothing for a pair that is not here.
        self._partitions[one, other] = None
        self._world.partition(one, other, is_one_way=is_one_way)
        self._world.later(seconds, partial(self._heal, (one, other)))

    def _harm_stream(self, dish: str) -> None:
        """Break a stream at both ends, or let nothing through on it any more, unknown to both."""
        network = self._world.network
        streams = network.streams()
        if not streams:
            return
        stream = self._random.choice(streams)
        is_reset = dish == "reset"
        what = "is reset" if is_reset else "goes dark"
        self._world.note(f"stream {stream.host}>{stream.peer.host} {what}")
        if is_reset:
            network.reset(stream)
        else:
            network.darken(stream)

    def _harm_session(self, dish: str) -> None:
        """Do harm to a session of a living process, or by it to the server that keeps it."""
        world, menu, random = self._world, self._menu, self._random
        sessions = [(each, session) for each in world.zookeepers for session in each.sessions()]
        if not sessions:
            return
        zookeeper, session = random.choice(sessions)
        if dish == "session_loss":
            # The connection breaks; the session itself lives.
            world.note(f"{session.host} loses its connection to ZooKeeper")
            session.cut_link()
        elif dish == "session_expiry":
            world.note(f"the session of {session.host} expires")
            is_noticed = random.random() >= menu.unnoticed_probability
            noticed_s = 0.0 if is_noticed else random.random() * menu.unnoticed_s_max
            zookeeper.expire(session, noticed_s)
        elif dish == "coordination_step":
            # One of the next writes to this server meets with a trouble.
            zookeeper.troubles.waiting.append((random.choice(list(Trouble)), world.note))
        elif zookeeper.follower is None and not zookeeper.is_away:
            # Some sessions are connected to a follower that learns of changes late. One draw for
            # each session, connected or not; ``fall_behind`` leaves out those that are not.
            behind = [each for each in zookeeper.sessions() if random.random() < 0.5]
            seconds = random.random() * menu.zookeeper_lag_s_max
            hosts = ", ".join(dict.fromkeys(each.host for each in behind))
            world.note(f"a follower lags by {seconds:.6f} s, which serves {hosts or 'none'}")
            zookeeper.fall_behind(behind)
            follower = zookeeper.follower

            def catch_up() -> None:
                # Another follower may lag by now, if the story had this one catch up.
                if zookeeper.follower is follower:
                    zookeeper.catch_up()

            world.later(seconds, catch_up)

    def _restart_zookeeper(self) -> None:
        """Stop a ZooKeeper for a while; it keeps its sessions."""
        zookeeper = self._random.choice(self._world.zookeepers)
        # A story may have sent it away itself; then the story brings it back.
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

    def _harm_disk(self, dish: str) -> None:
        """Make every operation of a disk slow for a while, or let its reads fail."""
        menu = self._menu
        is_stall = dish == "disk_stall"
        bound_s = menu.disk_stall_s_max if is_stall else menu.disk_failure_s_max
        seconds = self._random.random() * bound_s
        # Only a disk of a victim that no fault has befallen now.
        normal = self._world.disk_conditions
        devices = [disk for host in self._victims for disk in host.devices.values()]
        # One fault of a disk at a time, since each repair sets the normal conditions.
        disks = [disk for disk in devices if disk.conditions is normal]
        if not disks:
            return
        disk = self._random.choice(disks)
        if is_stall:
            self._world.note(f"{disk.name} is slow for {seconds:.6f} s")
            harmed = replace(normal, slow_probability=1.0, slow_s_max=seconds)
        else:
            self._world.note(f"reads of {disk.name} fail for {seconds:.6f} s")
            harmed = replace(normal, read_error_probability=FAILED_READS)
        disk.conditions = harmed

        def repair() -> None:
            # By identity: the end of all faults, or a story, may have set others meanwhile.
            if disk.conditions is harmed:
                disk.conditions = self._world.disk_conditions

        self._world.later(seconds, repair)

    def _let_syncs_lie(self) -> None:
        """Let the syncs of one host's disks make nothing safe for a while, and then its power fail.
        The longer that takes, the more has been confirmed and is lost."""
        honest = [
            host
            for host in self._liars
            if host.is_running and not any(disk.is_lying for disk in host.devices.values())
        ]
        if not honest:
            return
        host = self._random.choice(honest)
        devices = host.devices
        seconds = self._random.random() * self._menu.lying_sync_s_max
        self._world.note(f"syncs of {host.name} make nothing safe for {seconds:.6f} s")
        for disk in devices.values():
            disk.is_lying = True

        def lose_power() -> None:
            # The truth was told again if all faults have ended: nothing may be lost any more then.
            if host.is_running and any(disk.is_lying for disk in devices.values()):
                host.crash()
                self._bring_up_later(host, self._random.random() * self._menu.down_s_max)
            for disk in devices.values():
                disk.is_lying = False

        self._world.later(seconds, lose_power)

    def _harm_clock(self, dish: str) -> None:
        """Set the wall clock of a host wrong, or let a victim's monotonic clock go at another rate.

        Only a victim's: stories tell by the clocks of the other hosts in which order things
        happened.
        """
        world, menu = self._world, self._menu
        if dish == "clock_jump":
            host = self._random.choice(list(world.hosts.values()))
            milliseconds = self._random.randint(-menu.clock_jump_ms_max, menu.clock_jump_ms_max)
            world.note(f"the clock of {host.name} jumps by {milliseconds} ms")
            # It stays wrong, also after all faults have ended: nothing may rely on wall clocks
            # agreeing.
            host.clock.skew_ms += milliseconds
        elif self._victims:
            host = self._random.choice(self._victims)
            rate = 1 + self._random.uniform(-menu.clock_drift_max, menu.clock_drift_max)
            world.note(f"the monotonic clock of {host.name} goes at {rate:.4f}")
            # Until the next such fault, or ``calm``: rates are not undone one by one.
            world.loop.change_pace(host.pace, rate)

    # --- undoing it ---------------------------------------------------------------------------

    def _bring_up_later(self, host: Host, seconds: float) -> None:
        self._down[host] = None
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
