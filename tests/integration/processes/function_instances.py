"""Instances of functions as processes; the test takes the part of their worker."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import geminga
from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Start,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_functions.instance.status import InstanceStatus
from geminga_protocol.functions.functions_pb2 import EARLIEST, FunctionDetails
from geminga_runtime.control_codec import MessageReader

TIMEOUT_S = 30.0
LEASE_S = 60.0
MessageT = TypeVar("MessageT")


class InstanceProcess:
    """An instance process, as a worker sees it."""

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
        return InstanceStatus.of(json.loads((await self.receive(StatusAnswer)).status))

    async def stop(self) -> None:
        await self.send(Stop(5.0))
        await self.receive(Stopped)
        assert await self.process.wait() == 0


class Functions:
    """Starts instances of one function, whose code it writes."""

    def __init__(self, service_url: str, web_url: str, directory: Path) -> None:
        self._service_url = service_url
        self.web_url = web_url
        self._directory = directory
        self._folders = [directory / f"instance-{number}" for number in range(8)]
        self.more_paths: list[Path] = []
        self.secrets_provider = self.secrets_config = ""
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
    ) -> AsyncGenerator[InstanceProcess]:
        (self._directory / "user_code.py").write_text(code, encoding="utf-8")
        self.details.className = class_name
        paths = [self._directory, *self.more_paths]
        # An instance that starts after another one finds the state that the other has left.
        folder = self._folders.pop(0)
        folder.mkdir(exist_ok=True)
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
                    *(self._service_url, self.web_url),
                    "",
                    os.pathsep.join(map(str, paths)),
                    str(folder),
                    time.monotonic() + lease_s,
                    secrets_provider=self.secrets_provider,
                    secrets_config=self.secrets_config,
                )
            )
            yield instance
        finally:
            ours.close()
            await process.wait()
            self._folders.insert(0, folder)


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
