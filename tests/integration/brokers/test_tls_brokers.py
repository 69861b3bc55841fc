"""Proves with real processes that brokers which serve TLS alone, with certificates of a private
authority, are one cluster: they redirect, ask each other and move bundles over TLS."""

from __future__ import annotations

import urllib.request
from collections.abc import Generator

import pulsar
import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.broker_group import (
    BrokerGroup,
    BrokerProcess,
    broker_group,
    tls_alone,
)
from tests.unit.geminga.certificates import Authority

HOST = "127.0.0.1"
TOPICS = [f"persistent://public/default/secured-{number}" for number in range(12)]
SUBSCRIPTION = "readers"
RECEIVE_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def group(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerGroup]:
    """Brokers that show each other certificates, too."""
    options, tls = tls_alone(authority, HOST)
    towards_brokers = (
        *("--broker-client-tls-enabled", "--broker-client-tls-trust-file"),
        str(authority.trust_file),
        *("--broker-client-tls-certificate-file", str(authority.issue("broker-client", HOST))),
    )
    directory = tmp_path_factory.mktemp("secured")
    with broker_group(directory, *options, *towards_brokers, brokers=2, tls=tls) as started:
        yield started


def text(broker: BrokerProcess, path: str) -> str:
    with urllib.request.urlopen(broker.web + path, context=broker.tls, timeout=60) as answer:
        return str(answer.read().decode())


def test_brokers_that_serve_tls_alone_are_one_cluster(
    group: BrokerGroup, authority: Authority
) -> None:
    first, second = group.brokers
    assert {first.url.partition(":")[0], second.url.partition(":")[0]} == {"pulsar+ssl"}
    certificate = str(authority.issue("client", HOST))
    trusting = {
        "tls_trust_certs_file_path": str(authority.trust_file),
        "tls_validate_hostname": True,
        "authentication": pulsar.AuthenticationTLS(certificate, certificate),
    }
    with client_of(group.service_url, **trusting) as client:
        consumer = client.subscribe(TOPICS, SUBSCRIPTION)
        producers = {
            topic: client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
            for topic in TOPICS
        }
        owners = {
            topic: {group.owner(topic, asked=asked).id for asked in (0, 1)} for topic in TOPICS
        }
        assert [len(each) for each in owners.values()] == [1] * len(TOPICS)
        assert set.union(*owners.values()) == {first.id, second.id}
        for topic, producer in producers.items():
            producer.send(b"before")
            # At the wrong broker the request is redirected, with TLS.
            path = f"/admin/v2/{topic.replace('://', '/')}/stats"
            assert [each.rest("GET", path)[0] for each in group.brokers] == [200, 200]
        # What concerns the whole namespace each broker asks of the other.
        namespace = "/admin/v2/namespaces/public/default"
        assert first.rest("PUT", f"{namespace}/unload") == (204, None)
        moved = group.owner(TOPICS[0])
        target = second if moved is first else first
        bundle = text(first, f"/lookup/v2/topic/{TOPICS[0].replace('://', '/')}/bundle")
        for asked in (moved, target):  # the owner, then one that has to ask the owner
            unload = f"{namespace}/{bundle}/unload?destinationBroker={target.id}"
            assert asked.rest("PUT", unload) == (204, None)
            assert group.owner(TOPICS[0]) is target
            target = moved
        for producer in producers.values():
            producer.send(b"after")
        # A message whose acknowledgement was forgotten when its bundle moved comes again.
        received = set[tuple[str, bytes]]()
        while len(received) < 2 * len(TOPICS):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            consumer.acknowledge(message)
            received.add((message.topic_name(), message.data()))
    assert received == {(topic, body) for topic in TOPICS for body in (b"before", b"after")}
    said = [each.rest("GET", "/admin/v2/brokers/leaderBroker")[1] for each in group.brokers]
    assert said[0] == said[1]
    assert said[0]["serviceUrl"] == f"https://{said[0]['brokerId']}"
    assert text(first, f"/admin/v2/brokers/health?brokerId={second.id}") == "ok"
