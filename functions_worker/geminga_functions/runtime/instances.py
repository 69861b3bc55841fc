"""Keeps what runs on a worker equal to what is assigned to it.

Each assigned instance has a ``Keeper``, whose task prepares its package, starts it, sees it end and
starts it again after a while. Another version, or an assignment that is gone, cancels the task,
which stops the instance in order; only when that has ended does the next one begin.

No instance runs without a lease. The worker extends it; an instance is told, and ends itself at its
end. This side does not trust it with that: at the same moment it kills what still runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from geminga import Tls
from geminga_functions.errors import PackageError
from geminga_functions.instance.messages import Start
from geminga_functions.instance.serving import LEAVES_EARLIER_S
from geminga_functions.names import InstanceName
from geminga_functions.packages.cache import Prepared
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.runtime.reports import InstanceFailure, InstanceReport, InstanceState
from geminga_functions.runtime.running import Ending, InstanceRunner, Order, RunningInstance
from geminga_functions.state.local_copy import LOCAL_COPY
from geminga_protocol.functions.functions_pb2 import STOPPED, FunctionMetaData
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.rates.durations import Durations

log = logging.getLogger(__name__)

# An instance that ran for so long before it failed is started again as soon as one that failed for
# the first time.
STABLE_S = 60.0
# Instances that load their function wait in line for so long at most: one that hangs while it does
# holds up the others no longer.
TURN_S = 5.0
# How long the kernel may take to end a process that was killed.
KILL_TIMEOUT_S = 5.0
# Longer traces are cut in the middle: they stand in REST answers, and one for each instance here.
TRACE_CHARACTERS_MAX = 16 * 1024


class Packages(Protocol):
    """Where instances get their code from."""

    def use(self, metadata: FunctionMetaData) -> AbstractAsyncContextManager[Prepared]:
        """The package of a function, which stays on the disk until the block ends.

        Raises ``PackageError``, ``ClientError``, ``OSError``.
        """
        ...


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What instances are told of their worker and of the cluster that it works for."""

    worker_id: str
    cluster: str
    service_url: str
    web_url: str
    functions_namespace: str = "public/functions"
    tls: Tls = field(default_factory=Tls)


class Instances(Service):
    """The instances of one worker: ``InstanceHost`` towards the cluster of workers, and
    ``InstanceReports`` towards REST."""

    def __init__(
        self,
        identity: WorkerIdentity,
        config: RuntimeConfig,
        runner: InstanceRunner,
        packages: Packages,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__()
        self.identity = identity
        self.config = config
        self.runner = runner
        self.packages = packages
        self.clock = clock
        self.random = random
        self.starting = asyncio.Semaphore(config.starts_at_once_max)
        # How long instances took to load their functions, and to end when they were to.
        self.starts, self.stops = Durations(), Durations()
        self.lease_until_s = 0.0
        self._has_lease = asyncio.Event()
        self._lease_timer: asyncio.TimerHandle | None = None
        self._keepers: dict[InstanceName, Keeper] = {}
        self._has_changed = asyncio.Event()
        self._is_ending = False

    # --- InstanceHost -------------------------------------------------------------------------

    def assign(self, assigned: Mapping[InstanceName, FunctionMetaData]) -> None:
        """Run these instances and no others; returns at once. Nothing begins any more once this
        service closes: what is assigned meanwhile, as after another worker's end, would live as
        long as its closing may take."""
        if self._is_ending:
            return
        for name, keeper in self._keepers.items():
            if name not in assigned:
                keeper.want(None)
        for name, metadata in assigned.items():
            if name in self._keepers:
                self._keepers[name].want(metadata)
                continue
            self._keepers[name] = new = Keeper(name, self)
            new.want(metadata)
            self.spawn(self._keep(new), name=f"keeper of {name}")

    def present(self) -> frozenset[InstanceName]:
        """The instances that may still run here, those that are being stopped among them."""
        return frozenset(self._keepers)

    async def ended(self, name: InstanceName) -> None:
        """Return once this worker neither runs the instance nor has it assigned."""
        while name in self._keepers:
            await self._has_changed.wait()

    def extend_lease(self, until_s: float) -> None:
        """All instances may run until ``until_s`` of the monotonic clock."""
        left_s = until_s - self.clock.monotonic()
        if left_s <= 0 or until_s <= self.lease_until_s:
            return  # a receipt that came late, or after a later one
        self.lease_until_s = until_s
        self._has_lease.set()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_timer = asyncio.get_running_loop().call_later(left_s, self._lease_ended)
        for keeper in self._keepers.values():
            if keeper.running is not None:
                keeper.running.extend_lease(until_s)

    def _lease_ended(self) -> None:
        self._has_lease.clear()
        killed = [keeper for keeper in self._keepers.values() if keeper.running is not None]
        for keeper in killed:
            assert keeper.running is not None
            keeper.running.kill()
        if killed:
            log.error("lease ended: instances are killed", extra={"instances": len(killed)})

    @property
    def has_lease(self) -> bool:
        """Whether instances may run at this moment."""
        return self._has_lease.is_set()

    async def lease(self) -> None:
        """Return once there is a lease."""
        await self._has_lease.wait()

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._cancel_timer)

    def _cancel_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    async def _end_tasks(self) -> None:
        # In order: a task that is cancelled a second time has no time to stop its instance.
        self.assign({})
        self._is_ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.stop_timeout_s + KILL_TIMEOUT_S):
                while self._keepers:
                    await self._has_changed.wait()
        await super()._end_tasks()

    async def _keep(self, keeper: Keeper) -> None:
        try:
            while keeper.is_wanted:
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
        """The folder of an instance."""
        function = name.function
        folder = f"{function.tenant}/{function.namespace}/{function.name}-{name.instance}"
        return self.config.directory.resolve() / "instances" / folder

    # --- InstanceReports ----------------------------------------------------------------------

    def changed(self) -> None:
        """Something is to be reported: wake those that wait for it."""
        self._has_changed.set()
        self._has_changed = asyncio.Event()

    def reports(self) -> list[InstanceReport]:
        """As ``InstanceReports.reports``."""
        return [self._keepers[name].report() for name in sorted(self._keepers)]

    def report(self, name: InstanceName) -> InstanceReport | None:
        """As ``InstanceReports.report``."""
        keeper = self._keepers.get(name)
        return None if keeper is None else keeper.report()

    async def settled(self, name: InstanceName, version: int, timeout_s: float) -> InstanceReport:
        """As ``InstanceReports.settled``."""
        async with asyncio.timeout(timeout_s):
            while True:
                report = self.report(name)
                if report is not None and report.version >= version and report.state.is_settled:
                    return report
                await self._has_changed.wait()

    async def status(self, name: InstanceName, timeout_s: float) -> str | None:
        """As ``InstanceReports.status``."""
        keeper = self._keepers.get(name)
        if keeper is None or keeper.running is None:
            return None
        return await keeper.running.status(timeout_s)

    async def restart(self, name: InstanceName) -> bool:
        """As ``InstanceReports.restart``."""
        keeper = self._keepers.get(name)
        if keeper is None:
            return False
        await keeper.end_life()
        return True


class Keeper:
    """One assigned instance: one life after the other, of the version that is wanted."""

    def __init__(self, name: InstanceName, instances: Instances) -> None:
        self.name = name
        self.running: RunningInstance | None = None
        self._instances = instances
        self._wanted: FunctionMetaData | None = None
        self._life: asyncio.Task[object] | None = None
        self._is_life_ending = False
        self._version = -1
        self._state = InstanceState.PREPARING
        self._starts = 0
        self._failure: InstanceFailure | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether it is assigned to this worker."""
        return self._wanted is not None

    def report(self) -> InstanceReport:
        """What is to be said of the instance."""
        pid = None if self.running is None else self.running.pid
        restarts = max(0, self._starts - 1)
        return InstanceReport(self.name, self._version, self._state, restarts, self._failure, pid)

    def want(self, metadata: FunctionMetaData | None) -> None:
        """Run what ``metadata`` say from now on; None: nothing any more."""
        before, self._wanted = self._wanted, metadata
        if metadata is None or before is None or self._essence(before) != self._essence(metadata):
            self._cancel_life()
        elif not self._is_life_ending:
            # Another instance was stopped, say: a higher version that changes nothing here.
            self._version = metadata.version
            self._instances.changed()

    def _essence(self, metadata: FunctionMetaData) -> tuple[object, ...]:
        """What of its function's metadata an instance is started with."""
        return (
            metadata.functionDetails,
            metadata.packageLocation,
            metadata.functionAuthSpec,
            self._wants_stop(metadata),
        )

    async def end_life(self) -> None:
        """End what runs now, and return when it has ended; the next life begins with that."""
        life = self._life
        if life is not None:
            self._cancel_life()
            await asyncio.wait([life])

    def _cancel_life(self) -> None:
        # Once only: a second cancellation would cut short the orderly stop that the first began.
        if self._life is not None and not self._is_life_ending:
            self._is_life_ending = True
            self._life.cancel()
            self._change(InstanceState.STOPPING)

    async def keep(self) -> None:
        """Live until nothing is wanted any more."""
        while (wanted := self._wanted) is not None:
            self._version = wanted.version
            self._is_life_ending = False
            work = self._rest() if self._wants_stop(wanted) else self._live(wanted)
            self._life = self._instances.spawn(work, name=f"life of {self.name}")
            await asyncio.wait([self._life])
            self._life = None

    def _wants_stop(self, wanted: FunctionMetaData) -> bool:
        return wanted.instanceStates.get(self.name.instance) == STOPPED

    async def _rest(self) -> None:
        self._change(InstanceState.STOPPED)
        await asyncio.Event().wait()  # for the cancellation, as every life

    async def _live(self, wanted: FunctionMetaData) -> None:
        """Run the instance, again and again after it has ended. Only cancellation ends this."""
        instances = self._instances
        config = instances.config
        backoff = Backoff(config.restart_first_s, config.restart_limit_s, instances.random)
        while True:
            began_s = instances.clock.monotonic()
            ending = await self._run(wanted)
            if ending.is_lease_over:
                # It left a moment before its lease ends: no other is to begin until that is over.
                await asyncio.sleep(LEAVES_EARLIER_S)
                continue
            if not ending.trace or not instances.has_lease:
                # The lease ended, and the instance with it. ``_run`` would wait for the next one,
                # too, but only behind its package: one that is refused at once would be tried all
                # the while, and nothing else of this worker would run.
                await instances.lease()
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
        """Prepare, start, and see it end."""
        self._change(InstanceState.PREPARING)
        try:
            async with self._instances.packages.use(wanted) as prepared:
                return await self._run_once(wanted, prepared)
        except PackageError as error:
            return Ending(str(error), is_user_error=not error.retry)
        except (GemingaError, OSError) as error:
            return Ending(f"the instance cannot be started: {error}")
        except Exception as error:
            # A mistake of ours: it must neither end the keeper nor make it try without a pause.
            log.exception("instance cannot be kept", extra={"instance": str(self.name)})
            return Ending(f"the worker cannot run the instance: {error!r}")

    async def _run_once(self, wanted: FunctionMetaData, prepared: Prepared) -> Ending:
        instances, config = self._instances, self._instances.config
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(instances.starting)
            await instances.lease()
            self._change(InstanceState.STARTING)
            self._starts += 1
            began_s = instances.clock.monotonic()
            order = self._order(wanted, prepared)
            running = self.running = await instances.runner.start(order)
            try:
                # What the lease did while the process was being made, nothing told the instance.
                if not instances.has_lease:
                    running.kill()
                elif instances.lease_until_s > order.start.lease_until_s:
                    running.extend_lease(instances.lease_until_s)
                turn_s = min(TURN_S, config.start_timeout_s)
                is_settled = await settled(running, turn_s)
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
                await running.stop(config.stop_timeout_s)
                instances.stops.add((instances.clock.monotonic() - began_s) * 1000)
                self.running = None

    def _order(self, wanted: FunctionMetaData, prepared: Prepared) -> Order:
        details, identity = wanted.functionDetails, self._instances.identity
        config, tls = self._instances.config, identity.tls
        state_directory = self._instances.directory_of(self.name)
        state_directory.mkdir(parents=True, exist_ok=True)
        start = Start(
            details=details.SerializeToString(),
            number=self.name.instance,
            version=wanted.version,
            worker_id=identity.worker_id,
            cluster=identity.cluster,
            service_url=identity.service_url,
            web_url=identity.web_url,
            package="" if prepared.package is None else str(prepared.package),
            import_paths=":".join(map(str, prepared.import_paths)),
            state_directory=str(state_directory),
            lease_until_s=self._instances.lease_until_s,
            functions_namespace=identity.functions_namespace,
            async_messages_max=config.async_messages_max,
            secrets_provider=config.secrets_provider_class_name,
            secrets_config=config.secrets_provider_config,
            tls_trust_file=os.fspath(tls.trust_file or ""),
            tls_certificate_file=os.fspath(tls.certificate_file or ""),
            tls_key_file=os.fspath(tls.key_file or ""),
            tls_checks_hostname=tls.checks_hostname,
        )
        return Order(self.name, start, prepared.python, details.resources.ram)

    def _change(self, state: InstanceState) -> None:
        self._state = state
        self._instances.changed()


async def settled(running: RunningInstance, timeout_s: float) -> bool:
    """Whether the instance has started, or ended, within ``timeout_s``."""
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
    """A trace without its middle, where it is long: how it began and what it ended with matter."""
    if len(trace) <= TRACE_CHARACTERS_MAX:
        return trace
    half = TRACE_CHARACTERS_MAX // 2
    return f"{trace[:half]}\n[...]\n{trace[-half:]}"
