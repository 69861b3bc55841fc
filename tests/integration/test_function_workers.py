"""Proves that workers take over the instances, and the lead, of a worker that dies or stands still,
and that no instance of a function runs twice meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from subprocess import Popen
from uuid import uuid4

from tests.integration.cluster_process import StandaloneProcess
from tests.integration.part_process import running, wait_for_words
from tests.integration.rest import rest

import geminga
from geminga_functions.cluster.leadership import SUBSCRIPTION
from geminga_functions.cluster.membership import Members, Membership, WorkerInfo
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.packages.store import PackageStore
from geminga_functions.worker import INSTANCES_PATH, parse_instances
from geminga_protocol.functions.functions_pb2 import (
    EARLIEST,
    FAILOVER,
    FunctionDetails,
    FunctionMetaData,
)
from geminga_server.rest_calls import HttpCalls, RestCall

WORKERS = ("w-1", "w-2", "w-3")
INSTANCES = 6
# From the moment that the broker notices that the leader died: at once, for its connection ends.
ELECTION_S = 3.0
TIMEOUT_S = 60.0
POLL_S = 0.05
# Each process holds the lock of its instance as long as it lives: the kernel refuses it to a second
# process of the same instance, and lets it go with the first one, however that ends.
CODE = """
import fcntl

held = []


def process(input, context):
    if not held:
        folder, number = context.get_user_config_value("folder"), context.get_instance_id()
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
        self, client: geminga.Client, membership: Membership, processes: dict[str, Popen[str]]
    ) -> None:
        self.processes = processes
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

    async def everything_runs(self, *names: str) -> None:
        """Wait until these workers share all instances evenly, and each instance has answered
        again and whatever was sent until now is answered."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                workers = [
                    each for each in (await self.members()).workers if each.worker_id in names
                ]
                loads = [len(await self.instances(worker)) for worker in workers]
                if loads == [INSTANCES // len(names)] * len(names):
                    break
                await asyncio.sleep(POLL_S)
            self._from.clear()
            sent = self.sent
            while len(self._from) < INSTANCES or not self.answered.issuperset(range(sent)):  # noqa: ASYNC110 - of other processes
                await asyncio.sleep(POLL_S)

    async def leader_other_than(self, worker_id: str) -> str:
        """Wait for a leader that is not this one."""
        while True:
            members: Members = await self.members()
            if members.leader is not None and members.leader.worker_id != worker_id:
                return members.leader.worker_id
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def working(standalone: StandaloneProcess, folder: Path) -> AsyncGenerator[Workers]:
    """Three workers in a namespace of their own, whose function is there when they start."""
    web, namespace = standalone.web_service_url, f"public/functions-{uuid4().hex[:8]}"
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    # Each instance is the active consumer of one partition, so that all get numbers.
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/in/partitions", INSTANCES)[0] == 204
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
            parallelism=INSTANCES,
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
        membership = Membership(calls, web, f"{topics}/coordinate", SUBSCRIPTION)
        with ExitStack() as stack:
            processes = {
                each: stack.enter_context(running(*command(standalone, namespace, each, folder)))
                for each in WORKERS
            }
            for process in processes.values():
                wait_for_words(process, "functions worker serves")
            workers = Workers(client, membership, processes)
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


def command(standalone: StandaloneProcess, namespace: str, name: str, folder: Path) -> list[str]:
    options = {
        "pulsar-service-url": standalone.service_url,
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
            await workers.leader_other_than(leader)
        await workers.everything_runs(*(each for each in WORKERS if each != leader))
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
