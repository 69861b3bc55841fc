"""Functions where brokers serve TLS alone: the worker, its REST calls and its instances use it, and
the worker serves TLS itself."""

from __future__ import annotations

import re
import ssl
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.integration.functions.test_functions_at_a_broker import create, status_of, trigger
from tests.integration.processes.broker_group import BrokerGroup, broker_group, tls_alone
from tests.integration.waiting import eventually
from tests.unit.geminga.certificates import Authority

HOST = "127.0.0.1"
END_S = 30.0


@pytest.fixture(scope="module")
def group(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerGroup]:
    """One broker that takes only clients with a certificate."""
    options, tls = tls_alone(authority, HOST)
    directory = tmp_path_factory.mktemp("secured")
    with broker_group(directory, *options, brokers=1, tls=tls) as started:
        yield started


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_functions_run_beside_a_broker_that_serves_tls_alone(
    group: BrokerGroup, authority: Authority, tmp_path: Path, runtime: str
) -> None:
    (broker,) = group.brokers
    certificate, trusted = str(authority.issue("worker", HOST)), str(authority.trust_file)
    # The scheme is left to `useTls`, as upstream's files have it.
    service_url = broker.url.replace("pulsar+ssl://", "pulsar://")
    worker = group.start_part(
        "functions-worker",
        f"worker-{runtime}",
        *("--pulsar-service-url", service_url, "--pulsar-web-service-url", broker.web),
        *("--broker-tls-enabled", "--broker-tls-trust-file", trusted),
        *("--broker-tls-certificate-file", certificate),
        *("--worker-port", "0", "--worker-port-tls", "0"),
        *("--tls-enabled", "--tls-certificate-file", certificate),
        *("--function-runtime", runtime, "--worker-id", f"worker-{runtime}"),
        *("--directory", str(tmp_path / "functions"), "--log-directory", str(tmp_path / "logs")),
    )
    found = re.search(r"web_tls=(https://\S+)", worker.wait_for("functions worker serves"))
    assert found
    web_url, tls = found[1], ssl.create_default_context(cafile=trusted)
    eventually(status_of(web_url, tls), (200).__eq__)
    # Until then it answers that the leader is not ready.
    worker.wait_for("worker leads")
    name = f"of_{runtime}"
    create(web_url, name, tmp_path, tls)
    assert trigger(web_url, name, tls) == "hello!"
    worker.process.terminate()
    assert worker.process.wait(END_S) == 0
