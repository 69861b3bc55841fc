"""``geminga admin`` and ``geminga status`` against a real cluster, from tenant to message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess

TIMEOUT_S = 200
Admin = Callable[..., str]


@pytest.fixture
def geminga(standalone: StandaloneProcess) -> Admin:
    """Runs the command line; returns what it shows, or what it complains of."""

    def run(line: str, *, code: int = 0) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "geminga_cli", *line.split()],
            env={**os.environ, "GEMINGA_ADMIN_URL": standalone.web_service_url},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == code, ended.stderr or ended.stdout
        shown: str = ended.stdout if code == 0 else ended.stderr
        return shown.rstrip("\n")

    return run


@pytest.fixture
def client(standalone: StandaloneProcess) -> Generator[Any]:
    with client_of(standalone.service_url) as client:
        yield client


def test_the_life_of_a_tenant(geminga: Admin, client: Any, tmp_path: Path) -> None:
    geminga("admin tenants create works")
    assert "works" in geminga("admin tenants list").splitlines()
    assert "exist" in geminga("admin tenants create works", code=1)
    geminga("admin namespaces create works/ns --bundles 4")
    geminga("admin namespaces set-retention works/ns --time 3h --size 10G")
    shown: dict[str, Any] = json.loads(geminga("admin --json namespaces get-retention works/ns"))
    assert shown == {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10_240}
    geminga("admin namespaces remove-retention works/ns")
    assert geminga("admin namespaces get-retention works/ns") == "not set"
    geminga("admin topics create works/ns/orders")
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "STRING"}')
    geminga(f"admin schemas upload works/ns/orders -f {schema}")
    assert json.loads(geminga("admin --json schemas get works/ns/orders"))["type"] == "STRING"
    geminga("admin schemas delete works/ns/orders")
    assert "not found" in geminga("admin schemas get works/ns/orders", code=1).lower()
    geminga("admin topics create-subscription works/ns/orders -s billing -m earliest")
    producer = client.create_producer("works/ns/orders")
    for number in range(3):
        producer.send(b"order %d" % number, properties={"number": str(number)})
    assert "order 1" in geminga("admin topics peek-messages works/ns/orders -s billing -n 2")
    geminga("admin subscriptions skip works/ns/orders -s billing -n 1")
    stats = geminga("admin topics stats works/ns/orders").splitlines()
    row = next(line for line in stats if line.split()[:1] == ["billing"])
    assert row.split()[-4] == "2"
    assert "connected" in geminga("admin topics delete works/ns/orders", code=1)
    producer.close()
    geminga("admin topics delete works/ns/orders")
    geminga("admin namespaces delete works/ns")
    geminga("admin tenants delete works")
    assert "works" not in geminga("admin tenants list").splitlines()


def test_the_state_of_a_cluster(geminga: Admin) -> None:
    shown = geminga("status").splitlines()
    assert shown[0] == "health    ok"
    assert any(line.endswith("(leader)") for line in shown)
