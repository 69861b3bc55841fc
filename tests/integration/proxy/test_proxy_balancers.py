"""HAProxy and NGINX, as Debian installs them, in front of proxies: clients know nothing but the
balancer."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.proxy_process import END_S, ProxyProcess, proxy_of
from tests.integration.rest import metric, rest
from tests.integration.waiting import eventually

from geminga_protocol.framing import FRAME_SIZE_BYTES
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import encode_command, parse_command
from geminga_server.ports import free_port

pytestmark = pytest.mark.full

HOST = "127.0.0.1"
# Addresses of clients, used by no other test: the whole of 127/8 is this machine.
CLIENT_HOSTS = "127.0.0.77", "127.0.0.78"
RECEIVE_MS = 60_000
NGINX_STREAM = Path("/usr/lib/nginx/modules/ngx_stream_module.so")

HAPROXY = """
global
    log stderr format raw daemon
defaults
    mode tcp
    timeout connect 2s
    timeout client 1m
    timeout server 1m
    retries 3
    option redispatch
listen pulsar
    bind {host}:{port}
    server one {one} check inter 200ms {header}
    server two {two} check inter 200ms {header}
listen web
    bind {host}:{web_port}
    server one {web_one} check inter 200ms
    server two {web_two} check inter 200ms
"""
NGINX = """
daemon off;
pid {directory}/nginx.pid;
error_log stderr;
load_module {stream};
events {{ worker_connections 256; }}
stream {{
    upstream pulsar {{ server {one} fail_timeout=1s; server {two} fail_timeout=1s; }}
    upstream web {{ server {web_one} fail_timeout=1s; server {web_two} fail_timeout=1s; }}
    proxy_connect_timeout 2s;
    server {{ listen {host}:{port}; proxy_pass pulsar; {header} }}
    server {{ listen {host}:{web_port}; proxy_pass web; }}
}}
"""


class Balancer:
    """A balancer in front of ``proxies``, on ports of its own."""

    def __init__(self, kind: str, header: str, proxies: list[ProxyProcess], place: Path) -> None:
        self.port, self.web_port = free_port(HOST, 0), free_port(HOST, 0)
        one, two = (each.service_url.removeprefix("pulsar://") for each in proxies)
        web_one, web_two = (each.web_url.removeprefix("http://") for each in proxies)
        facts = {"one": one, "two": two, "web_one": web_one, "web_two": web_two, "header": header}
        template = HAPROXY if kind == "haproxy" else NGINX
        file = place / f"{kind}.conf"
        file.write_text(
            template.format(
                **facts,
                host=HOST,
                port=self.port,
                web_port=self.web_port,
                directory=place,
                stream=NGINX_STREAM,
            )
        )
        words = ["haproxy", "-db", "-f", str(file)]
        if kind == "nginx":
            words = ["nginx", "-c", str(file), "-p", str(place)]
        path = shutil.which(words[0], path="/usr/sbin:/usr/bin:/sbin")
        if path is None or (kind == "nginx" and not NGINX_STREAM.exists()):
            pytest.skip(f"{kind} is not there (Debian: haproxy, nginx-light, libnginx-mod-stream)")
        with (place / f"{kind}.log").open("wb") as log:
            self.process = subprocess.Popen([path, *words[1:]], stderr=log)

    @property
    def service_url(self) -> str:
        return f"pulsar://{HOST}:{self.port}"

    @property
    def web_url(self) -> str:
        return f"http://{HOST}:{self.web_port}"

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(END_S)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def two_proxies(
    stack: ExitStack, standalone: StandaloneProcess, place: Path, *options: str
) -> list[ProxyProcess]:
    zookeeper = "--zookeeper", str(standalone.endpoints["zookeeper"]["address"])
    return [
        stack.enter_context(proxy_of(place / name, *zookeeper, *options)) for name in ("a", "b")
    ]


def balancer(
    stack: ExitStack, kind: str, header: str, proxies: list[ProxyProcess], place: Path
) -> Balancer:
    made = Balancer(kind, header, proxies, place)
    stack.callback(made.end)
    eventually(partial(is_healthy, made), bool)
    return made


def is_healthy(before: Balancer) -> bool:
    """Whether a proxy answers REST through the balancer."""
    try:
        return rest(before.web_url, "GET", "/health")[0] == 200
    except (OSError, HTTPException):
        return False


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_clients_of_a_balancer_outlive_one_of_its_proxies(
    stack: ExitStack, standalone: StandaloneProcess, tmp_path: Path, kind: str
) -> None:
    topic = f"persistent://public/default/behind-{kind}"
    proxies = two_proxies(stack, standalone, tmp_path)
    before = balancer(stack, kind, "", proxies, tmp_path)
    assert rest(before.web_url, "GET", "/admin/v2/clusters") == (200, ["standalone"])
    client = stack.enter_context(client_of(before.service_url))
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    producer.send(b"before")
    assert consumer.receive(RECEIVE_MS).data() == b"before"
    carrying = next(each for each in proxies if metric(each.metrics_url, "geminga_proxy_splices"))
    carrying.process.kill()
    producer.send(b"after")
    while consumer.receive(RECEIVE_MS).data() != b"after":
        pass


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        ("haproxy", "send-proxy"),
        ("haproxy", "send-proxy-v2"),
        ("nginx", "proxy_protocol on;"),
    ],
    ids=["haproxy-v1", "haproxy-v2", "nginx"],
)
def test_a_balancer_says_where_its_clients_are(
    stack: ExitStack, standalone: StandaloneProcess, tmp_path: Path, kind: str, header: str
) -> None:
    """Shown by the limit on connections from one address: each of two addresses may have one."""
    options = "--ha-proxy-protocol-enabled", "--connections-per-address-max", "1"
    proxy, _ = two_proxies(stack, standalone, tmp_path, *options)
    before = balancer(stack, kind, header, [proxy, proxy], tmp_path)
    answers = [answer_to(stack, before, host) for host in (CLIENT_HOSTS[0], *CLIENT_HOSTS)]
    assert answers == [BaseCommand.CONNECTED, BaseCommand.ERROR, BaseCommand.CONNECTED]


def answer_to(stack: ExitStack, before: Balancer, host: str) -> int:
    """The proxy's answer to a client at ``host``, which stays connected."""
    address = HOST, before.port
    client = stack.enter_context(
        closing(socket.create_connection(address, timeout=END_S, source_address=(host, 0)))
    )
    connect = api.CommandConnect(client_version="test", protocol_version=19)
    client.sendall(encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))
    answer = client.recv(4096)
    return parse_command(answer, FRAME_SIZE_BYTES, len(answer))[0].type
