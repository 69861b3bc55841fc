"""Clients that misbehave cost a proxy a bounded amount of memory, and the others are served
meanwhile."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.proxy_process import ProxyProcess, proxy_of
from tests.integration.rest import metric, samples
from tests.integration.waiting import eventually

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import encode_command

MIB = 1024 * 1024
RECEIVE_MS = 60_000
BODY = os.urandom(MIB)
BODIES = 24
SLOW_READERS = 40
# The proxy keeps 256 KiB for each, and what one read brings; without a bound it would be 20 MiB.
SLOW_READER_BYTES_MAX = MIB
IDLE_BYTES_MAX = 16 * 1024
GARBAGE_PIECE = os.urandom(MIB)
# A frame of the greatest size that the proxy reads, so that it has to keep it until it is whole.
LONGEST_FRAME = (128 * 1024).to_bytes(4, "big")


@pytest.fixture
def proxy(standalone: StandaloneProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    with proxy_of(tmp_path / "log", "--zookeeper", zookeeper, "--keepalive-s", "20") as process:
        serve_others(process)  # modules that are loaded at first use count for none of the tests
        yield process


def test_slow_readers_cost_a_bounded_buffer_each(
    proxy: ProxyProcess, standalone: StandaloneProcess
) -> None:
    topic = "persistent://public/default/slow-readers"
    with client_of(proxy.service_url) as client:
        producer = client.create_producer(topic)
        for _ in range(BODIES):
            producer.send(BODY)
    broker = standalone.service_url.removeprefix("pulsar://")
    before = memory_of(proxy)
    carried = partial(metric, proxy.metrics_url, "pulsar_proxy_binary_bytes")
    published = carried()
    with ExitStack() as stack:
        for number in range(SLOW_READERS):
            reader = stack.enter_context(closing(connected(proxy)))
            want_all(reader, broker, topic, f"slow-{number}")
        splices = partial(metric, proxy.metrics_url, "geminga_proxy_splices")
        eventually(splices, lambda n: n == SLOW_READERS)
        # More than the first message of each: the kernels' buffers are full, or soon will be.
        eventually(carried, lambda n: n - published > SLOW_READERS * MIB)
        serve_others(proxy)
        assert memory_of(proxy) - before < SLOW_READERS * SLOW_READER_BYTES_MAX


def test_clients_that_say_half_a_word_are_cut_off(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    with (
        proxy_of(tmp_path / "log", "--zookeeper", zookeeper, "--keepalive-s", "0.5") as proxy,
        ExitStack() as stack,
    ):
        for length in range(100):
            client = stack.enter_context(closing(connected(proxy)))
            client.sendall(connect_frame()[: length % 20])
        eventually(partial(active, proxy), lambda n: n == 0)
        assert metric(proxy.metrics_url, "pulsar_proxy_new_connections") == 100


def test_idle_connections_cost_little(proxy: ProxyProcess) -> None:
    hold_idle(proxy, 2_000)


@pytest.mark.full
def test_workers_hold_ten_thousand_idle_connections(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    """One process may have 20,000 open files where this is run: room for 9,000 clients."""
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    with proxy_of(tmp_path / "log", "--zookeeper", zookeeper, "--workers", "2") as proxy:
        serve_others(proxy)
        hold_idle(proxy, 10_000)


def hold_idle(proxy: ProxyProcess, clients: int) -> None:
    """Measure what so many clients cost that have sent CONNECT and nothing else."""
    before = memory_of(proxy)
    with open_files(clients + 500), ExitStack() as stack:
        for _ in range(clients):
            client = stack.enter_context(closing(connected(proxy)))
            client.sendall(connect_frame())
            assert client.recv(4096)
        eventually(partial(active, proxy), lambda n: n == clients)
        serve_others(proxy)
        assert memory_of(proxy) - before < clients * IDLE_BYTES_MAX


@pytest.mark.full
def test_half_a_gigabyte_of_garbage_costs_nothing(
    proxy: ProxyProcess, standalone: StandaloneProcess
) -> None:
    before = memory_of(proxy)
    broker = standalone.service_url.removeprefix("pulsar://")
    beginnings = b"", LONGEST_FRAME, connect_frame(), connect_frame(broker)
    for number in range(500):
        with closing(connected(proxy)) as client, suppress(ConnectionError):
            client.sendall(beginnings[number % len(beginnings)])
            client.sendall(GARBAGE_PIECE)
        if number % 100 == 0:
            serve_others(proxy)
    eventually(partial(active, proxy), lambda n: n == 0)
    assert memory_of(proxy) - before < 32 * MIB


def connected(proxy: ProxyProcess) -> socket.socket:
    host, _, port = proxy.service_url.removeprefix("pulsar://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def connect_frame(broker: str | None = None) -> bytes:
    connect = api.CommandConnect(client_version="test", protocol_version=19)
    if broker is not None:
        connect.proxy_to_broker_url = broker
    return encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))


def want_all(reader: socket.socket, broker: str, topic: str, subscription: str) -> None:
    """Subscribe, and have the broker send the whole topic."""
    subscribe = api.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=api.CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=1,
        initialPosition=api.CommandSubscribe.Earliest,
    )
    reader.sendall(connect_frame(broker))
    assert reader.recv(4096)  # CONNECTED
    reader.sendall(encode_command(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)))
    assert reader.recv(4096)  # SUCCESS: permits before it would be ignored
    flow = api.CommandFlow(consumer_id=1, messagePermits=1_000)
    reader.sendall(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))


def serve_others(proxy: ProxyProcess) -> None:
    with client_of(proxy.service_url) as client:
        topic = "persistent://public/default/others"
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"hello")
        assert consumer.receive(RECEIVE_MS).data() == b"hello"
        consumer.unsubscribe()


def active(proxy: ProxyProcess) -> float:
    """How many clients are connected, to all workers together."""
    return sum(samples(proxy.metrics_url, "pulsar_proxy_active_connections"))


def memory_of(proxy: ProxyProcess) -> int:
    """Resident memory of the process and its workers, in bytes."""
    pid = proxy.process.pid
    pids = [pid, *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in pids)
    return pages * resource.getpagesize()


@contextmanager
def open_files(wanted: int) -> Generator[None]:
    """Raise this process's limit of open files to so many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, before[0]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
