"""However many connections are idle, busy clients go on, operators get in, and no client hangs."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import ConnectionClosed, RawClient
from tests.integration.rest import metric, rest, samples
from tests.integration.waiting import eventually

from geminga_cli.embedded_zookeeper.configuration import CONNECTIONS_MAX
from geminga_protocol.pulsar import api_pb2 as api
from geminga_server.open_files import share_out

StartStandalone = Callable[..., StandaloneProcess]

LOW = (256, 256)
FLOOD = 600
USUAL_SOFT_LIMIT = 1_024
MANY = 2_000
# What this process needs besides MANY connections, and a cluster beside as many clients.
SPARE = 2_000
TOPIC = "persistent://public/default/open-files"


@contextmanager
def idle_connections(url: str, count: int) -> Generator[list[socket.socket]]:
    """So many connections that say nothing."""
    address = urlsplit(url)
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((address.hostname, address.port), 60))
            for _ in range(count)
        ]


def has_ended(idle: socket.socket) -> bool:
    """Whether the server has closed a connection, unread words before the end or not."""
    idle.settimeout(0.0)
    try:
        while idle.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


def is_ready(cluster: StandaloneProcess) -> bool:
    """Whether REST answers."""
    return rest(cluster.web_service_url, "GET", "/admin/v2/brokers/public")[0] == 200


def lines_of(cluster: StandaloneProcess, words: str) -> list[str]:
    return [line for line in cluster.log_tail(10_000).splitlines() if words in line]


def cluster_with(
    open_files: tuple[int, int], factory: pytest.TempPathFactory
) -> Generator[StandaloneProcess]:
    cluster = StandaloneProcess.start(factory.mktemp("files") / "data", open_files=open_files)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster whose parts may have 256 files open each."""
    yield from cluster_with(LOW, tmp_path_factory)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster that was started with the usual soft limit, below the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield from cluster_with((USUAL_SOFT_LIMIT, hard), tmp_path_factory)


@pytest.fixture
def many_files() -> Generator[None]:
    """This process may have many connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY + SPARE:
        pytest.skip(f"this machine allows {hard} open files, and {MANY + SPARE} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + SPARE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_of_clients_disturbs_neither_operators_nor_connected_clients(
    limited: StandaloneProcess,
) -> None:
    (warning,) = lines_of(limited, "limit on open files is low")
    assert "open_files=256" in warning
    assert "part=supervisor" in warning
    metrics = limited.metrics_url("broker")
    allowed = metric(metrics, "geminga_broker_connections_max")
    with RawClient(limited.service_url) as producer:
        producer.connect()
        producer.create_producer(TOPIC, 1)
        producer.publish(1, 0, b"before")
        with idle_connections(limited.service_url, FLOOD) as idle:
            eventually(
                lambda: sum(map(has_ended, idle)), lambda count: count == FLOOD - allowed + 1
            )
            eventually(lambda: metric(metrics, "pulsar_active_connections"), allowed.__eq__)
            assert metric(metrics, "process_open_fds") < LOW[0]
            assert sum(samples(metrics, "geminga_broker_refused_connections_total")) >= (
                FLOOD - allowed
            )
            assert is_ready(limited)
            producer.publish(1, 1, b"meanwhile")
            with RawClient(limited.service_url) as refused:
                error = refused.receive().command.error
                assert error.error == api.NotAllowedError
                assert error.message == "Reached the maximum number of connections"
                with pytest.raises(ConnectionClosed):
                    refused.receive()
        eventually(lambda: metric(metrics, "pulsar_active_connections"), lambda count: count == 1)
        producer.publish(1, 2, b"after")
    with RawClient(limited.service_url) as newcomer:
        newcomer.connect()
        newcomer.create_producer(TOPIC, 1)
        newcomer.publish(1, 0, b"new")
    assert 1 <= len(lines_of(limited, "connections refused")) <= 5


def test_idle_connections_to_the_web_port_keep_no_client_out(limited: StandaloneProcess) -> None:
    with idle_connections(limited.web_service_url, FLOOD) as idle:
        assert is_ready(limited)
        metrics = limited.metrics_url("broker")
        allowed = metric(metrics, "geminga_broker_http_connections_max")
        eventually(lambda: sum(map(has_ended, idle)), lambda count: count >= FLOOD - allowed)
        assert metric(metrics, "geminga_broker_http_evicted_connections_total") >= FLOOD - allowed
        with RawClient(limited.service_url) as client:
            client.connect()


def test_a_flood_of_a_bookies_clients_does_not_disturb_the_broker(
    limited: StandaloneProcess,
) -> None:
    metrics = limited.metrics_url("bookie")
    bookie = f"//{limited.endpoints['bookie']['bookie']}"
    with RawClient(limited.service_url) as producer:
        producer.connect()
        producer.create_producer(TOPIC, 1)
        with idle_connections(bookie, FLOOD) as idle:
            allowed = metric(metrics, "geminga_bookie_connections_max")
            eventually(lambda: sum(map(has_ended, idle)), lambda count: count > FLOOD - allowed)
            eventually(lambda: metric(metrics, "geminga_bookie_connections"), allowed.__eq__)
            assert metric(metrics, "geminga_bookie_refused_connections_total") > FLOOD - allowed
            for number in range(10):
                producer.publish(1, number, b"meanwhile")
            # A topic of its own makes a ledger, and a ledger a new journal entry and index.
            producer.create_producer(f"{TOPIC}-2", 2)
            producer.publish(2, 0, b"meanwhile")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells another process's limits")
def test_every_process_of_a_standalone_has_the_limit_that_there_is(
    usual: StandaloneProcess,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for part in ("supervisor", "zookeeper", "bookie", "broker"):
        assert resource.prlimit(usual.pid_of(part), resource.RLIMIT_NOFILE) == (hard, hard), part
    # ZooKeeper is told its number of connections before it runs.
    allowed = min(CONNECTIONS_MAX, share_out(hard).clients)
    configuration = (usual.data_directory / "zookeeper" / "zoo.cfg").read_text()
    assert f"maxCnxns={allowed}" in configuration.splitlines()


@pytest.mark.usefixtures("many_files")
def test_two_thousand_idle_connections_do_no_harm_under_the_usual_soft_limit(
    usual: StandaloneProcess,
) -> None:
    with idle_connections(usual.service_url, MANY) as idle:
        eventually(
            lambda: metric(usual.metrics_url("broker"), "pulsar_active_connections"),
            lambda count: count == MANY,
        )
        assert not any(map(has_ended, idle))
        assert is_ready(usual)
        with RawClient(usual.service_url) as newcomer:
            newcomer.connect()
            newcomer.create_producer(TOPIC, 1)
            newcomer.publish(1, 0, b"new")


def test_a_limit_without_room_for_clients_is_refused_in_one_line(
    start_standalone: StartStandalone,
) -> None:
    with pytest.raises(AssertionError, match=r"64 open files is too low"):
        start_standalone(open_files=(64, 64))
