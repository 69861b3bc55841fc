"""The files that ZooKeeper consists of, and where this user's copy of them is kept.

PySpark's source archive on the Python package index has a whole ZooKeeper among its jars. We use
these seven, which are all that a single server loads (found by running it without the others).
Every digest is fixed here: an archive that was tampered with is never run.

log4j's core is left out on purpose: its API alone logs to standard error, and a start without the
core takes a tenth of a second and 10 MB less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ZOOKEEPER_VERSION = "3.9.5"

# The archive, as `pip download` names it; its size is shown to people who wait for it.
ARCHIVE_REQUIREMENT = "pyspark==4.3.0"
ARCHIVE_NAME = "pyspark-4.3.0.tar.gz"
ARCHIVE_SHA256 = "e8c517948eff7088a7aa07449aa8eafa4a15a8d50319de2525a6fd26622476c6"
ARCHIVE_BYTES = 455_910_862
ARCHIVE_JARS_FOLDER = "pyspark-4.3.0/deps/jars"


@dataclass(frozen=True, slots=True)
class Jar:
    """One file."""

    name: str
    # The SHA-256 of its content, in hexadecimal digits.
    sha256: str


# Also the order of the class path, which a class-data archive depends on.
JARS = (
    Jar(
        "zookeeper-3.9.5.jar",
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
    ),
    Jar(
        "zookeeper-jute-3.9.5.jar",
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    ),
    Jar(
        "metrics-core-4.2.37.jar",
        "3c70d19049d10f474ab803706b9c0677bcf5fd9e1afeb4f6c496f62e38b27678",
    ),
    Jar(
        "snappy-java-1.1.10.8.jar",
        "50485d06037fea3d6e40c968386feeca6338cc9872e25549593ff3eb352cefcc",
    ),
    Jar(
        "slf4j-api-2.0.17.jar",
        "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832",
    ),
    Jar(
        "log4j-slf4j2-impl-2.25.4.jar",
        "dd897abc5eb3a6d965426c7937b92dd43e67c82d9819bea5d19f311516c68be3",
    ),
    Jar(
        "log4j-api-2.25.4.jar",
        "c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d",
    ),
)


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where this user's jars are, or will be. All checkouts and environments share it."""
    caches = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path there is invalid and must be ignored.
    root = Path(caches) if caches.startswith("/") else Path.home() / ".cache"
    # The version is in the name: a newer one is fetched beside it, and an older Geminga keeps its
    # own.
    return root / "geminga" / f"zookeeper-{ZOOKEEPER_VERSION}"


def is_complete(directory: Path) -> bool:
    """Whether every jar is there. All are put there in one step, so names are enough."""
    return all((directory / jar.name).is_file() for jar in JARS)


def class_path(directory: Path) -> str:
    """The value of Java's ``-cp``. A class-data archive is used only with exactly this string."""
    # In the fixed order of JARS, and with absolute paths: both are part of the string.
    return ":".join(str(directory / jar.name) for jar in JARS)
