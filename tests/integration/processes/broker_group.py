"""A ZooKeeper, bookies and several brokers, each a process that no supervisor starts again."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.processes.bookie_process import PartProcess
from tests.integration.processes.part_process import command
from tests.integration.rest import rest
from tests.unit.geminga.certificates import Authority

from geminga_cli.ports import ReservedPort

CLUSTER = "group"
# The shortest session that ZooKeeper allows a broker which has little to do: tests wait for its
# end.
SESSION_S = 4.0
STOP_TIMEOUT_S = 60.0
SETUP_TIMEOUT_S = 60.0


def tls_alone(authority: Authority, host: str) -> tuple[tuple[str, ...], ssl.SSLContext]:
    """Options of brokers that serve TLS alone, to clients with a certificate of ``authority``; and
    the TLS settings with which such a client connects."""
    certificate, trusted = str(authority.issue("broker", host)), str(authority.trust_file)
    tls = ssl.create_default_context(cafile=trusted)
    tls.load_cert_chain(certificate)
    options = (
        *("--tls-only", "--port-tls", "0", "--web-port-tls", "0"),
        *("--tls-certificate-file", certificate, "--tls-trust-file", trusted),
        "--tls-require-client-certificate",
    )
    return options, tls


@dataclass(slots=True)
class BrokerProcess(PartProcess):
    """A broker that serves; ``id`` is ``host:web port``."""

    url: str = ""
    web: str = ""
    tls: ssl.SSLContext | None = None

    @property
    def id(self) -> str:
        return self.web.partition("://")[2]

    def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one REST request to this broker."""
        return rest(self.web, method, path, body, self.tls)


@dataclass(slots=True)
class BrokerGroup:
    """The brokers that were started, in their order, and the ZooKeeper they share."""

    zookeeper: str
    directory: Path
    stack: ExitStack
    brokers: list[BrokerProcess] = field(default_factory=list[BrokerProcess])
    # The authority that signs the certificates of brokers that serve TLS alone.
    tls: ssl.SSLContext | None = None
    # All processes of ZooKeeper that were started; only the last one may still run.
    zookeepers: list[PartProcess] = field(default_factory=list[PartProcess])

    @property
    def service_url(self) -> str:
        """The service URL with all brokers."""
        scheme = self.brokers[0].url.partition("://")[0]
        return f"{scheme}://" + ",".join(each.url.partition("://")[2] for each in self.brokers)

    def start_part(self, part: str, name: str, *options: str) -> PartProcess:
        """Start a part and wait until it serves."""
        running = self.stack.enter_context(_running(part, self.directory / f"{name}.log", options))
        running.wait_for(f"{part.replace('-', ' ')} serves")
        return running

    def start_zookeeper(self) -> None:
        """Start ZooKeeper on the data of the one before."""
        data = ("--data-dir", str(self.directory / "zookeeper"))
        port = self.zookeeper.rpartition(":")[2]
        name = f"zookeeper-{len(self.zookeepers) + 1}"
        self.zookeepers.append(
            self.start_part("zookeeper", name, *data, "--port", port, "--metrics-port=0")
        )

    def start_broker(self, *options: str) -> BrokerProcess:
        """Start one more broker, on ports of its own."""
        name = f"broker-{len(self.brokers) + 1}"
        where = ("--zookeeper", self.zookeeper, "--cluster", CLUSTER)
        ports = ("--port", "0", "--web-port", "0")
        session = ("--zookeeper-session-timeout-s", str(SESSION_S))
        part = self.start_part("broker", name, *where, *ports, *session, *options)
        line = part.wait_for("broker serves")
        found = re.search(r"pulsar(?:_tls)?=(\S+).*? web(?:_tls)?=(\S+)", line)
        assert found, line
        broker = BrokerProcess(part.name, part.log, part.process, found[1], found[2], self.tls)
        self.brokers.append(broker)
        return broker

    def named(self, url: str) -> BrokerProcess:
        """The broker with this URL, of either protocol."""
        return next(broker for broker in self.brokers if url in (broker.url, broker.web))

    def owner(self, topic: str, *, asked: int = 0) -> BrokerProcess:
        """The broker that serves a topic, according to broker number ``asked``."""
        status, found = self.brokers[asked].rest(
            "GET", f"/lookup/v2/topic/{topic.replace('://', '/')}"
        )
        assert status == 200, found
        return self.named(found["brokerUrl"] or found["brokerUrlTls"])


@contextmanager
def broker_group(
    directory: Path,
    *options: str,
    brokers: int,
    bookies: int = 1,
    tls: ssl.SSLContext | None = None,
) -> Generator[BrokerGroup]:
    """An empty cluster with so many brokers, with these options, and so many bookies."""
    with ExitStack() as stack:
        port = stack.enter_context(ReservedPort("127.0.0.1", 0)).port
        group = BrokerGroup(f"127.0.0.1:{port}", directory, stack, tls=tls)
        group.start_zookeeper()
        _initialize(group.zookeeper)
        for number in range(bookies):
            name = f"bookie-{number + 1}"
            own = ("--data-dir", str(directory / name), "--bookie-id", name)
            ports = ("--port", "0", "--http-port", "0")
            group.start_part("bookie", name, "--zookeeper", group.zookeeper, *own, *ports)
        for _ in range(brokers):
            group.start_broker(*options)
        yield group


def _initialize(zookeeper: str) -> None:
    urls = ("--web-service-url", "http://127.0.0.1:1", "--broker-service-url", "pulsar://127.0.0.1")
    words = ("--cluster", CLUSTER, "--metadata-store", f"zk:{zookeeper}", *urls)
    subprocess.run(
        command("initialize-cluster-metadata", *words),
        check=True,
        capture_output=True,
        timeout=SETUP_TIMEOUT_S,
    )


@contextmanager
def _running(part: str, log: Path, options: tuple[str, ...]) -> Generator[PartProcess]:
    """A part; it is stopped in order at the end unless it has ended."""
    with log.open("wb") as stream:
        process = subprocess.Popen(command(part, *options), stderr=stream)
    running = PartProcess(log.stem, log, process)
    try:
        yield running
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)
    finally:
        running.kill()
