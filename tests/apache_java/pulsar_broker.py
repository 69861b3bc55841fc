"""A broker of Apache Pulsar's on a ZooKeeper and bookies that others run."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.apache_java.java import OPTIONS
from tests.integration.waiting import eventually

HOST = "127.0.0.1"
START_TIMEOUT_S = 240.0


@contextmanager
def pulsar_broker(
    home: Path, directory: Path, zookeeper: str, ports: Sequence[int]
) -> Generator[None]:
    """One of the distribution in ``home``, with two ports, for its protocol and for HTTP, which
    answers; its configuration and its log are in ``directory``."""
    classpath = f"{home / 'lib'}/*"
    port, web_port = ports
    settings = {
        "metadataStoreUrl": f"zk:{zookeeper}",
        "configurationMetadataStoreUrl": f"zk:{zookeeper}",
        "clusterName": "standalone",
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "brokerServicePort": str(port),
        "webServicePort": str(web_port),
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
    }
    configuration = directory / "broker.conf"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    java = str(shutil.which("java"))
    words = [java, *OPTIONS, "-Xmx512m", "-cp", classpath, "org.apache.pulsar.PulsarBrokerStarter"]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "--broker-conf", str(configuration)], stdout=log, stderr=log
        )
    try:
        eventually(lambda: _answers(web_port), bool, START_TIMEOUT_S)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(web_port: int) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://{HOST}:{web_port}/admin/v2/clusters", timeout=5
        ) as page:
            return bool(page.status == 200)
    except OSError:
        return False
