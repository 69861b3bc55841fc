"""Proves that workers take over the instances, and the lead, of a worker that dies or stands still,
and that no instance of a function runs twice meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from subprocess import Popen
from uuid import uuid4

import pytest
from tests.integration.conftest import StartStandalone
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.part_process import running, wait_for_words
from tests.integration.processes.proxy_process import proxy_of
from tests.integration.relay import Wire
from tests.integration.rest import rest

import geminga
from geminga_functions.broker_calls import topic_url
from geminga_functions.cluster.leadership import SUBSCRIPTION
from geminga_functions.cluster.membership import Members, Membership, WorkerInfo
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.errors import ClusterUnknown
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.packages.store import PackageStore
from geminga_functions.worker import INSTANCES_PATH, function_log, parse_instances
from geminga_protocol.functions.functions_pb2 import (
    EARLIEST,
    FAILOVER,
    FunctionDetails,
    FunctionMetaData,
)
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import HttpCalls, RestCall

WORKERS = ("w-1", "w-2", "w-3")
INSTANCES = 6
# Of a leader, which is longer than any time-out of a connection.
PAUSE_S = 120.0
# In the tests that are long anyway.
MANY_INSTANCES = 12
# From the moment that the broker notices that the leader died: at once, for its connection ends.
ELECTION_S = 3.0
TIMEOUT_S = 60.0
# A busy machine starts a dozen processes one after the other, each of which imports for a second.
MANY_TIMEOUT_S = 120.0
THOUSAND, REPLAY_S = 1000, 1.0
POLL_S = 0.05
# Each process holds the lock of its instance as long as it lives: the kernel refuses it to a second
# process of the same instance, and lets it go with the first one, however that ends.
CODE = """
import fcntl

held = []


def process(input, context):
    folder, number = context.get_user_config_value("folder"), context.get_instance_id()
    if not held:
        held.append(open(f"{folder}/lock-{number}", "a"))
        try:
            fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            open(f"{folder}/twice-{number}", "a").close()
    return f"{input} {context.get_instance_id()}"
"""


class Workers:
    """Three real workers with one function, the numbers that it is sent, and what it answered."""

    def __init__(
        self,
        client: geminga.Client,
        membership: Membership,
        processes: dict[str, Popen[str]],
        count: int,
    ) -> None:
        self.processes = processes
        # Of instances.
        self.count = count
        # Why it was last not known what runs.
        self.error = ""
        self.members = membership.members
        self.sent = 0
        # The numbers that came out, and since the last ``everything_runs``, from which instances.
        self.answered: set[int] = set()
        self._from: set[int] = set()
        self._client = client
        self._calls = HttpCalls()

    async def send(self, topic: str) -> None:
        """Send one number after another, until cancelled."""
        async with self._client.producer(topic, batching=None) as producer:
            while True:
                await producer.send(str(self.sent).encode())
                self.sent += 1
                await asyncio.sleep(POLL_S)

    async def receive(self, topic: str) -> None:
        """Take what the function answers, until cancelled."""
        async with self._client.consumer(topic, "test", initial_position="earliest") as answers:
            while True:
                message = await answers.receive()
                number, instance = message.data.split()
                self.answered.add(int(number))
                self._from.add(int(instance))
                answers.ack(message)

    async def instances(self, worker: WorkerInfo) -> frozenset[InstanceName]:
        """What a worker tells the leader that it runs."""
        answer = await self._calls.call(RestCall("GET", f"{worker.url}{INSTANCES_PATH}"))
        return parse_instances(answer.json()).present

    async def metrics(self, worker_id: str) -> str:
        """What a worker shows Prometheus."""
        worker = (await self.members()).find(worker_id)
        assert worker is not None
        return (await self._calls.call(RestCall("GET", f"{worker.url}/metrics/"))).body.decode()

    async def everything_runs(self, *names: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until these workers share all instances evenly, and each instance has answered
        again and whatever was sent until now is answered."""
        loads: list[int] = []
        sent = self.sent
        if self.count == MANY_INSTANCES:
            timeout_s += MANY_TIMEOUT_S - TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                while loads != [self.count // len(names)] * len(names):
                    loads = await self._loads(names)
                    await asyncio.sleep(POLL_S)
                self._from.clear()
                sent = self.sent
                while len(self._from) < self.count or not self.answered.issuperset(range(sent)):  # noqa: ASYNC110 - of other processes
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            silent = sorted(set(range(self.count)) - self._from)
            unanswered = sorted(set(range(sent)) - self.answered)
            pytest.fail(f"{loads=}, {silent=}, {sent=}, {unanswered[:20]=}, {self.error=}")

    async def _loads(self, names: tuple[str, ...]) -> list[int]:
        try:
            workers = (await self.members()).workers
            return [len(await self.instances(each)) for each in workers if each.worker_id in names]
        except (ClusterUnknown, ServerUnreachable) as error:
            self.error = str(error)
            return []  # a broker restarts, say

    async def leader_other_than(self, worker_id: str) -> str:
        """Wait for a leader that is not this one."""
        while True:
            members: Members = await self.members()
            if members.leader is not None and members.leader.worker_id != worker_id:
                return members.leader.worker_id
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def working(
    standalone: StandaloneProcess,
    folder: Path,
    count: int = INSTANCES,
    service_urls: Mapping[str, str] | None = None,
) -> AsyncGenerator[Workers]:
    """Three workers in a namespace of their own, whose function is there when they start, with so
    many instances. ``service_urls`` says by which way a worker reaches the broker."""
    web, namespace = standalone.web_service_url, f"public/functions-{uuid4().hex[:8]}"
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    # Each instance is the active consumer of one partition, so that all get numbers.
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/in/partitions", count)[0] == 204
    topics = f"persistent://{namespace}"
    calls = HttpCalls()
    async with geminga.connect(standalone.service_url) as client:
        name = FunctionName.parse(f"{namespace}/numbers")
        package = f"{name}/user_code.py"
        store = PackageStore(client, calls, web, namespace, 1 << 20)
        await store.store(package, "user_code.py", chunks(CODE))
        metadata = FunctionMetaData(version=1)
        metadata.packageLocation.packagePath = package
        metadata.packageLocation.originalFileName = "user_code.py"
        details = FunctionDetails(
            tenant=name.tenant,
            namespace=name.namespace,
            name=name.name,
            className="user_code",
            parallelism=count,
            autoAck=True,
            userConfig=json.dumps({"folder": str(folder)}),
        )
        details.source.inputSpecs[f"{topics}/in"].SetInParent()
        details.source.subscriptionType = FAILOVER
        details.source.subscriptionPosition = EARLIEST
        details.sink.topic = f"{topics}/out"
        metadata.functionDetails.CopyFrom(details)
        async with client.producer(f"{topics}/metadata") as producer:
            await producer.send(metadata.SerializeToString(), key=str(name))
        stats_url = topic_url(web, f"{topics}/coordinate", "/stats")
        membership = Membership(calls, stats_url, SUBSCRIPTION)
        with ExitStack() as stack:
            urls = service_urls or dict.fromkeys(WORKERS, standalone.service_url)
            processes = {
                each: stack.enter_context(
                    running(*command(standalone, urls[each], namespace, each, folder))
                )
                for each in WORKERS
            }
            for process in processes.values():
                await asyncio.to_thread(wait_for_words, process, "functions worker serves")
            workers = Workers(client, membership, processes, count)
            tasks = [
                asyncio.create_task(workers.receive(f"{topics}/out")),
                asyncio.create_task(workers.send(f"{topics}/in")),
            ]
            try:
                yield workers
                assert [each.exception() for each in tasks if each.done()] == []
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def chunks(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def command(
    standalone: StandaloneProcess, service_url: str, namespace: str, name: str, folder: Path
) -> list[str]:
    options = {
        "pulsar-service-url": service_url,
        "pulsar-web-service-url": standalone.web_service_url,
        "pulsar-functions-namespace": namespace,
        "worker-id": name,
        "worker-port": "0",
        "directory": str(folder / name / "functions"),
        "log-directory": str(folder / name / "logs"),
        "log-level": "INFO",
    }
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    return ["functions-worker", *words]


def locks(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{kind}-*"))


async def test_a_killed_leader_is_followed_by_another_and_its_instances_run_elsewhere(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    async with working(standalone, tmp_path) as workers:
        await workers.everything_runs(*WORKERS)
        leader = await workers.leader_other_than("")
        workers.processes[leader].kill()
        async with asyncio.timeout(ELECTION_S):
            next_leader = await workers.leader_other_than(leader)
        await workers.everything_runs(*(each for each in WORKERS if each != leader))
        shown = await workers.metrics(next_leader)
        for times in ("schedule_execution_time_total", "start_instance_process_time"):
            name = f"pulsar_function_worker_{times}_ms"
            assert f'{name}{{cluster="standalone",quantile="0.9"}}' in shown
            assert f'{name}_count{{cluster="standalone"}} 0.0' not in shown
    assert len(locks(tmp_path, "lock")) == INSTANCES
    assert locks(tmp_path, "twice") == []


async def test_instances_of_a_worker_that_stands_still_end_before_others_run_them(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    async with working(standalone, tmp_path) as workers:
        await workers.everything_runs(*WORKERS)
        leader = await workers.leader_other_than("")
        paused, *others = sorted(WORKERS, key=lambda each: each == leader)
        workers.processes[paused].send_signal(signal.SIGSTOP)
        try:
            await workers.everything_runs(*others)
        finally:
            workers.processes[paused].send_signal(signal.SIGCONT)
        # It takes part again, and runs nothing of what was given to others meanwhile.
        await workers.everything_runs(*WORKERS)
    assert len(locks(tmp_path, "lock")) == INSTANCES
    assert locks(tmp_path, "twice") == []


async def test_a_thousand_functions_are_read_within_a_second(
    standalone: StandaloneProcess,
) -> None:
    namespace = f"public/functions-{uuid4().hex[:8]}"
    web = standalone.web_service_url
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    config = FunctionsWorkerConfig(pulsar_functions_namespace=namespace)
    metadata = FunctionMetaData(version=1)
    # About as much as a real function has.
    metadata.functionDetails.userConfig = json.dumps({"setting": "value" * 100})
    async with geminga.connect(standalone.service_url) as client:
        topic = config.topic(config.function_metadata_topic_name)
        async with client.producer(topic) as producer:
            for number in range(THOUSAND):
                metadata.functionDetails.name = f"f{number}"
                key = str(FunctionName("public", "default", f"f{number}"))
                await producer.ready()
                producer.send_nowait(metadata.SerializeToString(), key=key)
            await producer.flush()
        began_s = time.perf_counter()
        async with function_log(client, config) as log:
            took_s = time.perf_counter() - began_s
            assert len(log.records) == THOUSAND
    assert took_s < REPLAY_S


@pytest.mark.full
async def test_a_leader_that_stood_still_and_a_broker_that_starts_anew_let_nothing_run_twice(
    start_standalone: StartStandalone, tmp_path: Path
) -> None:
    standalone = start_standalone("--no-functions-worker")
    async with working(standalone, tmp_path, MANY_INSTANCES) as workers:
        await workers.everything_runs(*WORKERS)
        leader = await workers.leader_other_than("")
        others = [each for each in WORKERS if each != leader]
        workers.processes[leader].send_signal(signal.SIGSTOP)
        try:
            # A broker takes as long to notice, for the connection is there. By then others lead.
            async with asyncio.timeout(PAUSE_S):
                await workers.leader_other_than(leader)
            await workers.everything_runs(*others)
        finally:
            workers.processes[leader].send_signal(signal.SIGCONT)
        await workers.everything_runs(*WORKERS)
        os.kill(standalone.endpoints["broker"]["pid"], signal.SIGKILL)
        await workers.everything_runs(*WORKERS)
    assert len(locks(tmp_path, "lock")) == MANY_INSTANCES
    assert locks(tmp_path, "twice") == []


@pytest.mark.full
async def test_a_leader_that_is_cut_off_is_replaced_and_ends_its_instances(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    urls = ("--broker-service-url", standalone.service_url)
    webs = ("--broker-web-service-url", standalone.web_service_url)
    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(proxy_of(tmp_path / "proxy-log", *urls, *webs))
        target = proxy.service_url.partition("://")[2]
        wires = {each: await stack.enter_async_context(Wire(target)) for each in WORKERS}
        ways = {each: f"pulsar://{wire.address}" for each, wire in wires.items()}
        workers = await stack.enter_async_context(
            working(standalone, tmp_path, MANY_INSTANCES, ways)
        )
        await workers.everything_runs(*WORKERS)
        leader = await workers.leader_other_than("")
        wires[leader].refuses = True
        wires[leader].cut()
        async with asyncio.timeout(ELECTION_S):
            await workers.leader_other_than(leader)
        await workers.everything_runs(*(each for each in WORKERS if each != leader))
        wires[leader].refuses = False
        await workers.everything_runs(*WORKERS)
    assert len(locks(tmp_path, "lock")) == MANY_INSTANCES
    assert locks(tmp_path, "twice") == []
