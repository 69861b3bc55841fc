"""A proxy that connects to its brokers with TLS, for clients with and without TLS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.proxy_process import proxy_of
from tests.integration.rest import rest
from tests.unit.geminga.certificates import Authority

StartStandalone = Callable[..., StandaloneProcess]
HOST = "127.0.0.1"
TOPIC = "persistent://public/default/proxy-broker-tls"
RECEIVE_MS = 60_000


def test_connections_to_brokers_are_secured(
    tls_standalone: StandaloneProcess, authority: Authority, tmp_path: Path
) -> None:
    broker = tls_standalone.endpoints["broker"]
    secured = "--broker-tls-enabled", "--broker-tls-trust-file", str(authority.trust_file)
    zookeeper = "--zookeeper", str(tls_standalone.endpoints["zookeeper"]["address"])
    body = b"secret" * 100_000  # more than a record of TLS and the kernel's buffers hold
    with proxy_of(tmp_path / "log", *zookeeper, *secured) as proxy:
        with client_of(proxy.service_url) as client:
            consumer = client.subscribe(TOPIC, "s")
            client.create_producer(TOPIC).send(body)
            assert consumer.receive(RECEIVE_MS).data() == body
        assert rest(proxy.web_url, "GET", "/admin/v2/clusters") == (200, ["standalone"])

    by_name = (
        *("--broker-service-url-tls", str(broker["pulsar_tls"]).replace(HOST, "localhost")),
        *("--broker-web-service-url-tls", str(broker["web_tls"]).replace(HOST, "localhost")),
    )
    with proxy_of(tmp_path / "named", *by_name, *secured) as proxy:
        # With a certificate for another host, lookups and REST fail alike.
        client = pulsar.Client(proxy.service_url, operation_timeout_seconds=2)
        with closing(client), pytest.raises(pulsar.PulsarException):
            client.create_producer(TOPIC)
        assert rest(proxy.web_url, "GET", "/admin/v2/clusters")[0] == 502
    unchecked = (*by_name, *secured, "--no-broker-tls-check-hostname")
    with proxy_of(tmp_path / "unchecked", *unchecked) as proxy:
        assert rest(proxy.web_url, "GET", "/admin/v2/clusters") == (200, ["standalone"])
        with client_of(proxy.service_url) as client:
            client.create_producer(TOPIC).send(b"hello")
