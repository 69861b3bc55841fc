"""Proves that a worker runs functions from stored packages, whatever they do to their processes."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Literal
from uuid import uuid4

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.waiting import eventually
from tests.project_files import ROOT

import geminga
from geminga_functions.instance.status import InstanceStatus
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.runtime.assembly import Runtime
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.runtime.reports import SETTLED, InstanceReport, InstanceState
from geminga_functions.runtime.runner import WorkerIdentity
from geminga_protocol.functions.functions_pb2 import EARLIEST, FunctionDetails, FunctionMetaData
from geminga_runtime.clock import SystemClock
from geminga_server.http.rest_calls import HttpCalls

TIMEOUT_S = 60.0
POLL_S = 0.02
SHORT_LEASE_S = 1.0
GOOD = "def process(input):\n    return input + '!'\n"


class Worker:
    """A worker's runtime without the cluster of workers: the test assigns."""

    def __init__(self, runtime: Runtime, client: geminga.Client, directory: Path) -> None:
        self.runtime = runtime
        self.client = client
        self.directory = directory
        self.assigned: dict[InstanceName, FunctionMetaData] = {}

    async def create(self, file_name: str, content: bytes | str, ram: int = 0) -> InstanceName:
        """Store a package and have its function run, from ``NAME-in`` to ``NAME-out``."""
        name = f"f{uuid4().hex[:8]}"
        path = f"public/default/{name}/{file_name}"

        async def chunks() -> AsyncIterator[bytes]:
            yield content.encode() if isinstance(content, str) else content

        await self.runtime.packages.store(path, file_name, chunks())
        metadata = FunctionMetaData(version=1)
        metadata.packageLocation.packagePath = path
        metadata.packageLocation.originalFileName = file_name
        details = FunctionDetails(
            tenant="public",
            namespace="default",
            name=name,
            className="user_code",
            parallelism=1,
            autoAck=True,
        )
        details.source.inputSpecs[f"{name}-in"].SetInParent()
        details.source.subscriptionPosition = EARLIEST
        details.sink.topic = f"{name}-out"
        details.resources.ram = ram
        metadata.functionDetails.CopyFrom(details)
        instance = InstanceName(FunctionName("public", "default", name), 0)
        self.assigned[instance] = metadata
        self.runtime.instances.assign(self.assigned)
        return instance

    async def settled(self, instance: InstanceName) -> InstanceReport:
        return await self.runtime.instances.settled(instance, 1, TIMEOUT_S)

    async def answer(self, instance: InstanceName, value: bytes) -> bytes:
        """What the function makes of ``value``."""
        name = instance.function.name
        async with self.client.consumer(f"{name}-out", "test", initial_position="earliest") as out:
            await self.publish(instance, value)
            async with asyncio.timeout(TIMEOUT_S):
                message = await out.receive()
            await out.ack_confirmed(message)
            return message.data

    async def publish(self, instance: InstanceName, value: bytes) -> None:
        async with self.client.producer(f"{instance.function.name}-in") as producer:
            await producer.send(value)

    async def status(self, instance: InstanceName) -> InstanceStatus:
        status = await self.runtime.instances.status(instance, TIMEOUT_S)
        assert status is not None
        return InstanceStatus.of(json.loads(status))


@pytest.fixture
async def worker(standalone: StandaloneProcess, tmp_path: Path) -> AsyncIterator[Worker]:
    urls = standalone.service_url, standalone.web_service_url
    async with opened(*urls, tmp_path) as worker:
        yield worker


@asynccontextmanager
async def opened(
    service_url: str,
    web_url: str,
    tmp_path: Path,
    kind: Literal["process", "thread"] = "process",
    lease_s: float = 600,
) -> AsyncGenerator[Worker]:
    identity = WorkerIdentity("w-1", "standalone", service_url, web_url)
    config = RuntimeConfig(
        function_runtime=kind, directory=tmp_path / "functions", log_directory=tmp_path / "logs"
    )
    clock = SystemClock()
    async with (
        geminga.connect(service_url) as client,
        Runtime(
            identity,
            config,
            client,
            HttpCalls(),
            namespace="public/functions",
            # No index is asked for what packages require.
            environment={**os.environ, "PIP_NO_INDEX": "1"},
            clock=clock,
            random=Random(1),
        ) as runtime,
    ):
        runtime.instances.extend_lease(clock.monotonic() + lease_s)
        yield Worker(runtime, client, tmp_path)


async def test_a_stored_function_runs_and_is_gone_when_it_is_no_longer_assigned(
    worker: Worker,
) -> None:
    one = await worker.create("user_code.py", GOOD)
    report = await worker.settled(one)
    assert report.state is InstanceState.RUNNING, report.failure
    assert await worker.answer(one, b"hello") == b"hello!"
    assert (await worker.status(one)).total.processed == 1
    worker.runtime.instances.assign({})
    await asyncio.wait_for(worker.runtime.instances.ended(one), TIMEOUT_S)
    with pytest.raises(ProcessLookupError):
        os.kill(report.pid or 0, 0)


async def test_a_directory_is_one_workers_while_its_instances_run(
    worker: Worker, tmp_path: Path
) -> None:
    report = await worker.settled(await worker.create("user_code.py", GOOD))
    lock = tmp_path / "functions" / "lock"
    assert lock in [each.readlink() for each in descriptors_of(report.pid)]
    assert is_locked(lock)


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def descriptors_of(pid: int | None) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


FORKING = """
import os
import time

if os.fork() == 0:
    time.sleep(600)


def process(input):
    return input
"""


async def host_alone(service_url: str, web_url: str, directory: str) -> None:
    """A worker in a process of its own, with one function; it prints the instance's process id."""
    async with opened(service_url, web_url, Path(directory)) as worker:
        report = await worker.settled(await worker.create("user_code.py", FORKING))
        sys.stdout.write(f"{report.pid}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def test_nothing_of_a_killed_worker_outlives_the_start_of_the_next_one(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    urls = standalone.service_url, standalone.web_service_url
    code = (
        "import asyncio, sys;"
        "from tests.integration.functions.test_function_runtime import host_alone;"
        "asyncio.run(host_alone(*sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, *urls, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, text=True) as hosting:
        try:
            assert hosting.stdout is not None
            instance = int(hosting.stdout.readline())
            tasks = Path(f"/proc/{instance}/task").glob("*/children")
            (fork,) = [int(pid) for each in tasks for pid in each.read_text().split()]
            # Else it may see its worker's end before the kernel kills it, and end the fork, too.
            os.kill(instance, signal.SIGSTOP)
        finally:
            hosting.kill()
    eventually(lambda: is_running(instance), lambda running: not running)
    assert is_running(fork), "the kernel ends it by itself: the worker need not"

    async def begin_again() -> None:
        async with opened(*urls, tmp_path):
            pass

    asyncio.run(begin_again())
    eventually(lambda: is_running(fork), lambda running: not running)


def is_running(pid: int) -> bool:
    """One that has ended and was not reaped does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_functions_run_in_threads_side_by_side_where_the_worker_says_so(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    urls = standalone.service_url, standalone.web_service_url
    async with opened(*urls, tmp_path, "thread") as worker:
        one = await worker.create("user_code.py", GOOD)
        other = await worker.create("user_code.py", GOOD.replace("!", "?"))
        report = await worker.settled(one)
        assert (report.state, report.pid) == (InstanceState.RUNNING, None), report.failure
        await worker.settled(other)
        assert await worker.answer(one, b"hello") == b"hello!"
        assert await worker.answer(other, b"hello") == b"hello?"
        worker.runtime.instances.assign({})
        await asyncio.wait_for(worker.runtime.instances.ended(one), TIMEOUT_S)


async def test_a_zip_runs_in_an_environment_with_the_wheels_that_it_brings(worker: Worker) -> None:
    wheel, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("shouting.py", "def shout(text): return text.upper()\n")
        info = "shouting-1.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: shouting\nVersion: 1\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    with zipfile.ZipFile(package, "w") as file:
        code = "import shouting\n\n\ndef process(input):\n    return shouting.shout(input)\n"
        file.writestr("mine/src/user_code.py", code)
        file.writestr("mine/requirements.txt", "shouting\n")
        file.writestr("mine/deps/shouting-1-py3-none-any.whl", wheel.getvalue())
    one = await worker.create("mine.zip", package.getvalue())
    report = await worker.settled(one)
    assert report.state is InstanceState.RUNNING, report.failure
    assert await worker.answer(one, b"hello") == b"HELLO"


@pytest.mark.parametrize(
    ("code", "trace"),
    [
        ("def process(input)\n    return input\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("import os\nprint('so long', flush=True)\nos._exit(4)\n", "exited with code 4"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "killed by SIGSEGV"),
    ],
    ids=["syntax", "exit", "import", "hard exit", "crash"],
)
async def test_code_that_cannot_be_loaded_is_a_failure_that_helps_its_author(
    worker: Worker, code: str, trace: str
) -> None:
    report = await worker.settled(await worker.create("user_code.py", code))
    assert report.state is InstanceState.FAILED
    assert report.failure is not None
    assert trace in report.failure.trace
    assert report.failure.is_user_error


async def test_what_a_package_requires_and_nothing_has_is_the_failure(worker: Worker) -> None:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as file:
        file.writestr("user_code.py", GOOD)
        file.writestr("requirements.txt", "there-is-no-such-distribution\n")
    report = await worker.settled(await worker.create("mine.zip", package.getvalue()))
    assert report.failure is not None
    assert "there-is-no-such-distribution" in report.failure.trace
    assert report.failure.is_user_error


DEADLOCK = """
import threading

lock = threading.Lock()

def process(input):
    with lock:
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
"""
PATCHED = """
import asyncio
import os

def process(input):
    for name in dir(asyncio):
        setattr(asyncio, name, None)
    os.kill(os.getpid(), 15)
"""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import sys\n\n\ndef process(input):\n    sys.exit(3)\n", "SystemExit: 3"),
        ("def process(input):\n    return bytearray(1 << 40)\n", "MemoryError"),
        ("import os\n\n\ndef process(input):\n    os._exit(5)\n", "exited with code 5"),
        ("def process(input):\n    while True:\n        pass\n", "1 of 0"),
        ("def process(input):\n    while True:\n        print('x' * 1000)\n", "1 of 0"),
        ("import os, time\n\n\ndef process(input):\n    os.fork() or time.sleep(60)\n", "1 of 1"),
        ("def process(input):\n    raise KeyboardInterrupt('mine')\n", "KeyboardInterrupt: mine"),
        ("def process(input):\n    raise BaseException('mine')\n", "BaseException: mine"),
        ("import os\n\n\ndef process(input):\n    os.closerange(0, 4096)\n", "of the instance"),
        (DEADLOCK, "1 of 0"),
        ("import time\n\n\nasync def process(input):\n    time.sleep(60)\n", "1 of 0"),
        ("async def process(input):\n    while True:\n        pass\n", "1 of 0"),
        (PATCHED, "of the instance"),
        ("def process(input):\n    return process(input)\n", "RecursionError"),
    ],
    ids=[
        *("exit", "memory", "hard exit", "loop", "print", "fork", "interrupt", "base exception"),
        *("no files", "deadlock", "blocked loop", "loop in loop", "patched", "recursion"),
    ],
)
async def test_a_bad_function_is_told_of_and_leaves_the_worker_and_others_alone(
    worker: Worker, code: str, told: str
) -> None:
    good = await worker.create("user_code.py", GOOD)
    bad = await worker.create("user_code.py", code, ram=256 * 1024 * 1024)
    assert (await worker.settled(good)).state is InstanceState.RUNNING
    assert (await worker.settled(bad)).state is InstanceState.RUNNING
    await worker.publish(bad, b"go")
    async with asyncio.timeout(TIMEOUT_S):
        while told not in await told_of(worker, bad):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(POLL_S)
    for _ in range(3):
        assert await worker.answer(good, b"hello") == b"hello!"
    good_report = worker.runtime.instances.report(good)
    assert good_report is not None
    assert (good_report.restarts, good_report.failure) == (0, None)
    worker.runtime.instances.assign({})
    await asyncio.wait_for(worker.runtime.instances.ended(bad), TIMEOUT_S)


async def told_of(worker: Worker, instance: InstanceName) -> str:
    """All that an operator is told of what went wrong, and how far the instance is."""
    report = worker.runtime.instances.report(instance)
    assert report is not None
    text = "" if report.failure is None else report.failure.trace
    status = await worker.runtime.instances.status(instance, TIMEOUT_S)
    if status:
        counted = InstanceStatus.of(json.loads(status))
        text += "".join(each.text for each in counted.latest_user_exceptions)
        text += f"; received {counted.total.received} of {counted.total.processed} processed"
    return text


async def test_the_end_of_the_lease_ends_a_function_that_computes_for_ever(worker: Worker) -> None:
    one = await worker.create(
        "user_code.py", "def process(input):\n    while True:\n        pass\n"
    )
    report = await worker.settled(one)
    await worker.publish(one, b"go")
    instances = worker.runtime.instances
    instances.lease_until_s = 0  # a shorter lease than it has
    instances.extend_lease(SystemClock().monotonic() + 1)
    while report.pid == (instances.report(one) or report).pid:  # noqa: ASYNC110 - it is killed
        await asyncio.sleep(POLL_S)
    with pytest.raises(ProcessLookupError):
        os.kill(report.pid or 0, 0)
    assert not instances.lease.is_set()


@pytest.mark.parametrize("kind", ["process", "thread"])
async def test_the_end_of_the_lease_is_no_failure_of_the_function(
    standalone: StandaloneProcess, tmp_path: Path, kind: Literal["process", "thread"]
) -> None:
    urls = standalone.service_url, standalone.web_service_url
    async with opened(*urls, tmp_path, kind, SHORT_LEASE_S) as worker:
        one, instances = await worker.create("user_code.py", GOOD), worker.runtime.instances
        while (report := instances.report(one)) is None or report.state not in SETTLED:
            instances.extend_lease(SystemClock().monotonic() + SHORT_LEASE_S)
            await asyncio.sleep(POLL_S)
        restarts = report.restarts  # none, unless this machine stood still meanwhile
        while instances.lease.is_set():  # noqa: ASYNC110 - until the clock says so
            await asyncio.sleep(POLL_S)
        # The broker stores heartbeats again, as after its restart.
        instances.extend_lease(SystemClock().monotonic() + 600)
        assert await worker.answer(one, b"hello") == b"hello!"
        report = await worker.settled(one)
        assert (report.state, report.restarts) == (InstanceState.RUNNING, restarts + 1)
        assert report.failure is None
