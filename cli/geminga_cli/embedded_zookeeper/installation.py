"""The Java and the jars that are at hand, found without starting or reading anything large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geminga_cli.embedded_zookeeper.jars import cache_directory, is_complete
from geminga_runtime.java import Java, find_java

REMEDY = (
    "pip install 'geminga[standalone]' brings one, "
    "or give your own ZooKeeper with --zookeeper HOST:PORT"
)


@dataclass(frozen=True, slots=True)
class Installation:
    """What ZooKeeper is run with, as far as it is there."""

    java: Java
    # The directory of the jars.
    jars: Path
    # Where the class-data archive for this Java is, or would be.
    class_archive: Path

    @property
    def is_usable(self) -> bool:
        """Whether ZooKeeper can be started."""
        return is_complete(self.jars)

    @property
    def is_quick(self) -> bool:
        """Whether ZooKeeper also starts as quickly as it can."""
        return self.is_usable and self.class_archive.is_file()


def find_installation(environment: Mapping[str, str]) -> Installation:
    """Look where ``setup`` puts its files. Raises ``JavaMissing``."""
    # Mostly no Java is started for it: its version is in a file beside it.
    java = find_java(environment, "ZooKeeper", REMEDY)
    jars = cache_directory(environment)
    # An archive fits one Java only, so each Java has its own.
    return Installation(java, jars, jars / f"classes-{java.identity}.jsa")
