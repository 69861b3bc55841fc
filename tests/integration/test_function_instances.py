"""Proves that an instance in a process of its own consumes, calls the user's code and publishes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from tests.integration.cluster_process import StandaloneProcess
from tests.integration.rest import rest

import geminga
from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Failed,
    Lease,
    Start,
    Started,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_functions.instance.status import InstanceStatus
from geminga_protocol.functions.functions_pb2 import EARLIEST, EFFECTIVELY_ONCE, FunctionDetails
from geminga_runtime.control_codec import MessageReader

TIMEOUT_S = 30.0
LEASE_S = 60.0
MessageT = TypeVar("MessageT")


class InstanceProcess:
    """An instance, as its worker has it."""

    def __init__(self, process: asyncio.subprocess.Process, sock: socket.socket) -> None:
        self.process = process
        self._socket = sock
        self._reader = MessageReader(INSTANCE_CHANNEL)

    async def send(self, message: object) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, INSTANCE_CHANNEL.encode(message))

    async def receive(self, kind: type[MessageT]) -> MessageT:
        async with asyncio.timeout(TIMEOUT_S):
            chunk = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        (message,) = self._reader.feed(chunk)
        assert isinstance(message, kind), message
        return message

    async def status(self) -> InstanceStatus:
        await self.send(StatusRequest(1))
        return InstanceStatus.from_json((await self.receive(StatusAnswer)).status)

    async def stop(self) -> None:
        await self.send(Stop(5.0))
        await self.receive(Stopped)
        assert await self.process.wait() == 0


class Functions:
    """Starts instances of one function, whose code it writes."""

    def __init__(self, standalone: StandaloneProcess, directory: Path) -> None:
        self._standalone = standalone
        self._directory = directory
        name = f"f{uuid4().hex[:8]}"
        self.input, self.output = f"{name}-in", f"{name}-out"
        self.details = FunctionDetails(
            tenant="public", namespace="default", name=name, autoAck=True, parallelism=1
        )
        self.details.source.inputSpecs[self.input].SetInParent()
        self.details.source.subscriptionPosition = EARLIEST
        self.details.sink.topic = self.output

    @asynccontextmanager
    async def instance(
        self, class_name: str, code: str, lease_s: float = LEASE_S
    ) -> AsyncIterator[InstanceProcess]:
        (self._directory / "user_code.py").write_text(code, encoding="utf-8")
        self.details.className = class_name
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "geminga_functions.instance"),
            *(str(theirs.fileno()), str(os.getpid())),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        try:
            instance = InstanceProcess(process, ours)
            await instance.send(
                Start(
                    self.details.SerializeToString(),
                    *(0, 1, "worker", "standalone"),
                    *(self._standalone.service_url, self._standalone.web_service_url),
                    "",
                    str(self._directory),
                    str(self._directory),
                    time.monotonic() + lease_s,
                )
            )
            yield instance
        finally:
            ours.close()
            await process.wait()


@pytest.fixture
def functions(standalone: StandaloneProcess, tmp_path: Path) -> Functions:
    return Functions(standalone, tmp_path)


@pytest.fixture
async def client(standalone: StandaloneProcess) -> AsyncIterator[geminga.Client]:
    async with geminga.connect(standalone.service_url) as client:
        yield client


async def publish(client: geminga.Client, topic: str, *values: bytes) -> None:
    async with client.producer(topic) as producer:
        for value in values:
            await producer.send(value)


async def results(client: geminga.Client, topic: str, count: int) -> list[geminga.Message[bytes]]:
    async with (
        client.consumer(topic, "test", initial_position="earliest") as consumer,
        asyncio.timeout(TIMEOUT_S),
    ):
        return [await consumer.receive() for _ in range(count)]


EXCLAMATION = """
from pulsar import Function

class Exclamation(Function):
    def process(self, input, context):
        return input + "!"
"""


async def test_a_class_for_the_official_package_runs_unchanged(
    functions: Functions, client: geminga.Client
) -> None:
    await publish(client, functions.input, b"hello", b"world")
    async with functions.instance("user_code.Exclamation", EXCLAMATION) as instance:
        await instance.receive(Started)
        found = await results(client, functions.output, 2)
        assert [each.data for each in found] == [b"hello!", b"world!"]
        status = await instance.status()
        assert (status.total.received, status.total.processed) == (2, 2)
        assert found[0].properties["__pfn_input_topic__"].endswith(functions.input)
        await instance.stop()


async def test_what_is_done_is_acknowledged_and_not_done_again(
    functions: Functions, client: geminga.Client
) -> None:
    code = "def process(input):\n    return input + '?'\n"
    for value in (b"one", b"two"):
        await publish(client, functions.input, value)
        async with functions.instance("user_code", code) as instance:
            await instance.receive(Started)
            async with client.consumer(functions.output, "s", initial_position="earliest") as out:
                async with asyncio.timeout(TIMEOUT_S):
                    message = await out.receive()
                assert message.data == value + b"?"
                await out.ack_confirmed(message)
            await instance.stop()


async def test_the_traceback_of_code_that_does_not_load_is_told(functions: Functions) -> None:
    async with functions.instance("user_code", "def process(input)\n    return 1\n") as instance:
        failed = await instance.receive(Failed)
        assert failed.is_user_error
        assert "SyntaxError" in failed.trace
        assert "user_code.py" in failed.trace
        assert await instance.process.wait() == 1


async def test_an_exception_is_counted_with_its_traceback(
    functions: Functions, client: geminga.Client
) -> None:
    code = "def process(input):\n    return {'good': input}[input]\n"
    await publish(client, functions.input, b"bad", b"good")
    async with functions.instance("user_code", code) as instance:
        await instance.receive(Started)
        await results(client, functions.output, 1)
        status = await instance.status()
        assert (status.total.received, status.total.processed) == (2, 1)
        (exception,) = status.latest_user_exceptions
        assert "KeyError: 'bad'" in exception.text
        await instance.stop()


async def test_code_that_computes_for_ever_ends_with_its_lease(
    functions: Functions, client: geminga.Client
) -> None:
    code = "def process(input):\n    while True:\n        pass\n"
    await publish(client, functions.input, b"x")
    async with functions.instance("user_code", code, lease_s=3.0) as instance:
        await instance.receive(Started)
        until_s = time.monotonic() + 4.0
        await instance.send(Lease(until_s))
        async with asyncio.timeout(TIMEOUT_S):
            assert await instance.process.wait() == -signal.SIGKILL
        assert time.monotonic() >= until_s


async def test_effectively_once_stores_every_result_once_though_instances_are_killed(
    functions: Functions, client: geminga.Client, standalone: StandaloneProcess
) -> None:
    namespace = f"public/{functions.input}"
    web = standalone.web_service_url
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    path = f"/admin/v2/namespaces/{namespace}/deduplication"
    assert rest(web, "POST", path, body=True)[0] == 204
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/in/partitions", 3)[0] == 204
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/out/partitions", 2)[0] == 204
    del functions.details.source.inputSpecs[functions.input]
    functions.details.source.inputSpecs[f"{namespace}/in"].SetInParent()
    functions.details.sink.topic = f"{namespace}/out"
    functions.details.processingGuarantees = EFFECTIVELY_ONCE
    numbers = [str(number).encode() for number in range(3000)]
    async with client.producer(f"{namespace}/in") as producer:
        for number in numbers:
            producer.send_nowait(number)
            await producer.ready()
        await producer.flush()
    # Not so fast that the first life does it all.
    code = "def process(input):\n    sum(range(30_000))\n    return input\n"
    seen: list[int] = []
    lives = 0
    async with client.consumer(
        f"{namespace}/out", "s", initial_position="earliest", type="exclusive"
    ) as consumer:
        while len(set(seen)) < len(numbers):
            lives += 1
            async with functions.instance("user_code", code) as instance:
                await instance.receive(Started)
                async with asyncio.timeout(TIMEOUT_S):
                    # A few hundred results a life: kills come amid batches and acknowledgements.
                    for _ in range(min(300, len(numbers) - len(set(seen)))):
                        message = await consumer.receive()
                        seen.append(int(message.data))
                        await consumer.ack_confirmed(message)
                instance.process.kill()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                seen.append(int((await consumer.receive()).data))
    assert sorted(seen) == list(range(3000))
    assert lives > 5
