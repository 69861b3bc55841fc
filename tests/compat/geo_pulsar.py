"""A real Apache Pulsar without authentication that a test may kill and start again on its data:
one of the clusters that replicate to each other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.apache_java.java import pulsar_home
from tests.compat.apache_pulsar import HOST, configured, free_ports, running, wait_for
from tests.compat.clients import Broker

NAME = "apache"


class GeoPulsar:
    """A standalone whose cluster is called ``NAME``; its ports stay over restarts."""

    def __init__(self, directory: Path) -> None:
        """Starts nothing yet. Raises ``NotRun``."""
        self._home = pulsar_home()
        self._directory = directory
        binary, self._web, bookie = free_ports(3)
        self.broker = Broker(f"pulsar://{HOST}:{binary}", f"http://{HOST}:{self._web}")
        self._process = ExitStack()
        config = configured(
            self._home / "conf" / "standalone.conf",
            directory / "standalone.conf",
            {
                "clusterName": NAME,
                "brokerServicePort": binary,
                "webServicePort": self._web,
                "bindAddress": HOST,
                "advertisedAddress": HOST,
                "listeningInterface": "lo",
                "allowLoopback": "true",
                "httpServerEnabled": "false",
            },
        )
        self._configs = {"PULSAR_STANDALONE_CONF": config}
        self._words = ["standalone", "-nfw", "-nss", "-a", HOST, "-c", str(config)]
        self._words += ["--bookkeeper-port", str(bookie)]
        for option in ("metadata", "bookkeeper", "zookeeper"):
            self._words += [f"--{option}-dir", str(directory / option)]

    def start(self) -> None:
        """Return when it serves."""
        log = self._directory / "broker.log"
        process = self._process.enter_context(
            running(self._home, self._words, log, **self._configs)
        )
        wait_for(process, self._web, "/admin/v2/namespaces/public", "public/default", log)

    def kill(self) -> None:
        """With SIGKILL, at once."""
        self._process.close()
