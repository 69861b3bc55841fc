"""Proves that a broker serves TLS: the four URLs of a cluster work for the official client and for
ours, and a certificate is renewed while it serves."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest
from tests.integration.cluster_process import StandaloneProcess
from tests.unit.geminga.certificates import Authority

import geminga

StartStandalone = Callable[..., StandaloneProcess]
TOPIC = "persistent://public/default/secrets"
HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def cluster(
    authority: Authority, start_standalone: StartStandalone, monkeypatch: pytest.MonkeyPatch
) -> StandaloneProcess:
    settings = {
        "PORT_TLS": "0",
        "WEB_PORT_TLS": "0",
        "TLS__CERTIFICATE_FILE": str(authority.issue("broker", HOST)),
        "TLS__REFRESH_S": "0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"GEMINGA_BROKER_{name}", value)
    return start_standalone()


def official_client(url: str, authority: Authority) -> pulsar.Client:
    return pulsar.Client(
        url,
        tls_trust_certs_file_path=str(authority.trust_file),
        tls_validate_hostname=True,
        operation_timeout_seconds=20,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )


def trusting(authority: Authority) -> geminga.Tls:
    return geminga.Tls(trust_file=authority.trust_file)


def cluster_record(cluster: StandaloneProcess, authority: Authority) -> dict[str, str]:
    """What the broker says over HTTPS of its cluster."""
    context = ssl.create_default_context(cafile=str(authority.trust_file))
    url = f"{cluster.endpoints['broker']['web_tls']}/admin/v2/clusters/standalone"
    with urlopen(url, context=context) as answer:
        return dict(json.load(answer))


async def test_all_urls_of_a_cluster_work(cluster: StandaloneProcess, authority: Authority) -> None:
    record = cluster_record(cluster, authority)
    kinds = ("brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl", "serviceUrlTls")
    urls = [record[kind] for kind in kinds]
    schemes = ["pulsar", "pulsar+ssl", "http", "https"]
    assert [url.partition("://")[0] for url in urls] == schemes
    body = b"secret" * 100_000  # several records of TLS, and of the kernel's buffers
    for scheme, url in zip(schemes, urls, strict=True):
        with closing(official_client(url, authority)) as client:
            consumer = client.subscribe(TOPIC, f"official-{scheme}")
            client.create_producer(TOPIC).send(body)
            assert consumer.receive(timeout_millis=20_000).data() == body
        is_tls = scheme in ("pulsar+ssl", "https")
        async with (
            geminga.connect(url, tls=trusting(authority) if is_tls else None) as ours,
            ours.consumer(TOPIC, subscription=f"ours-{scheme}") as subscribed,
            ours.producer(TOPIC) as producer,
        ):
            await producer.send(body)
            assert (await subscribed.receive()).data == body


async def test_a_certificate_is_renewed_while_the_broker_serves(
    cluster: StandaloneProcess, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    successor = Authority(tmp_path / "new")
    url = cluster.endpoints["broker"]["pulsar_tls"]
    async with (
        geminga.connect(url, tls=trusting(authority)) as before,
        before.producer(TOPIC) as producer,
    ):
        successor.issue("broker", HOST).rename(tmp_path / "broker.pem")
        async with geminga.connect(url, tls=trusting(successor)) as client:
            renewed = None
            async with asyncio.timeout(30):
                while renewed is None:
                    with suppress(geminga.TlsFailed, geminga.NotConnected):
                        renewed = await client.producer(TOPIC)
            await renewed.send(b"with the new certificate")
        await producer.send(b"over the connection made with the old one")
