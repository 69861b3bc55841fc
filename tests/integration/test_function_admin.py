"""Proves that functions are created, changed, watched and deleted over REST, at any of the workers,
whichever leads and whichever runs them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.integration.cluster_process import StandaloneProcess

import geminga
from geminga_functions.admin.app import worker_app
from geminga_functions.cluster.membership import WorkerInfo
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.names import FunctionName
from geminga_functions.runtime.config import RuntimeConfig
from geminga_functions.worker import Worker
from geminga_runtime.clock import SystemClock
from geminga_server.http import HttpServer
from geminga_server.ports import free_port
from geminga_server.rest_calls import HttpCalls

TIMEOUT_S = 60.0
POLL_S = 0.05
GOOD = "def process(input):\n    return input + '!'\n"
BETTER = "def process(input):\n    return input + '?'\n"
BROKEN = "import no_such_module\n\ndef process(input):\n    return input\n"


class Workers:
    """Two workers, and clients of their REST sides: first the one that leads."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self.http = [httpx.AsyncClient(base_url=each.me.url, timeout=TIMEOUT_S) for each in workers]

    async def topics(self) -> list[str]:
        """Those of the namespace of workers, packages among them."""
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


@pytest.fixture
async def workers(standalone: StandaloneProcess, tmp_path: Path) -> AsyncIterator[Workers]:
    """Of a cluster of workers of their own."""
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
                runtime=RuntimeConfig(
                    directory=tmp_path / f"functions-{number}",
                    log_directory=tmp_path / f"logs-{number}",
                ),
            )
            worker = Worker(
                config,
                me,
                client,
                HttpCalls(),
                environment=os.environ,
                clock=clock,
                random=Random(number),
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


async def test_a_function_lives_and_ends_at_a_worker_that_does_not_lead(workers: Workers) -> None:
    leader, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    created = await follower.post(url, files=form(GOOD, **config_of(name, parallelism=2)))
    assert (created.status_code, created.text) == (200, "")
    again = await leader.post(url, files=form(GOOD, **config_of(name)))
    assert again.status_code == 400
    assert again.json() == {"reason": f"Function {name} already exists"}
    assert await answer(workers, name, b"hello") == b"hello!"

    for http in workers.http:
        assert (await http.get("/admin/v3/functions/public/default")).json() == [name]
        assert (await http.get(url)).json()["parallelism"] == 2

        async def both_run(http: httpx.AsyncClient = http) -> bool:
            return bool((await http.get(f"{url}/status")).json()["numRunning"] == 2)

        await until_true(both_run)
        status = (await http.get(f"{url}/status")).json()
        assert {each["status"]["workerId"] for each in status["instances"]} == {"w-0", "w-1"}
        stats = (await http.get(f"{url}/stats")).json()
        assert (stats["receivedTotal"], stats["processedSuccessfullyTotal"]) == (1, 1)
        assert (await http.get(f"{url}/1/status")).json()["running"] is True
        assert (await http.get(f"{url}/2/status")).status_code == 400

    assert (await follower.get(f"{url}/download")).text == GOOD
    assert (await follower.post(f"{url}/restart")).status_code == 204
    updated = await follower.put(url, files=form(BETTER))
    assert (updated.status_code, updated.text) == (200, "")
    assert await answer(workers, name, b"hello") == b"hello?"
    refused = await leader.put(url, files=form(None, autoAck=False))
    assert (refused.status_code, refused.json()["reason"]) == (400, "AutoAck cannot be altered")

    assert (await follower.post(f"{url}/stop")).status_code == 204

    async def none_runs() -> bool:
        return bool((await follower.get(f"{url}/status")).json()["numRunning"] == 0)

    await until_true(none_runs)
    assert (await leader.post(f"{url}/0/start")).status_code == 204

    async def one_runs() -> bool:
        return bool((await follower.get(f"{url}/status")).json()["numRunning"] == 1)

    await until_true(one_runs)
    path = workers.workers[0].functions.records[FunctionName("public", "default", name)]
    package = workers.workers[0].runtime.packages.topic(path.packageLocation.packagePath)
    assert (await follower.delete(url)).status_code == 204
    gone = await follower.get(url)
    assert (gone.status_code, gone.json()) == (404, {"reason": f"Function {name} doesn't exist"})
    topics = await workers.topics()
    assert package not in topics


async def test_a_function_that_does_not_start_answers_its_traceback(workers: Workers) -> None:
    _, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    created = await follower.post(url, files=form(BROKEN, **config_of(name)))
    assert created.status_code == 400
    assert "No module named 'no_such_module'" in created.json()["reason"]
    status = (await follower.get(f"{url}/0/status")).json()
    assert status["running"] is False
    assert "no_such_module" in status["error"]
    # It is stored: an update mends it.
    assert (await follower.put(url, files=form(GOOD))).status_code == 200
    assert await answer(workers, name, b"x") == b"x!"
    await follower.delete(url)


async def test_what_cannot_be_leaves_nothing_behind(workers: Workers) -> None:
    leader, _ = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    for files, reason in [
        (form(GOOD, className="user_code"), "No input topic(s) specified for the function"),
        (form(None, **config_of(name)), "Function Package is not provided"),
        ({"data": ("user_code.py", b"")}, "Function config is not provided"),
    ]:
        refused = await leader.post(url, files=files)
        assert (refused.status_code, refused.json()["reason"]) == (400, reason)
    refused = await leader.post(url, json={})
    assert refused.json()["reason"] == "The body should be a multipart form"
    for place, reason in [
        ("no-such/default", "Tenant does not exist"),
        ("public/no-such", "Namespace does not exist"),
    ]:
        refused = await leader.post(
            f"/admin/v3/functions/{place}/f", files=form(GOOD, **config_of(name))
        )
        assert (refused.status_code, refused.json()["reason"]) == (400, reason)
    topics = await workers.topics()
    assert not [each for each in topics if name in each]


async def test_every_worker_knows_the_cluster(workers: Workers) -> None:
    for http in workers.http:
        members = (await http.get("/admin/v2/worker/cluster")).json()
        assert [each["workerId"] for each in members] == ["w-0", "w-1"]
        leader = (await http.get("/admin/v2/worker/cluster/leader")).json()
        assert leader["workerId"] == workers.workers[0].me.worker_id
        assert (await http.get("/admin/v2/worker/assignments")).status_code == 200


async def test_a_built_in_source_needs_no_package(workers: Workers) -> None:
    _, follower = workers.http
    name = f"s{uuid4().hex[:8]}"
    url = f"/admin/v3/sources/public/default/{name}"
    config = {"archive": "builtin://data-generator", "topicName": f"{name}-out"}
    files = {"sourceConfig": (None, json.dumps(config), "application/json")}
    created = await follower.post(url, files=files)
    assert (created.status_code, created.text) == (200, "")

    async def has_written() -> bool:
        status = (await follower.get(f"{url}/0/status")).json()
        return bool(status["running"] and status["numWritten"] > 0)

    await until_true(has_written)
    assert (await follower.get(url)).json()["archive"] == "builtin://data-generator"
    assert (await follower.get("/admin/v3/sources/public/default")).json() == [name]
    assert (await follower.get("/admin/v3/functions/public/default")).json() == []
    other = await follower.delete(f"/admin/v3/sinks/public/default/{name}")
    assert (other.status_code, other.json()["reason"]) == (404, f"Sink {name} doesn't exist")
    unknown = {"sourceConfig": (None, json.dumps(config | {"archive": "builtin://no"}))}
    refused = await follower.post(f"{url}2", files=unknown)
    assert refused.json()["reason"] == "Built-in source is not available"
    assert (await follower.delete(url)).status_code == 204


async def test_a_drained_worker_is_left_by_its_instances(workers: Workers) -> None:
    _, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    files = form(GOOD, **config_of(name, parallelism=2))
    assert (await follower.post(url, files=files)).status_code == 200
    drained, kept = (each.me.worker_id for each in reversed(workers.workers))
    path = "/admin/v2/worker/leader/drain"
    asked: dict[str, Any] = {"params": {"workerId": drained}, "follow_redirects": True}
    assert (await follower.get(path, **asked)).json()["status"] == "NOT_RUN"
    assert (await follower.put(path, **asked)).status_code == 204
    assert (await follower.put(path, **asked)).status_code == 409

    async def is_drained() -> bool:
        return bool((await follower.get(path, **asked)).json()["status"] == "SUCCESS")

    await until_true(is_drained)

    async def all_run_elsewhere() -> bool:
        assignments = (await follower.get("/admin/v2/worker/assignments")).json()
        return bool(assignments == {kept: [f"public/default/{name}:{each}" for each in (0, 1)]})

    await until_true(all_run_elsewhere)
    no_worker = await follower.put(path, params={"workerId": "no"}, follow_redirects=True)
    assert no_worker.status_code == 400
    rebalanced = await follower.put("/admin/v2/worker/rebalance", follow_redirects=True)
    assert rebalanced.status_code == 204
    assert (await follower.delete(url)).status_code == 204


COUNTS = """
from pulsar import Function


class Count(Function):
    def process(self, input, context):
        for word in input.split():
            context.incr_counter(word, 1)
        return str(context.get_state("greeting"))
"""


async def test_state_is_read_and_set_at_any_worker(workers: Workers) -> None:
    leader, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    config = config_of(name, className="user_code.Count")
    assert (await follower.post(url, files=form(COUNTS, **config))).status_code == 200
    missing = await leader.get(f"{url}/state/a%2Fb")
    assert missing.json() == {"reason": "key 'a/b' doesn't exist."}

    state = {"state": (None, json.dumps({"key": "greeting", "stringValue": "hello"}))}
    assert (await follower.post(f"{url}/state/greeting", files=state)).status_code == 200
    shown = {"key": "greeting", "stringValue": "hello", "version": 1}
    assert (await leader.get(f"{url}/state/greeting")).json() == shown

    async def is_greeted() -> bool:
        return await answer(workers, name, b"one two one") == b"b'hello'"

    await until_true(is_greeted)
    counted = (await follower.get(f"{url}/state/one")).json()
    two = (await leader.get(f"{url}/state/two")).json()["numberValue"]
    assert counted["numberValue"] == 2 * two > 0
    for wrong in ("nothing", json.dumps({"key": "other"}), json.dumps({"byteValue": "?"})):
        refused = await leader.post(f"{url}/state/greeting", files={"state": (None, wrong)})
        assert refused.status_code == 400


async def test_what_is_built_in_is_listed_as_java_s_client_asks(workers: Workers) -> None:
    _, http = workers.http
    sources = (await http.get("/admin/v3/source/builtinsources")).json()
    assert [each["name"] for each in sources] == ["data-generator", "file"]
    assert all(each["description"] and each["sourceClass"] for each in sources)
    sinks = (await http.get("/admin/v3/sink/builtinsinks")).json()
    assert [each["name"] for each in sinks] == ["http"]
    assert (await http.get("/admin/v3/functions/connectors")).json() == sources + sinks
    assert (await http.post("/admin/v3/sources/reloadBuiltInSources")).status_code == 204


async def test_a_function_is_triggered_and_its_result_answered(workers: Workers) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    assert (await http.post(url, files=form(GOOD, **config_of(name)))).status_code == 200
    shown = await http.post(f"{url}/trigger", files={"data": (None, "hello")})
    assert (shown.status_code, shown.text) == (200, "hello!")
    topic = {"data": (None, "hello"), "topic": (None, "another")}
    refused = await http.post(f"{url}/trigger", files=topic)
    assert refused.status_code == 400
    assert "another" in refused.json()["reason"]
