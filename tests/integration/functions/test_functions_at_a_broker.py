"""Functions at a broker's own address: the worker of a standalone, and one that a broker starts."""

from __future__ import annotations

import json
import os
import signal
import ssl
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
from tests.integration.conftest import StartStandalone
from tests.integration.processes.broker_group import BrokerProcess, broker_group
from tests.integration.processes.cluster_process import is_running
from tests.integration.waiting import eventually

import geminga.sync

TIMEOUT_S = 60.0
CODE = "def process(input):\n    return input + '!'\n"
PATH = "/admin/v3/functions/public/default"


def create(web_url: str, name: str, directory: Path, tls: ssl.SSLContext | None = None) -> None:
    """Create a function through the broker, with a package that needs no more than a read."""
    config = {
        "tenant": "public",
        "namespace": "default",
        "name": name,
        "className": name,
        "inputs": [f"persistent://public/default/{name}-in"],
        "output": f"persistent://public/default/{name}-out",
        "py": f"{name}.py",
    }
    (directory / f"{name}.py").write_text(CODE)
    files: dict[str, tuple[str | None, str, str]] = {
        "functionConfig": (None, json.dumps(config), "application/json"),
        "data": (f"{name}.py", CODE, "application/octet-stream"),
    }
    url = f"{web_url}{PATH}/{name}"

    def post() -> int:
        return httpx.post(url, files=files, timeout=TIMEOUT_S, verify=tls or True).status_code

    eventually(post, (204).__eq__)  # the worker answers before it leads


def trigger(web_url: str, name: str, tls: ssl.SSLContext | None = None) -> str:
    files = {"data": (None, "hello")}
    url = f"{web_url}{PATH}/{name}/trigger"
    answer = httpx.post(url, files=files, timeout=TIMEOUT_S, verify=tls or True)
    assert answer.status_code == 200, answer.text
    return answer.text


def status_of(web_url: str, tls: ssl.SSLContext | None = None) -> Callable[[], int]:
    return lambda: httpx.get(f"{web_url}{PATH}", timeout=TIMEOUT_S, verify=tls or True).status_code


def test_a_standalone_runs_functions_and_goes_on_without_its_worker(
    start_standalone: StartStandalone, tmp_path: Path
) -> None:
    cluster = start_standalone("--functions-worker")
    web_url = cluster.web_service_url
    eventually(status_of(web_url), (200).__eq__)
    name = f"f{uuid.uuid4().hex[:8]}"
    create(web_url, name, tmp_path)
    assert trigger(web_url, name) == "hello!"
    os.kill(cluster.endpoints["functions-worker"]["pid"], signal.SIGKILL)
    assert httpx.get(f"{web_url}/admin/v2/brokers/ready", timeout=TIMEOUT_S).text == "ok"
    eventually(status_of(web_url), (200).__eq__)
    # The instance runs again, and all that was told of the function is there.
    eventually(lambda: name in httpx.get(f"{web_url}{PATH}", timeout=TIMEOUT_S).json(), bool)
    assert trigger(web_url, name) == "hello!"


def test_a_broker_starts_a_worker_beside_it_that_ends_with_it(tmp_path: Path) -> None:
    options = ("--functions-worker-enabled", "--functions-worker-directory")
    with broker_group(tmp_path, *options, str(tmp_path / "worker"), brokers=1) as group:
        (broker,) = group.brokers
        eventually(status_of(broker.web), (200).__eq__)
        worker = worker_below(broker)
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: worker_below(broker) not in (0, worker), bool)
        eventually(status_of(broker.web), (200).__eq__)
        worker = worker_below(broker)
        broker.kill()
        eventually(lambda: is_running(worker), (False).__eq__)


def test_a_broker_serves_though_its_worker_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "worker").write_text("where its directory should be")
    options = ("--functions-worker-enabled", "--functions-worker-directory")
    with broker_group(tmp_path, *options, str(tmp_path / "worker"), brokers=1) as group:
        (broker,) = group.brokers
        eventually(status_of(broker.web), (503).__eq__)
        worker = worker_below(broker)
        # It is tried again and again.
        eventually(lambda: worker_below(broker) not in (0, worker), bool)
        with (
            geminga.sync.connect(broker.url) as client,
            client.producer("served") as producer,
        ):
            producer.send(b"yes")
        assert status_of(broker.web)() == 503


def worker_below(broker: BrokerProcess) -> int:
    """The process of the functions worker; 0 where none runs now."""
    pid = broker.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next((int(each) for each in children if is_running(int(each))), 0)
