"""Functions workers on simulated hosts: real ones, whose instances are notes of when they ran.

An instance is a process of its own in reality. So here it stands outside its worker's process: it
goes on while that stands still, until its own lease ends; and it ends when that is killed, as the
kernel sees to.
"""

from __future__ import annotations

import asyncio
import errno
import json
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from geminga_broker.admin.topics.stats import StatsQuery
from geminga_functions.cluster.membership import WorkerInfo
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.errors import PackageError
from geminga_functions.names import InstanceName
from geminga_functions.packages.cache import Prepared
from geminga_functions.packages.store import PackageStore
from geminga_functions.runtime.channel import RunningInstance
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.runtime.instances import Instances
from geminga_functions.runtime.runner import Ending, Order, WorkerIdentity
from geminga_functions.worker import INSTANCES_PATH, Worker, instances_json
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_scenarios.cluster import Cluster
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.host import Host
from geminga_simulation.world import World

LEASE_S = 3.0
WORKER_PORT = 6750
RESTART_S = 0.2
CALL_TIMEOUT_S = 30.0
# An instance takes up to so long to start, to end in order, and to be killed by the kernel.
START_S_MAX, STOP_S_MAX, KILL_S_MAX = 0.5, 1.0, 0.05
# So many cannot be started: what they run cannot be read, or the system has no process for them.
UNREADABLE_SHARE = 0.02
# So many calls over REST break on each way.
BROKEN_SHARE = 0.03
# Deletions are few.
BROKEN_DELETIONS_SHARE = 0.3
# So many of them fail, within so long after their start.
FAILING_SHARE, FAILS_AFTER_S_MAX = 0.02, 5.0
COMPACTION_S = 10.0
# Longer than any worker stands still.
REMOVED_KEPT_S = 15.0
WEB_URL = "http://"
# Below the folder of the settings, a worker makes one for each instance; nothing is written.
_FOLDER = tempfile.TemporaryDirectory(prefix="geminga-simulated-workers-")
DIRECTORY = Path(_FOLDER.name)


class NotedInstance(RunningInstance):
    """One life of an instance, from the moment at which its process begins."""

    def __init__(self, order: Order, host: Host) -> None:
        super().__init__(order.name, None, {})
        self.version = order.start.version
        self.host = host
        self._life = host.lives
        self._has_ended = False
        self._lease_until_s = order.start.lease_until_s
        self._timer = self._end_later(self._lease_until_s - host.clock.monotonic())

    @property
    def runs(self) -> bool:
        """Whether its process exists at this moment, seen from outside."""
        host = self.host
        has_worker = host.is_running and host.lives == self._life
        return has_worker and not self._has_ended and host.clock.monotonic() < self._lease_until_s

    def extend_lease(self, until_s: float) -> None:
        """As ``RunningInstance.extend_lease``."""
        if self.runs:  # else it has ended itself, and nothing makes it live again
            self._lease_until_s = until_s
            self._timer.cancel()
            self._timer = self._end_later(until_s - self.host.clock.monotonic())

    def _end_later(self, seconds: float, trace: str = "") -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, seconds), self._end, trace)

    def _end(self, trace: str) -> None:
        self._has_ended = True
        if not self.ended.done():
            self.ended.set_result(Ending(trace))

    async def status(self, timeout_s: float) -> str | None:
        """As ``RunningInstance.status``."""
        del timeout_s
        return None

    async def stop(self, timeout_s: float) -> None:
        """As ``RunningInstance.stop``."""
        del timeout_s
        try:
            if self.runs:
                await asyncio.sleep(self.host.random.random() * STOP_S_MAX)
        finally:
            self.kill()
            await asyncio.shield(self.ended)

    def kill(self) -> None:
        """As ``RunningInstance.kill``."""
        self._end_later(self.host.random.random() * KILL_S_MAX)

    def fail(self) -> None:
        """Let the function raise after a while."""
        self._end_later(self.host.random.random() * FAILS_AFTER_S_MAX, "the function failed")


class Notes:
    """The last life of each instance. No two of one name run at a time."""

    def __init__(self, world: World) -> None:
        self.lives: dict[InstanceName, NotedInstance] = {}
        self.starts = 0
        self._world = world
        self._broken: InvariantViolated | None = None

    def begin(self, instance: NotedInstance) -> None:
        """Note that an instance runs from now on."""
        name, host = instance.name, instance.host.name
        self.starts += 1
        self._world.note(f"{name} version {instance.version} begins on {host}")
        before = self.lives.get(name)
        if before is not None and before.runs and self._broken is None:
            # Here the worker under test would handle it: the story raises it.
            now_s = self._world.loop.now_s
            self._broken = InvariantViolated(
                f"{name} begins on {host} at {now_s:.3f} s while it runs on {before.host.name}"
            )
        self.lives[name] = instance

    def running(self) -> dict[InstanceName, NotedInstance]:
        """What runs at this moment."""
        return {name: life for name, life in sorted(self.lives.items()) if life.runs}

    def check(self) -> None:
        """Raise ``InvariantViolated`` if an instance has ever run twice at a time."""
        if self._broken is not None:
            raise self._broken


class NotedRuntime(Service):
    """What a simulated worker runs instances with: a ``WorkerRuntime``, whose runner and packages
    are its own."""

    def __init__(
        self, host: Host, notes: Notes, config: FunctionsWorkerConfig, packages: PackageStore
    ) -> None:
        super().__init__()
        self.packages = packages
        self._host = host
        self._notes = notes
        web_url, namespace = config.pulsar_web_service_url, config.pulsar_functions_namespace
        identity = WorkerIdentity(
            config.worker_id,
            config.pulsar_functions_cluster,
            config.pulsar_service_url,
            web_url,
            namespace,
        )
        self.instances = Instances(
            identity, config.runtime, self.start, self.use, host.clock, host.random
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.instances)

    @asynccontextmanager
    async def use(self, metadata: FunctionMetaData) -> AsyncGenerator[Prepared]:
        """As ``UsePackage``: there is none, which fails all the same at times."""
        del metadata
        if self._host.random.random() < UNREADABLE_SHARE:
            raise PackageError("its package cannot be read now")
        yield Prepared(None, (), Path(sys.executable))

    async def start(self, order: Order) -> RunningInstance:
        """As ``StartInstance``."""
        random = self._host.random
        await asyncio.sleep(random.random() * START_S_MAX)
        if random.random() < UNREADABLE_SHARE:
            raise OSError(errno.EAGAIN, "no process can be made now")
        instance = NotedInstance(order, self._host)
        if instance.runs:
            self._notes.begin(instance)
            instance.started.set()
            if random.random() < FAILING_SHARE:
                instance.fail()
        return instance


class HostCalls:
    """``RestCalls`` of the host ``source``: ``answer`` runs as a task of the host that is asked."""

    prefers_tls = False

    def __init__(
        self,
        world: World,
        source: str,
        answer: Callable[[str, RestCall], Awaitable[RestAnswer]],
    ) -> None:
        self._world = world
        self._source = source
        self._answer = answer
        self._chance = world.loop.stream(f"calls of {source}")

    async def call(self, call: RestCall) -> RestAnswer:
        """As ``RestCalls.call``."""
        timeout_s = CALL_TIMEOUT_S if call.timeout_s is None else call.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._ask(call)
                while answer.location is not None:
                    answer = await self._ask(replace(call, url=answer.location))
                return answer
        except (TimeoutError, HostCrashed) as error:
            raise ServerUnreachable(f"{call.url} does not answer: {error!r}") from error

    async def _ask(self, call: RestCall) -> RestAnswer:
        target = urlsplit(call.url).hostname
        assert target is not None

        async def answered() -> RestAnswer:
            return await self._answer(target, call)

        broken_share = BROKEN_DELETIONS_SHARE if call.method == "DELETE" else BROKEN_SHARE
        await self._cross(self._source, target, broken_share)
        answer = await self._world.hosts[target].run(answered())
        await self._cross(target, self._source, broken_share)
        return answer

    async def _cross(self, source: str, target: str, broken_share: float) -> None:
        network = self._world.network
        await asyncio.sleep(network.delay_s())
        if self._chance.random() < broken_share:
            raise ServerUnreachable(f"the connection of {source} to {target} broke")
        if not network.reaches(source, target):
            await asyncio.Event().wait()  # until the caller gives up


class Workers:
    """Functions workers of ``cluster``, on hosts of their own."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.world = cluster.world
        self.cluster = cluster
        self.notes = Notes(self.world)
        self.hosts = [self.world.host(f"worker-{number}") for number in range(count)]
        for number, host in enumerate(self.hosts):
            host.clock.advance(1000.0 * number)  # monotonic clocks of machines have nothing common
        # Called whenever a worker has read assignments, the first time before it asks for anything
        # else.
        self.on_read: Callable[[Host], None] = lambda _: None
        # The worker of each host's life.
        self._serving: dict[tuple[Host, int], Worker] = {}

    async def run_worker(self, host: Host) -> None:
        """The process of a worker, to be started on its host."""
        while not host.is_stopping:
            try:
                async with self._worker_process(host):
                    await host.until_stopped()
            except GemingaError:
                await asyncio.sleep(RESTART_S)

    @asynccontextmanager
    async def _worker_process(self, host: Host) -> AsyncGenerator[None]:
        life = host, host.lives
        me = WorkerInfo(host.name, host.name, WORKER_PORT)
        config = FunctionsWorkerConfig(
            worker_id=host.name,
            pulsar_service_url=self.cluster.service_url,
            pulsar_web_service_url=WEB_URL + ",".join(each.name for each in self.cluster.brokers),
            lease_s=LEASE_S,
            topic_compaction_s=COMPACTION_S,
            runtime=RuntimeConfig(directory=DIRECTORY),
        )
        calls = HostCalls(self.world, host.name, self._answer)
        async with self.cluster.client(host.name) as client:
            packages = PackageStore(
                client,
                calls,
                config.pulsar_web_service_url,
                config.pulsar_functions_namespace,
                config.runtime.package_bytes_max,
            )
            runtime = NotedRuntime(host, self.notes, config, packages)
            worker = Worker(
                config,
                me,
                client,
                calls,
                runtime=runtime,
                clock=host.clock,
                random=host.random,
                removed_kept_s=REMOVED_KEPT_S,
            )
            worker.assignments.listeners.append(lambda: self.on_read(host))
            async with worker:
                self._serving[life] = worker
                yield
                del self._serving[life]

    def serving(self) -> dict[Host, Worker]:
        """The workers that are open now, on hosts that run."""
        found = {host: self._serving.get((host, host.lives)) for host in self.hosts}
        return {
            host: worker for host, worker in found.items() if worker is not None and host.is_running
        }

    # --- what REST answers

    async def _answer(self, target: str, call: RestCall) -> RestAnswer:
        host = self.world.hosts[target]
        if host in self.hosts:
            worker = self.serving().get(host)
            if worker is None or not call.url.endswith(INSTANCES_PATH):
                return RestAnswer(503)
            return RestAnswer(200, json.dumps(instances_json(worker.present())).encode())
        return await self._answer_of_broker(host, call)

    async def _answer_of_broker(self, host: Host, call: RestCall) -> RestAnswer:
        """Answer a request for stats of a topic, or for its compaction; for a topic of another
        broker, say where to ask. The topics that functions consume were never made: they have no
        subscriptions to delete."""
        if call.method == "DELETE":
            return RestAnswer(404)
        *_, domain, tenant, namespace, topic, what = urlsplit(call.url).path.split("/")
        name = TopicName.parse(f"{domain}://{tenant}/{namespace}/{topic}")
        owner = next(
            (
                each
                for each in self.cluster.brokers
                if (broker := self.cluster.broker(each)) is not None and broker.ownership.owns(name)
            ),
            None,
        )
        broker = self.cluster.broker(host)
        if owner is None or broker is None:
            return RestAnswer(503)
        if owner is not host:
            return RestAnswer(307, location=call.url.replace(host.name, owner.name))
        try:
            if what == "compaction" and call.method == "GET":
                report = await broker.administration.compaction_report(name)
                return RestAnswer(200, json.dumps({"status": report.status.value}).encode())
            if what == "compaction":
                await broker.administration.compact_topic(name)
                return RestAnswer(204)
            stats = await broker.administration.topic_stats(name, StatsQuery())
            return RestAnswer(200, json.dumps(stats).encode())
        except GemingaError:
            return RestAnswer(503)
