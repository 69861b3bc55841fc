"""Proves that one broker serves clients that reach it at different addresses, each with what it can
reach: the official client, by the port it came by, by the listener it names, and over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack
from urllib.request import urlopen

import pulsar
import pytest
from tests.integration.processes.cluster_process import StandaloneProcess

from geminga_cli.ports import ReservedPort

StartStandalone = Callable[..., StandaloneProcess]
TOPIC = "persistent://public/default/greetings"
LOOKUP = "/lookup/v2/topic/persistent/public/default/greetings"


@pytest.fixture(scope="module")
def ports() -> Generator[tuple[int, int, int, int]]:
    """Ports for the Pulsar protocol and for HTTP, inside and outside; no other test gets them."""
    with ExitStack() as stack:
        inside, web, outside, outside_web = (
            stack.enter_context(ReservedPort("127.0.0.1", 0)).port for _ in range(4)
        )
        yield inside, web, outside, outside_web


@pytest.fixture
def cluster(
    ports: tuple[int, int, int, int],
    start_standalone: StartStandalone,
    monkeypatch: pytest.MonkeyPatch,
) -> StandaloneProcess:
    """A standalone whose broker has a listener beside the internal one, with ports of its own."""
    inside, web, outside, outside_web = ports
    listeners = (
        f"internal:pulsar://127.0.0.1:{inside}",
        f"internal:http://127.0.0.1:{web}",
        f"external:pulsar://localhost:{outside}",
        f"external:http://localhost:{outside_web}",
    )
    binds = (
        f"external:pulsar://127.0.0.1:{outside}",
        f"external:http://127.0.0.1:{outside_web}",
    )
    monkeypatch.setenv("GEMINGA_BROKER_ADVERTISED_LISTENERS", ",".join(listeners))
    monkeypatch.setenv("GEMINGA_BROKER_BIND_ADDRESSES", ",".join(binds))
    return start_standalone("--broker-port", str(inside), "--web-port", str(web))


def told(url: str) -> str:
    """The broker's address in the answer to a lookup over HTTP."""
    with urlopen(url, timeout=20) as answer:
        return str(json.load(answer)["brokerUrl"])


def test_each_client_is_answered_for_the_way_it_came(
    cluster: StandaloneProcess, ports: tuple[int, int, int, int]
) -> None:
    del cluster
    inside, web, outside, outside_web = ports
    ways = (
        (f"pulsar://127.0.0.1:{inside}", None),
        (f"pulsar://localhost:{outside}", None),
        (f"pulsar://127.0.0.1:{inside}", "external"),
        (f"http://localhost:{outside_web}", None),
    )
    for number, (url, listener) in enumerate(ways):
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        client = pulsar.Client(url, listener_name=listener, logger=quiet)
        try:
            consumer = client.subscribe(TOPIC, f"reader-{number}")
            client.create_producer(TOPIC).send(url.encode())
            assert consumer.receive(timeout_millis=20_000).data() == url.encode()
        finally:
            client.close()

    assert told(f"http://127.0.0.1:{web}{LOOKUP}") == f"pulsar://127.0.0.1:{inside}"
    assert told(f"http://localhost:{outside_web}{LOOKUP}") == f"pulsar://localhost:{outside}"
    assert (
        told(f"http://127.0.0.1:{web}{LOOKUP}?listenerName=external")
        == f"pulsar://localhost:{outside}"
    )
