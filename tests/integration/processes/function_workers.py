"""Functions workers with their REST, inside the process of a test, and what tests ask of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import httpx
from tests.integration.processes.cluster_process import StandaloneProcess

import geminga
from geminga_functions.admin.app import worker_app
from geminga_functions.cluster.membership import WorkerInfo
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.worker import Worker, runtime_of
from geminga_runtime.clock import SystemClock
from geminga_server.http.rest_calls import HttpCalls
from geminga_server.http.server import HttpServer
from geminga_server.ports import free_port

TIMEOUT_S = 60.0
POLL_S = 0.05
GOOD = "def process(input):\n    return input + '!'\n"
BETTER = "def process(input):\n    return input + '?'\n"


class Workers:
    """Two workers, and a client of the REST of each: the leader's first."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self.http = [httpx.AsyncClient(base_url=each.me.url, timeout=TIMEOUT_S) for each in workers]

    async def topics(self) -> list[str]:
        """The topics of the workers' namespace, those of packages among them."""
        web_url = self.workers[0].config.pulsar_web_service_url
        async with httpx.AsyncClient(base_url=web_url) as http:
            listed = await http.get("/admin/v2/persistent/public/functions")
        topics: list[str] = listed.json()
        return topics

    async def leader_first(self) -> None:
        async def one_leads() -> bool:
            return any(each.leadership.is_leader for each in self.workers)

        await until_true(one_leads)
        if not self.workers[0].leadership.is_leader:
            self.workers.reverse()
            self.http.reverse()


async def until_true(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await holds():  # noqa: ASYNC110 - another process, or another worker, does it
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def two_workers(
    standalone: StandaloneProcess,
    directory: Path,
    *,
    package_bytes_max: int = 1 << 20,
    url_patterns: tuple[str, ...] = (),
) -> AsyncGenerator[Workers]:
    """Two workers, which are a cluster of workers of their own."""
    mark = uuid4().hex[:8]
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        opened: list[Worker] = []
        for number in range(2):
            client = await stack.enter_async_context(geminga.connect(standalone.service_url))
            me = WorkerInfo(f"w-{number}", "127.0.0.1", free_port("127.0.0.1", 0))
            config = FunctionsWorkerConfig(
                worker_id=me.worker_id,
                pulsar_service_url=standalone.service_url,
                pulsar_web_service_url=standalone.web_service_url,
                cluster_coordination_topic_name=f"coordinate-{mark}",
                function_metadata_topic_name=f"metadata-{mark}",
                function_assignment_topic_name=f"assignments-{mark}",
                additional_enabled_functions_url_patterns=url_patterns,
                runtime=RuntimeConfig(
                    directory=directory / f"functions-{number}",
                    log_directory=directory / f"logs-{number}",
                    package_bytes_max=package_bytes_max,
                ),
            )
            calls, random = HttpCalls(), Random(number)
            runtime = runtime_of(
                config, me, client, calls, environment=os.environ, clock=clock, random=random
            )
            worker = Worker(
                config,
                me,
                client,
                calls,
                runtime=runtime,
                clock=clock,
                random=random,
                copies=directory / f"functions-{number}" / "states",
            )
            server = HttpServer(worker_app(worker), "127.0.0.1", me.port, clock=clock)
            await stack.enter_async_context(server)
            await stack.enter_async_context(worker)
            opened.append(worker)
        group = Workers(opened)
        await group.leader_first()
        for http in group.http:
            await stack.enter_async_context(http)
        yield group


def form(code: str | None, **config: Any) -> dict[str, Any]:
    files: dict[str, Any] = {"functionConfig": (None, json.dumps(config), "application/json")}
    if code is not None:
        files["data"] = ("user_code.py", code.encode(), "application/octet-stream")
    return files


def config_of(name: str, **more: Any) -> dict[str, Any]:
    return {
        "className": "user_code",
        "inputs": [f"{name}-in"],
        "output": f"{name}-out",
        "subscriptionPosition": "Earliest",
        **more,
    }


async def answer(workers: Workers, name: str, value: bytes) -> bytes:
    client = workers.workers[0].client
    async with (
        client.consumer(f"{name}-out", "test", initial_position="earliest") as out,
        client.producer(f"{name}-in") as producer,
    ):
        await producer.send(value)
        async with asyncio.timeout(TIMEOUT_S):
            message = await out.receive()
        await out.ack_confirmed(message)
        return message.data
