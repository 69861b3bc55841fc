"""A machine of the simulated world: its process, which may die, and its disks, which stay.

Everything a process does happens in its incarnation (``event_loop/incarnation.py``). Killing it is
final: no callback, timer or task of it runs again. Its files, streams and session do nothing more,
even if its objects are still in memory and Python runs their cleanup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, Protocol, TypeVar

from geminga_runtime.disk import Disk
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.errors import HostCrashed, SimulationError
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.incarnation import Incarnation, Pace
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.tcp.network import SimulatedNetwork
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT, SimulatedZooKeeper
from geminga_simulation.zookeeper.session import SimulatedSession

ResultT = TypeVar("ResultT")
ServiceT = TypeVar("ServiceT")


class Surroundings(Protocol):
    """The world, as its hosts see it: ``World``, where each is explained."""

    loop: SimulatedLoop
    network: SimulatedNetwork
    turn_cost_s: float
    disk_conditions: DiskConditions
    disk_capacity_bytes: int
    are_disks_lying: bool

    def note(self, text: str) -> None:
        """Note what was done, for the report of a failed run."""
        ...


# The life of a process, and what each end of it leaves on the disks:
#
#     start ──▶ runs ──┬── main returns, also after ``stop`` ──▶ every written byte
#       ▲              ├── kill (SIGKILL) ────────────────────▶ every written byte
#       │              ├── crash (power) ─────────────────────▶ what was synced, perhaps more
#       │              └── pause (SIGSTOP): it runs on later, as the same process
#       └── restart: the same ``main``, a new incarnation, ``lives`` + 1
class Host:
    """One machine. Its process is what ``start`` was given, or nothing.

    ``network``, ``clock``, ``random``, ``disk`` and ``coordination`` are what the process sees of
    the world. ``zookeeper`` is the coordination service of its cluster.
    """

    def __init__(self, world: Surroundings, name: str, zookeeper: SimulatedZooKeeper) -> None:
        self.name = name
        self.zookeeper = zookeeper
        self.network = world.network.host(name)
        self.pace = Pace()
        self.clock = SimulatedClock(world.loop, pace=self.pace)
        # Another stream in each life, so that a restarted process draws other numbers.
        self.random: Random = world.loop.stream(f"{name}/0")
        self.devices: dict[str, SimulatedDisk] = {}
        # Errors with which ``main`` ended, oldest first.
        self.failures: list[BaseException] = []
        # How many processes were started here, the running one included.
        self.lives = 0
        # The text, and since when it holds, in virtual time.
        self._status, self._status_s = "has never run", 0.0
        self._world = world
        # What runs in the process, and again after a restart. Kept when the process ends.
        self._main: Callable[[Host], Coroutine[Any, Any, object]] | None = None
        self._incarnation: Incarnation | None = None
        # Of the running process: set when it is asked to end.
        self._stopping: asyncio.Event | None = None
        # Of the last process: done when it has ended, in whatever way. ``stop`` waits for it; a
        # kill resolves it, too.
        self._exited: asyncio.Future[None] | None = None
        # Futures of code outside that waits for this process: they fail when it dies. In the order
        # of asking, so that their waiters wake in one order in every run.
        self._promises: dict[asyncio.Future[Any], None] = {}

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._incarnation is not None

    @property
    def status(self) -> str:
        """What the process does, in words: "serves", or why it could not start. Stories set it."""
        return self._status

    @status.setter
    def status(self, text: str) -> None:
        self._status, self._status_s = text, self._world.loop.now_s

    def describe(self) -> str:
        """The host's status, since when, and in which life, in one line."""
        since = f"{self.status}, as of {self._status_s:.3f} s"
        life = f"in life {self.lives}" if self.is_running else "and is down"
        return f"{since}, {life}" if self.lives else self.status

    # --- what a process is given --------------------------------------------------------------

    def device(self, name: str) -> SimulatedDisk:
        """The device ``name`` itself, for faults and checkers; made when first asked for."""
        found = self.devices.get(name)
        if found is None:
            world = self._world
            found = self.devices[name] = SimulatedDisk(
                world.loop,
                f"{self.name}/{name}",
                world.disk_conditions,
                capacity_bytes=world.disk_capacity_bytes,
            )
            found.is_lying = world.are_disks_lying
        return found

    def disk(self, name: str) -> Disk:
        """The disk ``name`` as this life of the process sees it."""
        return self.device(name).mount()

    def coordination(self, *, timeout_s: float = SESSION_TIMEOUT_S_DEFAULT) -> SimulatedSession:
        """A new session with the coordination service."""
        return self.zookeeper.session(self.name, timeout_s=timeout_s)

    # --- the process --------------------------------------------------------------------------

    def start(self, main: Callable[[Host], Coroutine[Any, Any, object]]) -> None:
        """Start a process that runs ``main(host)``; when that ends, so does the process."""
        if self._incarnation is not None:
            raise SimulationError(f"host {self.name} has a process already")
        world = self._world
        self.lives += 1
        self.status = "starts"
        self.random = world.loop.stream(f"{self.name}/{self.lives}")
        self._main = main
        # A new one for each life: a process must not find that its predecessor was asked to end.
        self._stopping = asyncio.Event()
        self._exited = world.loop.create_future()
        # The clock's pace is the machine's: it survives a restart.
        incarnation = world.loop.incarnate(self.name, turn_cost_s=world.turn_cost_s, pace=self.pace)
        self._incarnation = incarnation
        # Before the process runs: a machine that was dark would not hear it.
        world.network.power_on(self.name)
        world.note(f"{self.name} starts, life {self.lives}")
        # All that the main task starts inherits this context, and with it the incarnation.
        context = incarnation.context.copy()
        task = world.loop.create_task(main(self), name=self.name, context=context)

        def main_done(done: asyncio.Task[object]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                self.failures.append(error)
                self.status = f"failed: {error!r}"
                world.note(f"{self.name} fails: {type(error).__name__}")
            # Else it was killed, and perhaps started again, before its main task was done.
            if self._incarnation is incarnation:
                self._end_process("exits", is_silent=False)
                for disk in self.devices.values():
                    disk.unmount()

        # Outside of all processes: the process that starts this one may die before it.
        task.add_done_callback(main_done, context=world.loop.main.context)

    def restart(self) -> None:
        """Start what ran here last."""
        if self._main is None:
            raise SimulationError(f"host {self.name} never ran anything")
        self.start(self._main)

    async def serve(
        self, factory: Callable[[Host], AbstractAsyncContextManager[ServiceT]]
    ) -> ServiceT:
        """Start a process that opens ``factory(host)`` and keeps it until ``stop``.

        Returns what was opened. Raises what opening raised, or ``HostCrashed``. A later
        ``restart`` opens a new one.
        """
        # A promise, so that the caller gets ``HostCrashed`` if the process dies while it opens.
        opened: asyncio.Future[ServiceT] = self._promise()

        # It runs again after a restart, when ``opened`` is done: then an error ends the process.
        async def main(host: Host) -> None:
            try:
                async with factory(host) as service:
                    host.status = "serves"
                    if not opened.done():
                        opened.set_result(service)
                    await host.until_stopped()
            except Exception as error:
                if opened.done():
                    raise
                host.status = f"could not start: {error!r}"
                opened.set_exception(error)

        self.start(main)
        return await opened

    @property
    def is_stopping(self) -> bool:
        """Whether the process was asked to end and still runs."""
        return self._stopping is not None and self._stopping.is_set()

    async def until_stopped(self) -> None:
        """Return when ``stop`` asks this process to end; ``main`` then closes what it serves and
        returns. A process whose ``main`` never waits for this can only be killed."""
        assert self._stopping is not None, "called in another process than this host's"
        await self._stopping.wait()

    async def stop(self) -> None:
        """SIGTERM: ask the process to close what it serves, and wait until it has exited."""
        if self._exited is None or self._incarnation is None:
            return
        if self._stopping is not None:
            self._stopping.set()
        await self._exited

    def run(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Future[ResultT]:
        """Run ``work`` as a task of this process; the future has its result, or ``HostCrashed``.

        Code outside should call methods of a process's objects through this: what they schedule
        then dies with the process.
        """
        promise: asyncio.Future[ResultT] = self._promise()
        if self._incarnation is None:
            # A coroutine that is never awaited would be warned of when it is freed.
            work.close()
            promise.set_exception(HostCrashed(self.name))
            return promise
        context = self._incarnation.context.copy()
        name = f"{self.name}: {getattr(work, '__name__', 'work')}"
        task = self._world.loop.create_task(work, name=name, context=context)

        def copy_outcome(done: asyncio.Task[ResultT]) -> None:
            if promise.done():  # the process died first, or the caller gave up
                return
            if done.cancelled():
                promise.cancel()
                return
            error = done.exception()
            if error is None:
                promise.set_result(done.result())
            else:
                promise.set_exception(error)

        task.add_done_callback(copy_outcome)
        # A caller that gives up cancels the work; the other way round, ``copy_outcome`` tells the
        # caller.
        promise.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return promise

    # --- the end of a process -----------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL: the process is gone, the machine closes its streams; all written bytes stay."""
        self._end_process("is killed", is_silent=False)
        for disk in self.devices.values():
            disk.unmount()

    def crash(self, *, is_silent: bool = False) -> None:
        """Power fails: the process is gone, and of the disks what was not synced.

        Peers get resets, as if the machine were back at once. With ``is_silent`` they do not: the
        machine answers nothing until the host starts again.
        """
        # Before the streams end: what peers have on its way here gets no answer, not even a reset.
        if is_silent:
            self._world.network.dark_hosts.add(self.name)
        self._end_process("crashes silently" if is_silent else "crashes", is_silent=is_silent)
        for disk in self.devices.values():
            disk.crash()

    def pause(self, seconds: float) -> None:
        """SIGSTOP: the process stands still for so long; then it goes on as if nothing was."""
        incarnation = self._incarnation
        if incarnation is None:
            return
        world = self._world
        world.note(f"{self.name} stands still for {seconds:.6f} s")
        # Its timers fire late, all together; its clock goes on, as after SIGCONT.
        world.loop.pause(incarnation, world.loop.now_s + seconds)
        self.zookeeper.silence(self.name)

        # Killed, or killed and started again, while it stood still: then there is nothing to do.
        def go_on() -> None:
            if self._incarnation is incarnation:
                self.zookeeper.hear(self.name)

        # Outside of all processes: this one may be dead by then.
        world.loop.after(seconds, go_on, context=world.loop.main.context)

    def _end_process(self, how: str, *, is_silent: bool) -> None:
        incarnation = self._incarnation
        if incarnation is None:
            return
        # Before all else: what follows may ask ``is_running``, and must not end it twice.
        self._incarnation = None
        self._stopping = None
        world = self._world
        self.status = f"{self.status} -> {how}"
        world.note(f"{self.name} {how}")
        # The loop first: nothing that the network and ZooKeeper do now reaches the process.
        world.loop.kill(incarnation)
        world.network.kill(incarnation, is_silent=is_silent)
        self.zookeeper.kill(incarnation)
        # Last: code that waits outside goes on in a turn of its own, and finds all this done.
        for promise in list(self._promises):
            if not promise.done():
                promise.set_exception(HostCrashed(self.name))
                promise.exception()  # marked as retrieved: a caller need not wait for it
        if self._exited is not None and not self._exited.done():
            self._exited.set_result(None)

    def _promise(self) -> asyncio.Future[Any]:
        promise: asyncio.Future[Any] = self._world.loop.create_future()
        self._promises[promise] = None
        promise.add_done_callback(lambda done: self._promises.pop(done, None))
        return promise
