"""Apache BookKeeper itself: where its jars are, and how its programs and bookies are run.

The jars come, in this order, from ``BOOKKEEPER_CLASSPATH`` (a Java class path), from an Apache
Pulsar (``PULSAR_HOME``, or one in ``apache-pulsar`` of the user's cache), or from Maven Central by
``mvn``, into the user's cache. ``make test-bookkeeper`` runs what needs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from magnetar_cli.ports import ReservedPort

HERE = Path(__file__).parent / "java"
RUN_TIMEOUT_S = 60.0
FETCH_TIMEOUT_S = 300.0
COMPILE_TIMEOUT_S = 60.0
# Small heaps, quick starts; and what BookKeeper's own scripts open for it on new Javas.
JAVA_OPTIONS = (
    *("-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("--add-opens", "java.base/java.io=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util.zip=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    "-Dio.netty.tryReflectionSetAccessible=true",
    f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}",
    f"-Dlog4j.configurationFile={HERE / 'log4j2.xml'}",
)


class NotRun(Exception):
    """This machine lacks what the tests need; the message says what."""


@dataclass(frozen=True, slots=True)
class JavaBookKeeper:
    """A Java, BookKeeper's jars and our programs, compiled.

    ``directory`` takes configurations and bookies' data.
    """

    java: str
    classpath: str
    directory: Path

    def run_program(self, zookeeper: str, *words: str) -> str:
        """What ``LedgerProgram.java`` prints, run with ``words``; fails unless it succeeds."""
        return self._run("LedgerProgram", metadata_uri(zookeeper), *words)

    def run_shell(self, zookeeper: str, *words: str, bookie_id: str = "shell") -> str:
        """What ``bookkeeper shell`` prints for ``words``; fails unless it succeeds.

        ``bookie_id`` is whom commands about "this bookie" are about.
        """
        configuration = self._write_configuration("shell", zookeeper, {"bookieId": bookie_id})
        return self._run(
            "-DentryFormatterClass=org.apache.bookkeeper.util.StringEntryFormatter",
            *("org.apache.bookkeeper.bookie.BookieShell", "-conf", str(configuration)),
            *words,
        )

    @contextmanager
    def bookie(self, zookeeper: str, name: str) -> Generator[subprocess.Popen[bytes], None, None]:
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
                },
            )
            with (self.directory / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [
                        *(self.java, *JAVA_OPTIONS, "-cp", self.classpath),
                        *("org.apache.bookkeeper.server.Main", "--conf", str(configuration)),
                    ],
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
        ended = subprocess.run(
            [self.java, *JAVA_OPTIONS, "-cp", self.classpath, *words],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr


def metadata_uri(zookeeper: str) -> str:
    """Where the plain Java client finds the cluster."""
    return f"zk+hierarchical://{zookeeper}/ledgers"


def find_java_bookkeeper(directory: Path) -> JavaBookKeeper:
    """Java and the jars, fetched if need be. Raises ``NotRun``."""
    java = shutil.which("java")
    if java is None:
        raise NotRun("not run: no java")
    javac = shutil.which("javac")
    if javac is None:
        raise NotRun(f"not run: {java} comes without javac")
    jars = _classpath()
    classes = directory / "classes"
    source = HERE / "LedgerProgram.java"
    subprocess.run(
        [javac, "-cp", jars, "-d", str(classes), str(source)], check=True, timeout=COMPILE_TIMEOUT_S
    )
    return JavaBookKeeper(java, f"{classes}:{jars}", directory)


def _classpath() -> str:
    given = os.environ.get("BOOKKEEPER_CLASSPATH")
    if given:
        return given
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    homes = [Path(os.environ["PULSAR_HOME"])] if os.environ.get("PULSAR_HOME") else []
    homes += sorted((cache / "apache-pulsar").glob("apache-pulsar-*"), reverse=True)
    for home in homes:
        if any((home / "lib").glob("*bookkeeper-server-*.jar")):
            return f"{home / 'lib'}/*"
    return _fetched(cache / "magnetar" / "bookkeeper")


def _fetched(directory: Path) -> str:
    """The jars as Maven resolves them for ``java/pom.xml``."""
    if not any(directory.glob("bookkeeper-server-*.jar")):
        mvn = shutil.which("mvn")
        if mvn is None:
            raise NotRun(
                "not run: no BookKeeper jars, and no mvn to fetch them; set PULSAR_HOME to an "
                "Apache Pulsar, or BOOKKEEPER_CLASSPATH"
            )
        unfinished = directory.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        ended = subprocess.run(
            [
                *(mvn, "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"),
                *(f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime"),
            ],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if ended.returncode:
            raise NotRun(f"not run: mvn could not fetch BookKeeper: {ended.stdout[-1000:]}")
        unfinished.rename(directory)
    return f"{directory}/*"
