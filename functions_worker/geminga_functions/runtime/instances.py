"""Keeps the instances that run on a worker equal to those that are assigned to it.

Each assigned instance has a ``Keeper``, whose task prepares its package, starts it, waits for its
end, and starts it again after a delay. A new version, or the end of the assignment, cancels the
task, which stops the instance in order; only when the instance has ended does the next one begin.

No instance runs without a lease. The worker extends the lease and tells the instances, which end by
themselves when it ends. The worker does not rely on that: at the same moment it kills those that
still run.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from geminga_functions.errors import PackageError
from geminga_functions.instance.worker_link import LEAVES_EARLIER_S
from geminga_functions.names import InstanceName
from geminga_functions.packages.cache import Prepared
from geminga_functions.runtime.channel import RunningInstance
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.runtime.reports import (
    SETTLED,
    InstanceFailure,
    InstanceReport,
    InstanceState,
)
from geminga_functions.runtime.runner import Ending, Order, WorkerIdentity, order_of
from geminga_functions.state.local_copy import LOCAL_COPY
from geminga_protocol.functions.functions_pb2 import STOPPED, FunctionMetaData
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.rates.durations import Durations

log = logging.getLogger(__name__)

# An instance that ran for so long before it failed is restarted as soon as after a first failure.
STABLE_S = 60.0
# An instance that loads its function occupies one of the places for starting at most so long: one
# that hangs does not delay the others any longer.
TURN_S = 5.0
# How long the kernel may take to end a process that was killed.
KILL_TIMEOUT_S = 5.0
# Longer traces are cut in the middle: REST answers contain them, and each instance keeps one.
TRACE_CHARACTERS_MAX = 16 * 1024


# Starts an instance. Raises ``OSError`` if the machine cannot, and ``PackageError``.
StartInstance = Callable[[Order], Awaitable[RunningInstance]]
# Prepares the package of a function; it stays on the disk until the block ends. Raises
# ``PackageError``, ``ClientError``, ``OSError``.
UsePackage = Callable[[FunctionMetaData], AbstractAsyncContextManager[Prepared]]


class Instances(Service):
    """The instances of one worker.

    The worker assigns them and extends their lease; REST reads reports on them, and restarts them.
    """

    def __init__(
        self,
        identity: WorkerIdentity,
        config: RuntimeConfig,
        start: StartInstance,
        use_package: UsePackage,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__()
        self.identity = identity
        self.config = config
        self.start = start
        self.use_package = use_package
        self.clock = clock
        self.random = random
        # Places for instances that load their function: each takes a processor meanwhile.
        self.starting = asyncio.Semaphore(config.starts_at_once_max)
        # How many milliseconds instances took to load their functions, and to end in order.
        self.starts, self.stops = Durations(), Durations()
        # Set while instances may run: until ``lease_until_s`` of the monotonic clock.
        self.lease = asyncio.Event()
        # It never goes back.
        self.lease_until_s = 0.0
        self._lease_timer: asyncio.TimerHandle | None = None
        # Of the instances that are assigned, and of those that still end.
        self._keepers: dict[InstanceName, Keeper] = {}
        # Set, and replaced by a new one, with each change of a report.
        self._has_changed = asyncio.Event()
        self._is_ending = False

    # --- assignments and the lease ------------------------------------------------------------

    def assign(self, assigned: Mapping[InstanceName, FunctionMetaData]) -> None:
        """Run these instances and no others; returns at once.

        While this service closes, assignments are ignored: an instance that began now, perhaps
        because another worker has ended, would run only until the service is closed.
        """
        if self._is_ending:
            return
        for name, keeper in self._keepers.items():
            if name not in assigned:
                # The keeper stays among ``_keepers`` until its instance has ended: a name that is
                # assigned again meanwhile goes to the same keeper, and never runs beside itself.
                keeper.want(None)
        for name, metadata in assigned.items():
            if name in self._keepers:
                self._keepers[name].want(metadata)
                continue
            self._keepers[name] = new = Keeper(name, self)
            new.want(metadata)
            self.spawn(self._keep(new), name=f"keeper of {name}")

    async def ended(self, name: InstanceName) -> None:
        """Return once this worker neither runs the instance nor has it assigned."""
        while name in self._keepers:
            await self._has_changed.wait()

    def extend_lease(self, until_s: float) -> None:
        """Let all instances run until ``until_s`` of the monotonic clock."""
        left_s = until_s - self.clock.monotonic()
        # The receipt of a heartbeat may come late, or after that of a later one.
        if left_s <= 0 or until_s <= self.lease_until_s:
            return
        self.lease_until_s = until_s
        self.lease.set()
        # The old timer would end the lease at its old end.
        self._cancel_timer()
        self._lease_timer = asyncio.get_running_loop().call_later(left_s, self._lease_ended)
        for keeper in self._keepers.values():
            if keeper.running is not None:
                keeper.running.extend_lease(until_s)

    def _lease_ended(self) -> None:
        self.lease.clear()
        # Most have left by themselves, LEAVES_EARLIER_S before; those that have not are killed.
        killed = [keeper for keeper in self._keepers.values() if keeper.running is not None]
        for keeper in killed:
            assert keeper.running is not None
            keeper.running.kill()
        if killed:
            log.error("lease ended: instances are killed", extra={"instances": len(killed)})

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._cancel_timer)

    def _cancel_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    async def _end_tasks(self) -> None:
        # The instances are stopped in order before the tasks are cancelled: a task that is
        # cancelled a second time has no time to stop its instance.
        self.assign({})
        # After the last ``assign``, which it would make do nothing.
        self._is_ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.stop_timeout_s + KILL_TIMEOUT_S):
                while self._keepers:
                    await self._has_changed.wait()
        await super()._end_tasks()

    async def _keep(self, keeper: Keeper) -> None:
        try:
            while keeper.wanted is not None:
                await keeper.keep()
                # It runs elsewhere now, or no more, unless it comes back while this takes its time.
                # The next run of a worker may go on with its copies.
                copy = self.directory_of(keeper.name) / LOCAL_COPY
                if not self._is_ending and copy.exists():
                    await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)
        finally:
            del self._keepers[keeper.name]
            self.changed()

    def directory_of(self, name: InstanceName) -> Path:
        """The folder of an instance: the working directory of its code."""
        function = name.function
        folder = f"{function.tenant}/{function.namespace}/{function.name}-{name.instance}"
        return self.config.directory.resolve() / "instances" / folder

    # --- reports ------------------------------------------------------------------------------

    def changed(self) -> None:
        """Wake all that wait for a change of a report."""
        self._has_changed.set()
        self._has_changed = asyncio.Event()

    def reports(self) -> list[InstanceReport]:
        """Reports on all instances that are assigned to this worker or still end here, by name."""
        return [self._keepers[name].report() for name in sorted(self._keepers)]

    def report(self, name: InstanceName) -> InstanceReport | None:
        """The report on one of them; None for an instance that is not on this worker."""
        keeper = self._keepers.get(name)
        return None if keeper is None else keeper.report()

    async def settled(self, name: InstanceName, version: int, timeout_s: float) -> InstanceReport:
        """Wait until this version of the instance, or a later one, runs, has failed or is stopped.

        Raises ``TimeoutError``.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                report = self.report(name)
                if report is not None and report.version >= version and report.state in SETTLED:
                    return report
                await self._has_changed.wait()

    async def status(self, name: InstanceName, timeout_s: float) -> str | None:
        """The counts of the instance, an ``InstanceStatus`` as JSON.

        None if it does not run, or does not answer within ``timeout_s``.
        """
        keeper = self._keepers.get(name)
        if keeper is None or keeper.running is None:
            return None
        return await keeper.running.status(timeout_s)

    async def restart(self, name: InstanceName) -> bool:
        """End the instance and let it start anew; returns once it has ended.

        False: the instance is not on this worker.
        """
        keeper = self._keepers.get(name)
        if keeper is None:
            return False
        await keeper.end_life()
        return True


# The states that reports show, and what leads from one to the next:
#
#   PREPARING --- its turn, and a lease ---> STARTING --- Started ---> RUNNING
#       ^                                        |                        |
#       |                           it ended, or took too long     it ended by itself
#       |                                        v                        v
#       +------------ after a delay ---------- FAILED <-------------------+
#
# A package that cannot be used leads from PREPARING to FAILED, and the end of the lease back to
# PREPARING. ``want`` and ``end_life`` lead from any of them to STOPPING, and then to the next life.
# A life of an instance that a user has stopped is STOPPED all the time.
@dataclass(slots=True, eq=False)
class Keeper:
    """Runs one assigned instance, in the version that is wanted.

    A life is a task that runs one version of the instance, over and over, until it is cancelled.
    When another version is wanted, the life ends and the next one begins.
    """

    name: InstanceName
    instances: Instances
    # From its start to its end; None in between.
    running: RunningInstance | None = field(default=None, init=False)
    # The metadata of the version that is wanted; None: the instance is not assigned any more.
    # ``want`` sets it, while ``keep`` may be waiting for the end of an earlier version.
    wanted: FunctionMetaData | None = field(default=None, init=False)
    _life: asyncio.Task[object] | None = field(default=None, init=False)
    _is_life_ending: bool = field(default=False, init=False)
    # What reports show: the version and state of the current life, how often the instance was
    # started, and its last failure.
    _version: int = field(default=-1, init=False)
    _state: InstanceState = field(default=InstanceState.PREPARING, init=False)
    _starts: int = field(default=0, init=False)
    _failure: InstanceFailure | None = field(default=None, init=False)

    def report(self) -> InstanceReport:
        """The report of the instance, at this moment."""
        pid = None if self.running is None else self.running.pid
        restarts = max(0, self._starts - 1)
        return InstanceReport(self.name, self._version, self._state, restarts, self._failure, pid)

    def want(self, metadata: FunctionMetaData | None) -> None:
        """Run the version that ``metadata`` describe from now on; None: stop running."""
        before, self.wanted = self.wanted, metadata
        # Also where it was not wanted for a moment: another worker may have run it meanwhile.
        if metadata is None or before is None or self._essence(before) != self._essence(metadata):
            self._cancel_life()
        elif not self._is_life_ending:
            # A higher version that changes nothing here, for example because another instance of
            # the function was stopped.
            self._version = metadata.version
            self.instances.changed()

    def _essence(self, metadata: FunctionMetaData) -> tuple[object, ...]:
        """The parts of the metadata that make the instance start anew when they change."""
        return (
            metadata.functionDetails,
            metadata.packageLocation,
            metadata.functionAuthSpec,
            self._wants_stop(metadata),
        )

    async def end_life(self) -> None:
        """End the current life, and return when it has ended; the next one then begins."""
        life = self._life
        if life is not None:
            self._cancel_life()
            await asyncio.wait([life])

    def _cancel_life(self) -> None:
        # Only once: a second cancellation would interrupt the orderly stop that the first began.
        if self._life is not None and not self._is_life_ending:
            self._is_life_ending = True
            self._life.cancel()
            self._change(InstanceState.STOPPING)

    async def keep(self) -> None:
        """Live one life after the other, as long as the instance is wanted."""
        while (wanted := self.wanted) is not None:
            # Read anew for each life: ``want`` may have been called several times during the last
            # one.
            self._version = wanted.version
            self._is_life_ending = False
            self._life = self.instances.spawn(self._live(wanted), name=f"life of {self.name}")
            await asyncio.wait([self._life])
            self._life = None

    def _wants_stop(self, wanted: FunctionMetaData) -> bool:
        return wanted.instanceStates.get(self.name.instance) == STOPPED

    async def _live(self, wanted: FunctionMetaData) -> None:
        """Run the instance, and run it again when it has ended, until cancelled."""
        if self._wants_stop(wanted):
            self._change(InstanceState.STOPPED)
            await asyncio.Event().wait()  # nothing sets it: only cancellation ends this life, too
        instances = self.instances
        config = instances.config
        backoff = Backoff(config.restart_first_s, config.restart_limit_s, instances.random)
        while True:
            began_s = instances.clock.monotonic()
            ending = await self._run(wanted)
            if ending.is_lease_over:
                # The instance left a moment before the end of its lease. Until that has passed the
                # old lease seems to hold, and another start would end at once, too.
                await asyncio.sleep(LEAVES_EARLIER_S)
                continue
            if not ending.trace or not instances.lease.is_set():
                # The lease ended, and the instance with it. ``_run`` waits for the next lease, too,
                # but only after it has prepared the package. If the package is refused at once,
                # this loop would spin, and nothing else of this worker would run.
                await instances.lease.wait()
                continue
            self._failure = InstanceFailure(
                shortened(ending.trace), ending.is_user_error, instances.clock.wall_ms()
            )
            self._change(InstanceState.FAILED)
            if instances.clock.monotonic() - began_s >= STABLE_S:
                backoff.reset()
            delay_s = backoff.next_s()
            log.warning(
                "instance failed and is started again",
                extra={
                    "instance": str(self.name),
                    "version": wanted.version,
                    "is_user_error": ending.is_user_error,
                    "reason": ending.trace.rpartition("\n")[2],
                    "delay_s": round(delay_s, 1),
                },
            )
            await asyncio.sleep(delay_s)

    async def _run(self, wanted: FunctionMetaData) -> Ending:
        """Prepare the package, start the instance, and wait for its end. Errors become endings."""
        self._change(InstanceState.PREPARING)
        try:
            # Until the instance has ended: its process reads modules whenever it imports one.
            async with self.instances.use_package(wanted) as prepared:
                return await self._run_once(wanted, prepared)
        except PackageError as error:
            return Ending(str(error), is_user_error=not error.retry)
        except (GemingaError, OSError) as error:
            return Ending(f"the instance cannot be started: {error}")
        except Exception as error:
            # A mistake of ours: it must neither end the keeper nor make it retry without a delay.
            log.exception("instance cannot be kept", extra={"instance": str(self.name)})
            return Ending(f"the worker cannot run the instance: {error!r}")

    async def _run_once(self, wanted: FunctionMetaData, prepared: Prepared) -> Ending:
        """Start the instance when it is its turn, and wait for its end."""
        instances, config = self.instances, self.instances.config
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(instances.starting)
            await instances.lease.wait()
            self._change(InstanceState.STARTING)
            self._starts += 1
            began_s = instances.clock.monotonic()
            directory = instances.directory_of(self.name)
            directory.mkdir(parents=True, exist_ok=True)
            order = order_of(
                self.name,
                wanted,
                prepared,
                instances.identity,
                config,
                state_directory=directory,
                lease_until_s=instances.lease_until_s,
            )
            running = self.running = await instances.start(order)
            try:
                # While the process was created, ``self.running`` was None: the instance was neither
                # killed at the end of the lease nor told of a new one.
                if not instances.lease.is_set():
                    running.kill()
                elif instances.lease_until_s > order.start.lease_until_s:
                    running.extend_lease(instances.lease_until_s)
                turn_s = min(TURN_S, config.start_timeout_s)
                is_settled = await settled(running, turn_s)
                # The next instance may start now, whether this one has or not.
                await turn.aclose()
                if not is_settled:
                    is_settled = await settled(running, config.start_timeout_s - turn_s)
                if not is_settled:
                    return Ending(
                        f"the function was not loaded within {config.start_timeout_s:g} s",
                        is_user_error=True,
                    )
                if running.started.is_set():
                    instances.starts.add((instances.clock.monotonic() - began_s) * 1000)
                    self._change(InstanceState.RUNNING)
                return await asyncio.shield(running.ended)
            finally:
                began_s = instances.clock.monotonic()
                if not running.ended.done():
                    self._change(InstanceState.STOPPING)
                # It returns only when nothing of the instance runs any more, so that no second one
                # begins beside it.
                await running.stop(config.stop_timeout_s)
                instances.stops.add((instances.clock.monotonic() - began_s) * 1000)
                self.running = None

    def _change(self, state: InstanceState) -> None:
        self._state = state
        self.instances.changed()


async def settled(running: RunningInstance, timeout_s: float) -> bool:
    """Wait until the instance has started or ended; returns whether it did within ``timeout_s``."""
    started = asyncio.ensure_future(running.started.wait())
    try:
        waiting: list[asyncio.Future[Any]] = [started, running.ended]
        done, _ = await asyncio.wait(
            waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        started.cancel()
    return bool(done)


def shortened(trace: str) -> str:
    """A trace; a long one without its middle, since its beginning and its end say most."""
    if len(trace) <= TRACE_CHARACTERS_MAX:
        return trace
    half = TRACE_CHARACTERS_MAX // 2
    return f"{trace[:half]}\n[...]\n{trace[-half:]}"
