"""A real proxy in front of a real cluster: its clients know nothing but the proxy, and it survives
failures of the cluster."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.integration.conftest import StartCluster
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.proxy_process import ProxyProcess, proxy_of
from tests.integration.rest import metric, rest
from tests.integration.waiting import eventually
from tests.unit.geminga.certificates import Authority

from geminga import connect
from geminga_server.run import ExitCode

RECEIVE_MS = 60_000
# Less than a consumer needs that finds its subscription busy, and retries.
BACK_S = 20.0
# The proxy waits five seconds for a broker's answer; this is less than the ten that connecting may
# take.
LOOKUP_S = 9.0


def zookeeper_of(cluster: StandaloneProcess) -> str:
    return str(cluster.endpoints["zookeeper"]["address"])


@pytest.fixture(scope="module")
def proxy(
    standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ProxyProcess]:
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    with proxy_of(log, "--zookeeper", zookeeper_of(standalone)) as process:
        yield process


def test_the_official_client_needs_the_proxy_alone(proxy: ProxyProcess) -> None:
    topic = "persistent://public/default/through-proxy"
    assert (
        rest(proxy.web_url, "PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", 3)[0] == 204
    )
    carried_bytes = metric(proxy.metrics_url, "pulsar_proxy_binary_bytes")
    with client_of(proxy.service_url) as client:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic)
        sent = {f"m{number}".encode() for number in range(50)}
        for body in sorted(sent):
            producer.send(body)
        received = {consumer.receive(RECEIVE_MS).data() for _ in sent}
    assert received == sent
    assert metric(proxy.metrics_url, "pulsar_proxy_binary_bytes") > carried_bytes
    assert metric(proxy.metrics_url, "pulsar_proxy_rejected_connections") == 0
    assert rest(proxy.web_url, "GET", "/health") == (200, {"status": "ok"})


async def test_our_client_needs_the_proxy_alone(proxy: ProxyProcess) -> None:
    async with (
        connect(proxy.service_url) as client,
        client.consumer("through-proxy-2", subscription="s") as consumer,
        client.producer("through-proxy-2") as producer,
    ):
        await producer.send(b"hello")
        assert (await consumer.receive()).data == b"hello"
        topics = await client.topics("public/default")
        assert "persistent://public/default/through-proxy-2" in topics


def test_a_proxy_may_be_given_urls_instead_of_a_zookeeper(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    urls = (
        *("--broker-service-url", standalone.service_url),
        *("--broker-web-service-url", standalone.web_url),
        *("--zookeeper", "127.0.0.1:1"),
    )
    with proxy_of(tmp_path / "log", *urls) as proxy, client_of(proxy.service_url) as client:
        client.create_producer("persistent://public/default/by-urls").send(b"hello")
        assert rest(proxy.web_url, "GET", "/admin/v2/clusters") == (200, ["standalone"])


def test_clients_may_come_to_a_proxy_with_tls(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trust_file = str(authority.trust_file)
    options = (
        *("--zookeeper", zookeeper_of(standalone), "--port-tls", "0", "--web-port-tls", "0"),
        *("--tls-certificate-file", str(authority.issue("proxy", "127.0.0.1"))),
    )
    trusting: dict[str, Any] = {
        "tls_trust_certs_file_path": trust_file,
        "tls_validate_hostname": True,
    }
    body = b"secret" * 100_000  # more than a record of TLS and the kernel's buffers hold
    with (
        proxy_of(tmp_path / "log", *options) as proxy,
        client_of(proxy.service_url_tls, **trusting) as client,
    ):
        consumer = client.subscribe("persistent://public/default/proxy-tls", "s")
        client.create_producer("persistent://public/default/proxy-tls").send(body)
        assert consumer.receive(RECEIVE_MS).data() == body
        context = ssl.create_default_context(cafile=trust_file)
        url = f"{proxy.web_url_tls}/admin/v2/clusters"
        with urllib.request.urlopen(url, context=context) as answer:
            assert json.load(answer) == ["standalone"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["ended", "killed"])
def test_what_a_proxy_carried_goes_on_through_the_other_one(
    standalone: StandaloneProcess, tmp_path: Path, *, is_killed: bool
) -> None:
    topic = f"persistent://public/default/two-proxies-{is_killed}"
    options = "--zookeeper", zookeeper_of(standalone)
    with ExitStack() as stack:
        first = stack.enter_context(proxy_of(tmp_path / "first", *options))
        second = stack.enter_context(proxy_of(tmp_path / "second", *options))
        both = f"{first.service_url},{second.service_url.removeprefix('pulsar://')}"
        client = stack.enter_context(client_of(both))
        consumer = client.subscribe(topic, "exclusive")
        producer = client.create_producer(
            topic, producer_name="mine", send_timeout_millis=SEND_TIMEOUT_MS
        )
        producer.send(b"before")
        assert consumer.receive(RECEIVE_MS).data() == b"before"
        gone = first if carries(first) else second
        if is_killed:
            gone.process.kill()
        else:
            gone.process.terminate()
        code = gone.process.wait(20)
        assert code == (-9 if is_killed else ExitCode.OK)
        begun_s = time.monotonic()
        producer.send(b"after")
        receive_until(consumer, b"after")
        assert time.monotonic() - begun_s < BACK_S


def receive_until(consumer: pulsar.Consumer, body: bytes) -> None:
    """Receive up to this message. Those that were not acknowledged come again before it."""
    while consumer.receive(RECEIVE_MS).data() != body:
        pass


def carries(proxy: ProxyProcess) -> bool:
    return metric(proxy.metrics_url, "geminga_proxy_splices") > 0


def test_a_proxy_outlives_the_restart_of_the_whole_cluster(
    harmed: StandaloneProcess, tmp_path: Path
) -> None:
    topic = "persistent://public/default/restarted"
    options = "--zookeeper", zookeeper_of(harmed)
    with proxy_of(tmp_path / "log", *options) as proxy, client_of(proxy.service_url) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
        producer.send(b"before")
        killed = {part: harmed.kill_part(part) for part in ("zookeeper", "broker")}
        for part, pid in killed.items():
            harmed.wait_restarted(part, pid)
        producer.send(b"after")
        receive_until(consumer, b"after")
        eventually(
            lambda: rest(proxy.web_url, "GET", "/admin/v2/clusters")[0],
            lambda status: status == 200,
        )
        assert proxy.process.poll() is None


def test_garbage_costs_a_proxy_nothing(proxy: ProxyProcess) -> None:
    host, _, port = proxy.service_url.removeprefix("pulsar://").partition(":")
    garbage = f"head -c 20000000 /dev/urandom > /dev/tcp/{host}/{port}"
    for _ in range(3):
        subprocess.run(["bash", "-c", garbage], check=False, capture_output=True, timeout=60)
    with client_of(proxy.service_url) as client:
        client.create_producer("persistent://public/default/after-garbage").send(b"hello")
    eventually(
        lambda: metric(proxy.metrics_url, "pulsar_proxy_active_connections"), lambda n: n == 0
    )


def test_a_broker_that_stands_still_holds_no_lookup_up(start_cluster: StartCluster) -> None:
    cluster = start_cluster("--no-sync", brokers=2, bookies=1, proxies=1)
    topic = "persistent://public/default/still"

    def publish_twice() -> None:
        # The proxy asks the brokers in turn, so that each of them is asked for one client at least.
        for _ in range(2):
            with client_of(cluster.proxies_url) as client:
                client.create_producer(topic).send(b"hello")

    publish_twice()
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
    _, owner = rest(cluster.web_url_of("broker"), "GET", path)
    (other,) = set(cluster.brokers) - {cluster.broker_at(owner["brokerUrl"])}
    cluster.pause(other)
    begun_s = time.monotonic()
    publish_twice()
    assert time.monotonic() - begun_s < LOOKUP_S
    cluster.resume(other)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
def test_a_proxy_that_is_gone_keeps_no_subscription_busy(
    standalone: StandaloneProcess, tmp_path: Path, end: signal.Signals
) -> None:
    topic = f"persistent://public/default/proxy-gone-{end.name}"
    options = "--zookeeper", zookeeper_of(standalone)
    with ExitStack() as stack:
        gone = stack.enter_context(proxy_of(tmp_path / "gone", *options))
        other = stack.enter_context(proxy_of(tmp_path / "other", *options))
        stack.callback(gone.process.send_signal, signal.SIGCONT)
        first = stack.enter_context(client_of(gone.service_url))
        first.subscribe(topic, "exclusive")
        second = stack.enter_context(client_of(other.service_url))
        with pytest.raises(pulsar.ConsumerBusy):
            second.subscribe(topic, "exclusive")
        gone.process.send_signal(end)
        begun_s = time.monotonic()
        consumer = eventually(partial(subscribed, second, topic), lambda found: found is not None)
        assert consumer is not None
        assert time.monotonic() - begun_s < BACK_S
        second.create_producer(topic).send(b"hello")
        assert consumer.receive(RECEIVE_MS).data() == b"hello"
        if end is signal.SIGSTOP:
            gone.process.kill()  # before the first client does, which would wait for it


def subscribed(client: pulsar.Client, topic: str) -> pulsar.Consumer | None:
    try:
        return client.subscribe(topic, "exclusive")
    except pulsar.ConsumerBusy:
        return None
