"""Clusters replicate to each other with TLS.

Each shows the other a certificate, and is configured to accept one that names another host.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar
import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.geo_clusters import NAMESPACE, REPLICATION, TENANT, done, stats_of
from tests.integration.waiting import eventually
from tests.unit.geminga.certificates import Authority

from pytest_geminga.clusters import CLUSTER_UP, SMALL

EAST, WEST = NAMES = ("east", "west")
TOPIC = f"persistent://{NAMESPACE}/orders"
OF_TOPIC = f"/admin/v2/persistent/{NAMESPACE}/orders/replication"
RECEIVE_TIMEOUT_MS = 60_000


@pytest.fixture
def clusters(
    zookeeper_address: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[dict[str, StandaloneProcess]]:
    """Two clusters, each below a path of its own in one ZooKeeper."""
    trusted, client = str(authority.trust_file), str(authority.issue("client", "client.example"))
    settings = {
        "PORT_TLS": "0",
        "WEB_PORT_TLS": "0",
        "TLS__CERTIFICATE_FILE": str(authority.issue("broker", "broker.example")),
        "TLS__TRUST_FILE": trusted,
        "TLS__REQUIRE_CLIENT_CERTIFICATE": "true",
        "BROKER_CLIENT_TLS__ENABLED": "true",
        "BROKER_CLIENT_TLS__TRUST_FILE": trusted,
        "BROKER_CLIENT_TLS__CERTIFICATE_FILE": client,
        "BROKER_CLIENT_TLS__CHECK_HOSTNAME": "false",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"GEMINGA_BROKER_{name}", value)

    def start(name: str) -> StandaloneProcess:
        words = ("--cluster", name, "--zookeeper", f"{zookeeper_address}/secured-{name}")
        return StandaloneProcess.start(tmp_path / name, *words, *SMALL, module=CLUSTER_UP)

    with ThreadPoolExecutor() as threads:
        running = list(threads.map(start, NAMES))
        yield dict(zip(NAMES, running, strict=True))
        list(threads.map(StandaloneProcess.stop, running))


def introduce(clusters: dict[str, StandaloneProcess], authority: Authority) -> None:
    """Register each cluster at the other, with TLS addresses alone.

    The record in ``east`` says how to connect; the one in ``west`` does not, so that the settings
    of its brokers hold.
    """
    urls = {name: each.endpoints["broker"]["pulsar_tls"] for name, each in clusters.items()}
    certificate = str(authority.issue("replicator", "replicator.example"))
    how = {
        "brokerClientTlsEnabled": True,
        "brokerClientTrustCertsFilePath": str(authority.trust_file),
        "brokerClientCertificateFilePath": certificate,
        "brokerClientKeyFilePath": certificate,
    }
    for here, there, more in ((EAST, WEST, how), (WEST, EAST, {})):
        record = {"brokerServiceUrlTls": urls[there], **more}
        done(clusters[here], "PUT", f"/admin/v2/clusters/{there}", record)
        tenant = {"adminRoles": [], "allowedClusters": list(NAMES)}
        done(clusters[here], "PUT", f"/admin/v2/tenants/{TENANT}", tenant)
        done(clusters[here], "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})


def test_clusters_replicate_with_tls(
    clusters: dict[str, StandaloneProcess], authority: Authority
) -> None:
    introduce(clusters, authority)
    done(clusters[EAST], "POST", REPLICATION, list(NAMES))
    with (
        client_of(clusters[EAST].service_url) as east,
        client_of(clusters[WEST].service_url) as west,
    ):
        consumers = {
            name: client.subscribe(TOPIC, "s") for name, client in ((EAST, east), (WEST, west))
        }
        # Of one topic alone: a broker has a client of its own cluster for what topics say.
        done(clusters[WEST], "POST", OF_TOPIC, list(NAMES))
        for name in NAMES:
            eventually(lambda: ways(clusters[name]), ["running"].__eq__)  # noqa: B023
        for client, sent in ((east, b"from east"), (west, b"from west")):
            producer = client.create_producer(TOPIC, send_timeout_millis=SEND_TIMEOUT_MS)
            producer.send(sent)
            for consumer in consumers.values():
                assert next_of(consumer) == sent


def ways(cluster: StandaloneProcess) -> list[str]:
    """The states of the topic's replicators."""
    return [each["state"] for each in stats_of(cluster, "orders")["replication"].values()]


def next_of(consumer: pulsar.Consumer) -> bytes:
    """The next message, acknowledged."""
    message = consumer.receive(RECEIVE_TIMEOUT_MS)
    consumer.acknowledge(message)
    found: bytes = message.data()
    return found
