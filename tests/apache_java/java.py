"""Java for tests: where the JDK and Apache's jars are; how programs of ours are compiled and run.

Jars come, in this order, from an environment variable (a Java class path), from an Apache Pulsar
(``PULSAR_HOME``, or one in ``apache-pulsar`` of the user's cache), or from Maven Central by
``mvn``, into the user's cache. ``make test-java`` runs what needs them; ``make test-compat`` starts
a whole Apache Pulsar, which comes from the same places.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

FETCH_TIMEOUT_S = 300.0
FETCH_PULSAR_TIMEOUT_S = 480.0  # 240 MB
PULSAR_VERSION = "4.0.6"
_DISTRIBUTION = "pulsar-server-distribution"
COMPILE_TIMEOUT_S = 240.0
_LOGGING = Path(__file__).parent / "log4j2.xml"
# Small heaps, quick starts; and what Apache's own scripts open for their programs on new Javas.
OPTIONS = (
    *("-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("--add-opens", "java.base/java.io=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util.zip=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    "-Dio.netty.tryReflectionSetAccessible=true",
    f"-Dlog4j2.configurationFile={_LOGGING}",
    f"-Dlog4j.configurationFile={_LOGGING}",
)


class NotRun(Exception):
    """This machine lacks what the tests need; the message says what."""


def cache() -> Path:
    """The user's."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _pulsar_homes() -> list[Path]:
    """Where an Apache Pulsar may be unpacked, the preferred one first."""
    homes = [Path(os.environ["PULSAR_HOME"])] if os.environ.get("PULSAR_HOME") else []
    return homes + sorted((cache() / "apache-pulsar").glob("apache-pulsar-*"), reverse=True)


def pulsar_home() -> Path:
    """An unpacked Apache Pulsar, fetched if need be. Raises ``NotRun``."""
    if shutil.which("java") is None:
        raise NotRun("not run: no java")
    home = next((each for each in _pulsar_homes() if (each / "bin" / "pulsar").exists()), None)
    if home is not None:
        return home
    if shutil.which("mvn") is None:
        raise NotRun(
            "not run: no Apache Pulsar, and no mvn to fetch it; set PULSAR_HOME to an unpacked one"
        )
    # Unpacked elsewhere and renamed, so that it is there whole or not at all.
    directory = cache() / "apache-pulsar"
    unfinished = directory / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    artifact = f"org.apache.pulsar:{_DISTRIBUTION}:{PULSAR_VERSION}:tar.gz:bin"
    _maven(
        *("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={unfinished}"),
        what=f"Apache Pulsar {PULSAR_VERSION}",
        timeout_s=FETCH_PULSAR_TIMEOUT_S,
    )
    with tarfile.open(unfinished / f"{_DISTRIBUTION}-{PULSAR_VERSION}-bin.tar.gz") as packed:
        packed.extractall(unfinished, filter="data")
    home = directory / f"apache-pulsar-{PULSAR_VERSION}"
    (unfinished / home.name).rename(home)
    shutil.rmtree(unfinished)
    return home


def _maven(*words: str, what: str, timeout_s: float) -> None:
    """Run ``mvn``, which fetches ``what``. Raises ``NotRun`` where it fails."""
    ended = subprocess.run(
        ["mvn", "-q", "-B", *words], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if ended.returncode:
        raise NotRun(f"not run: mvn could not fetch {what}: {ended.stdout[-1000:]}")


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars of Apache's: how they are called, and where they are looked for.

    ``variable`` may hold their class path; ``pattern`` is the jar by which a distribution that has
    them is known; ``pom`` names them to Maven.
    """

    name: str
    variable: str
    pattern: str
    pom: Path

    def classpath(self) -> str:
        """Where Java finds them, fetched if need be. Raises ``NotRun``."""
        return self.found() or self._fetched(cache() / "geminga" / self.name)

    def found(self) -> str | None:
        """Where Java finds them, if they are here."""
        given = os.environ.get(self.variable)
        if given:
            return given
        libraries = (home / "lib" for home in _pulsar_homes())
        found = (each for each in libraries if any(each.glob(self.pattern)))
        return next((f"{directory}/*" for directory in found), None)

    def _fetched(self, directory: Path) -> str:
        """The jars as Maven resolves them for the pom, which are fetched whole or not at all."""
        if not directory.exists():
            if shutil.which("mvn") is None:
                raise NotRun(
                    f"not run: no {self.name} jars, and no mvn to fetch them; set PULSAR_HOME to "
                    f"an Apache Pulsar, or {self.variable}"
                )
            unfinished = directory.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _maven(
                *("-f", str(self.pom), "dependency:copy-dependencies"),
                *(f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime"),
                what=self.name,
                timeout_s=FETCH_TIMEOUT_S,
            )
            unfinished.rename(directory)
        return f"{directory}/*"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java, Apache's jars, and programs of ours, compiled.

    What Java unpacks goes to ``temporary``: RocksDB leaves 13 MB where a program is killed.
    """

    java: str
    classpath: str
    temporary: Path

    def command(self, *words: str) -> list[str]:
        """The command line that runs a class with arguments; options of Java may stand before."""
        temporary = f"-Djava.io.tmpdir={self.temporary}"
        return [self.java, *OPTIONS, temporary, "-cp", self.classpath, *words]

    def run(self, *words: str, timeout_s: float) -> str:
        """All that it printed; fails unless it succeeds."""
        ended = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr


def compiled(sources: Path, jars: Jars, directory: Path) -> Java:
    """The programs in ``sources``, compiled into ``directory``. Raises ``NotRun``."""
    java = shutil.which("java")
    if java is None:
        raise NotRun("not run: no java")
    javac = shutil.which("javac")
    if javac is None:
        raise NotRun(f"not run: {java} comes without javac")
    classpath = jars.classpath()
    classes = directory / "classes"
    ended = subprocess.run(
        [
            *(javac, "-Xlint:all,-classfile,-processing,-try", "-proc:none"),
            *("-cp", classpath, "-d", str(classes)),
            *sorted(map(str, sources.glob("*.java"))),
        ],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    temporary = directory / "temporary"
    temporary.mkdir(exist_ok=True)
    return Java(java, f"{classes}:{classpath}", temporary)
