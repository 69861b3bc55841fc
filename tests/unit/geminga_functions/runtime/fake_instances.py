"""One worker's instances on a runner and packages that do what a test says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from geminga_functions.errors import PackageRefused
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.packages.cache import Prepared
from geminga_functions.runtime.channel import RunningInstance
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.runtime.instances import Instances
from geminga_functions.runtime.reports import InstanceReport
from geminga_functions.runtime.runner import Ending, Order, WorkerIdentity
from geminga_protocol.functions.functions_pb2 import (
    FunctionDetails,
    FunctionMetaData,
    PackageLocationMetaData,
)
from geminga_simulation.event_loop.clock import SimulatedClock

ONE = InstanceName(FunctionName("public", "default", "f"), 0)
TWO = InstanceName(FunctionName("public", "default", "f"), 1)
FOR_EVER_S = 1e9


class FakeInstance(RunningInstance):
    """An instance that does what the test says; it takes ``stops_in_s`` to stop."""

    def __init__(self, order: Order) -> None:
        super().__init__(order.name, 4711, {})
        self.order = order
        self.stops_in_s = 0.5
        self.leases: list[float] = []

    def extend_lease(self, until_s: float) -> None:
        self.leases.append(until_s)

    async def status(self, timeout_s: float) -> str | None:
        return f"{self.order.start.version} in {timeout_s:g}"

    async def stop(self, timeout_s: float) -> None:
        if not self.ended.done():
            await asyncio.sleep(min(timeout_s, self.stops_in_s))
            self.kill()

    def kill(self) -> None:
        self.end(Ending())

    def end(self, ending: Ending) -> None:
        if not self.ended.done():
            self.ended.set_result(ending)


class FakeRunner:
    """Starts fakes, which start at once; notes that no two of one name run at the same time."""

    def __init__(self) -> None:
        self.begun: list[FakeInstance] = []
        self.loads = True
        self.error: Exception | None = None
        self.starts_in_s = 0.0
        self._has_begun = asyncio.Event()

    @property
    def last(self) -> FakeInstance:
        return self.begun[-1]

    def running(self, name: InstanceName) -> list[FakeInstance]:
        return [each for each in self.begun if each.order.name == name and not each.ended.done()]

    async def has_begun(self, count: int) -> None:
        while len(self.begun) < count:
            await self._has_begun.wait()

    async def start(self, order: Order) -> FakeInstance:
        assert not self.running(order.name), "it runs twice"
        if self.error is not None:
            raise self.error
        await asyncio.sleep(self.starts_in_s)
        instance = FakeInstance(order)
        self.begun.append(instance)
        self._has_begun.set()
        self._has_begun = asyncio.Event()
        if self.loads:
            instance.started.set()
        return instance


REFUSALS_AT_ONCE_MAX = 100


class FakePackages:
    def __init__(self) -> None:
        self.refusal: PackageRefused | None = None
        self.refusals = 0
        self.used: list[str] = []

    @asynccontextmanager
    async def use(self, metadata: FunctionMetaData) -> AsyncGenerator[Prepared]:
        if self.refusal is not None:
            self.refusals += 1
            if self.refusals >= REFUSALS_AT_ONCE_MAX:
                await asyncio.sleep(1)  # a test that fails ends, too
            raise self.refusal
        path = metadata.packageLocation.packagePath
        self.used.append(path)
        try:
            yield Prepared(Path("/f.py"), (Path("/a"), Path("/b")), Path(sys.executable))
        finally:
            self.used.remove(path)


class World:
    """One worker's instances, and what they stand on."""

    def __init__(self, directory: Path) -> None:
        self.runner, self.packages, self.clock = FakeRunner(), FakePackages(), SimulatedClock()
        self.instances = Instances(
            WorkerIdentity("w-1", "main", "pulsar://b", "http://b"),
            RuntimeConfig(directory=directory, starts_at_once_max=1),
            self.runner.start,
            self.packages.use,
            self.clock,
            Random(1),
        )

    def present(self) -> set[InstanceName]:
        return {report.name for report in self.instances.reports()}

    def lease(self, seconds: float) -> None:
        self.instances.extend_lease(self.clock.monotonic() + seconds)

    async def settled(self, name: InstanceName = ONE, version: int = 0) -> InstanceReport:
        return await self.instances.settled(name, version, 1000)


def metadata(version: int = 0, name: str = "f", package: str = "p") -> FunctionMetaData:
    return FunctionMetaData(
        functionDetails=FunctionDetails(tenant="public", namespace="default", name=name),
        packageLocation=PackageLocationMetaData(packagePath=package),
        version=version,
    )
