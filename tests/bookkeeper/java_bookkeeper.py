"""Apache BookKeeper itself: how its programs and bookies are run. ``make test-java`` does."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.apache_java.java import Jars, Java, compiled

from geminga_cli.ports import ReservedPort

HERE = Path(__file__).parent / "java"
RUN_TIMEOUT_S = 180.0
JARS = Jars("bookkeeper", "BOOKKEEPER_CLASSPATH", "*bookkeeper-server-*.jar", pom=HERE / "pom.xml")


@dataclass(frozen=True, slots=True)
class JavaBookKeeper:
    """A Java with BookKeeper's jars and our programs.

    ``directory`` takes configurations and bookies' data.
    """

    java: Java
    directory: Path

    def run_program(
        self, zookeeper: str, *words: str, settings: Mapping[str, str] | None = None
    ) -> str:
        """What ``LedgerProgram.java`` prints, run with ``words`` and with ``settings`` of
        BookKeeper's client; fails unless it succeeds."""
        properties = [f"-D{name}={value}" for name, value in (settings or {}).items()]
        if properties:
            properties.append("-Dorg.apache.bookkeeper.conf.readsystemproperties=true")
        return self._run(*properties, "LedgerProgram", metadata_uri(zookeeper), *words)

    def run_shell(self, zookeeper: str, *words: str, bookie_id: str = "shell") -> str:
        """What ``bookkeeper shell`` prints for ``words``; fails unless it succeeds.

        ``bookie_id`` is the bookie that commands about "this bookie" mean.
        """
        configuration = self._write_configuration("shell", zookeeper, {"bookieId": bookie_id})
        return self._run(
            "-DentryFormatterClass=org.apache.bookkeeper.util.StringEntryFormatter",
            *("org.apache.bookkeeper.bookie.BookieShell", "-conf", str(configuration)),
            *words,
        )

    @contextmanager
    def bookie(
        self, zookeeper: str, name: str, settings: Mapping[str, str] | None = None
    ) -> Generator[subprocess.Popen[bytes], None, None]:
        """A bookie on a free port; it has begun to start."""
        with ReservedPort("127.0.0.1", 0) as port:
            configuration = self._write_configuration(
                name,
                zookeeper,
                {
                    "bookiePort": str(port.port),
                    "advertisedAddress": "127.0.0.1",
                    "httpServerEnabled": "false",
                    "autoRecoveryDaemonEnabled": "false",
                    **(settings or {}),
                },
            )
            with (self.directory / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    self.java.command(
                        "org.apache.bookkeeper.server.Main", "--conf", str(configuration)
                    ),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def _write_configuration(self, name: str, zookeeper: str, more: dict[str, str]) -> Path:
        settings = {
            "metadataServiceUri": metadata_uri(zookeeper),
            "allowLoopback": "true",
            "journalDirectories": str(self.directory / name / "journal"),
            "ledgerDirectories": str(self.directory / name / "ledgers"),
            **more,
        }
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _run(self, *words: str) -> str:
        return self.java.run(*words, timeout_s=RUN_TIMEOUT_S)


def metadata_uri(zookeeper: str) -> str:
    """Where the plain Java client finds the cluster."""
    return f"zk+hierarchical://{zookeeper}/ledgers"


def find_java_bookkeeper(directory: Path) -> JavaBookKeeper:
    """Java and the jars, fetched if need be. Raises ``NotRun``."""
    return JavaBookKeeper(compiled(HERE, JARS, directory), directory)
