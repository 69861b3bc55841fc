"""Proves that the official ``pulsar-admin`` drives the whole life of functions, sources and sinks
on workers of ours: every command of its groups ``functions``, ``sources``, ``sinks`` and
``functions-worker`` but ``localrun``, which asks no worker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.compat.pulsar_admin import PulsarAdmin
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.function_workers import BETTER, GOOD, Workers, two_workers

from pytest_geminga.clusters import Cluster

COUNTS = """
from pulsar import Function


class Count(Function):
    def process(self, input, context):
        context.incr_counter("seen", 1)
        return input + "!"
"""
BROKEN = "import no_such_module\n"


@pytest.fixture
async def workers(geminga_standalone: Cluster, tmp_path: Path) -> AsyncIterator[Workers]:
    assert isinstance(geminga_standalone, StandaloneProcess)
    async with two_workers(geminga_standalone, tmp_path) as both:
        yield both


@pytest.fixture
def admin(workers: Workers, tmp_path: Path) -> PulsarAdmin:
    """Asks the worker that does not lead."""
    return PulsarAdmin(workers.workers[1].me.url, tmp_path)


@pytest.fixture
def name() -> str:
    return f"f{uuid4().hex[:8]}"


async def test_a_function_from_its_creation_to_its_end(admin: PulsarAdmin, name: str) -> None:
    (admin.directory / "f.py").write_text(COUNTS)
    (admin.directory / "broken.py").write_text(BROKEN)
    package = ("--py", "f.py", "--classname", "f.Count")
    topics = ("--inputs", f"{name}-in", "--output", f"{name}-out")
    one = ("--name", name)
    assert await admin.does("functions create", *package, *topics, *one) == "Created successfully"
    assert "already exists" in await admin.refuses("functions create", *package, *topics, *one)
    broken = ("--py", "broken.py", "--classname", "broken", "--name", f"{name}-b")
    assert "No module named 'no_such_module'" in await admin.refuses(
        "functions create", *broken, "--inputs", f"{name}-in"
    )
    await admin.does("functions delete", "--name", f"{name}-b")

    config = await admin.shows("functions get", *one)
    assert (config["name"], config["className"]) == (name, "f.Count")
    assert list(config["inputSpecs"]) == [f"{name}-in"]
    assert name in await admin.does("functions list")
    # It triggers the function, and shows its result.
    assert await admin.does("functions trigger", *one, "--trigger-value", "hello") == "hello!"
    for word in ("status", "getstatus"):
        status = await admin.shows(f"functions {word}", *one)
        assert status["instances"][0]["status"]["numSuccessfullyProcessed"] == 1
    instance = await admin.shows("functions status --instance-id 0", *one)
    assert instance["running"] is True
    assert (await admin.shows("functions stats", *one))["receivedTotal"] == 1
    assert (await admin.shows("functions querystate -k seen", *one))["numberValue"] == 1
    state = json.dumps({"key": "greeting", "stringValue": "hello"})
    await admin.does("functions putstate", *one, "--state", state)
    assert (await admin.shows("functions querystate -k greeting", *one))["stringValue"] == "hello"

    await admin.does("functions download --destination-file downloaded.py", *one)
    assert (admin.directory / "downloaded.py").read_text() == COUNTS
    assert "Update contains no change" in await admin.refuses("functions update", *one)
    (admin.directory / "g.py").write_text(BETTER)
    updated = await admin.does("functions update --py g.py --classname g", *one)
    assert updated == "Updated successfully"
    assert await admin.does("functions trigger", *one, "--trigger-value", "hello") == "hello?"
    for word in ("stop", "start", "restart"):
        assert await admin.does(f"functions {word}", *one)
        assert await admin.does(f"functions {word} --instance-id 0", *one)
    assert await admin.does("functions delete", *one) == "Deleted successfully"
    assert f"Function {name} doesn't exist" in await admin.refuses("functions get", *one)


async def test_packages_under_paths_and_what_is_built_in(admin: PulsarAdmin, name: str) -> None:
    (admin.directory / "f.py").write_text(GOOD)
    path = ("--path", f"public/default/{name}/f.py")
    await admin.does("functions upload --source-file f.py", *path)
    await admin.does("functions download --destination-file downloaded.py", *path)
    assert (admin.directory / "downloaded.py").read_text() == GOOD
    await admin.does("functions available-functions")
    await admin.does("functions reload")
    assert "data-generator" in await admin.does("sources available-sources")
    await admin.does("sources reload")
    assert "http" in await admin.does("sinks available-sinks")
    await admin.does("sinks reload")


@pytest.mark.parametrize("kind", ["sources", "sinks"])
async def test_a_connector_from_its_creation_to_its_end(
    admin: PulsarAdmin, name: str, kind: str
) -> None:
    one = ("--name", name)
    words: tuple[str, ...]
    if kind == "sources":
        words = ("--source-type", "data-generator", "--destination-topic-name", f"{name}-out")
        change = ("--source-config", '{"sleepBetweenMessages": "20"}')
    else:
        url = '{"url": "http://127.0.0.1:9/"}'
        words = ("--sink-type", "http", "--inputs", f"{name}-in", "--sink-config", url)
        change = ("--sink-config", '{"url": "http://127.0.0.1:10/"}')
    assert await admin.does(f"{kind} create", *words, *one) == "Created successfully"
    assert (await admin.shows(f"{kind} get", *one))["name"] == name
    assert name in await admin.does(f"{kind} list")
    for word in ("status", "getstatus"):
        assert (await admin.shows(f"{kind} {word}", *one))["numInstances"] == 1
    assert (await admin.shows(f"{kind} status --instance-id 0", *one))["running"] is True
    assert await admin.does(f"{kind} update", *change, *one) == "Updated successfully"
    for word in ("stop", "start", "restart"):
        assert await admin.does(f"{kind} {word}", *one)
        assert await admin.does(f"{kind} {word} --instance-id 0", *one)
    assert "successfully" in await admin.does(f"{kind} delete", *one)
    assert "doesn't exist" in await admin.refuses(f"{kind} get", *one)


async def test_the_cluster_of_workers(admin: PulsarAdmin, workers: Workers) -> None:
    cluster = await admin.does("functions-worker get-cluster")
    assert "w-0" in cluster
    assert "w-1" in cluster
    leader = await admin.does("functions-worker get-cluster-leader")
    assert workers.workers[0].me.worker_id in leader
    await admin.does("functions-worker get-function-assignments")
    assert "process_metrics" in await admin.does("functions-worker monitoring-metrics")
    await admin.does("functions-worker function-stats")
    await admin.does("functions-worker rebalance")
