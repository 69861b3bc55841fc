"""Proves that a broker serves TLS: the four URLs of a cluster work for the official client and for
ours, and a certificate is renewed while it serves."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.unit.geminga.certificates import Authority

import geminga
from geminga_ledger.connections.single_request import SingleRequest, connect_with_tls
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame
from geminga_runtime.network import AsyncioNetwork
from geminga_server.tls.config import BookieClientTlsConfig

StartStandalone = Callable[..., StandaloneProcess]
TOPIC = "persistent://public/default/secrets"
HOST = "127.0.0.1"


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


def cluster_record(tls_standalone: StandaloneProcess, authority: Authority) -> dict[str, str]:
    """What the broker says over HTTPS of its tls_standalone."""
    context = ssl.create_default_context(cafile=str(authority.trust_file))
    url = f"{tls_standalone.endpoints['broker']['web_tls']}/admin/v2/clusters/standalone"
    with urlopen(url, context=context) as answer:
        return dict(json.load(answer))


async def test_all_urls_of_a_cluster_work(
    tls_standalone: StandaloneProcess, authority: Authority
) -> None:
    record = cluster_record(tls_standalone, authority)
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
    tls_standalone: StandaloneProcess, authority: Authority, tmp_path: Path
) -> None:
    successor = Authority(tmp_path)
    url = tls_standalone.endpoints["broker"]["pulsar_tls"]
    async with (
        geminga.connect(url, tls=trusting(authority)) as before,
        before.producer(TOPIC) as producer,
    ):
        in_use = authority.trust_file.parent / "broker.pem"
        successor.issue("broker", HOST).rename(in_use)
        async with geminga.connect(url, tls=trusting(successor)) as client:
            renewed = None
            async with asyncio.timeout(30):
                while renewed is None:
                    with suppress(geminga.TlsFailed, geminga.NotConnected):
                        renewed = await client.producer(TOPIC)
            await renewed.send(b"with the new certificate")
        await producer.send(b"over the connection made with the old one")


async def ask_with_tls(
    question: Callable[[], SingleRequest], address: tuple[str, int], context: ssl.SSLContext
) -> pb.Response:
    """What a bookie answers over a connection that it was asked to secure."""
    transport, asking = await connect_with_tls(AsyncioNetwork(), question, address, context)
    try:
        return await asking.answer
    finally:
        transport.close()


async def test_a_broker_stores_on_its_bookies_over_tls(
    authority: Authority, start_standalone: StartStandalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = authority.issue("client", HOST)
    settings = {
        "BOOKIE_TLS__CERTIFICATE_FILE": authority.issue("bookie", HOST),
        "BOOKIE_TLS__TRUST_FILE": authority.trust_file,
        "BOOKIE_TLS__REQUIRE_CLIENT_CERTIFICATE": "true",
        "BROKER_BOOKKEEPER_TLS__TRUST_FILE": authority.trust_file,
        "BROKER_BOOKKEEPER_TLS__CERTIFICATE_FILE": certificate,
        "BROKER_BOOKKEEPER_TLS__CHECK_HOSTNAME": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"GEMINGA_{name}", str(value))
    cluster = start_standalone()
    body = b"secret" * 100_000
    async with geminga.connect(cluster.service_url) as client:
        async with client.producer(TOPIC) as producer:
            for _ in range(20):
                await producer.send(body)
        # A broker that has nothing in memory reads it all from the bookie.
        cluster.wait_restarted("broker", cluster.kill_part("broker"))
        async with client.reader(TOPIC) as reader:
            for _ in range(20):
                assert (await reader.read()).data == body
    told = cluster.log_tail(10_000)
    # Whatever connected to the bookie, the broker's two lives at least, had the connection secured.
    assert 2 <= told.count("bookie connected") == told.count("connection secured")

    host, _, port = cluster.endpoints["bookie"]["bookie"].rpartition(":")
    address = host, int(port)
    config = BookieClientTlsConfig(
        trust_file=str(authority.trust_file), certificate_file=str(certificate), check_hostname=True
    )
    start_tls = pb.Request()
    start_tls.header.version = pb.VERSION_THREE
    start_tls.header.operation = pb.START_TLS
    start_tls.header.txnId = 2
    question = partial(SingleRequest, encode_frame(start_tls))
    answer = await ask_with_tls(question, address, config.context())
    assert answer.status == pb.EBADREQ  # it is secured already
    # Without a certificate the handshake, or with TLS 1.3 what comes after it, fails.
    nameless = BookieClientTlsConfig(trust_file=str(authority.trust_file))
    with pytest.raises(OSError):  # noqa: PT011 - a reset or an alert, as it happens
        await ask_with_tls(question, address, nameless.context())
