"""Proves that the class-data archive is made from a real start, and that Java takes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper.class_archive import make_archive
from geminga_cli.embedded_zookeeper.configuration import ZooKeeperSettings, command_line
from geminga_cli.embedded_zookeeper.installation import find_installation
from geminga_cli.embedded_zookeeper.jars import JARS
from geminga_cli.errors import SetupFailed
from geminga_runtime.java import Java

# Of about 1,250 classes that a server loads.
ARCHIVED_CLASSES_MIN = 1000


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A copy of the jars: an archive belongs to the place where it was made."""
    directory = tmp_path / "jars"
    directory.mkdir()
    for jar in JARS:
        shutil.copy2(find_installation(os.environ).jars / jar.name, directory)
    return directory


@pytest.mark.full
def test_java_loads_its_classes_from_the_archive(jars: Path, tmp_path: Path) -> None:
    java = find_installation(os.environ).java
    archive = jars / "classes.jsa"
    make_archive(jars, java, archive)
    assert sorted(path.suffix for path in jars.iterdir()) == [*[".jar"] * len(JARS), ".jsa"]
    words = command_line(
        java.executable,
        jars,
        ZooKeeperSettings(tmp_path / "data", "127.0.0.1", 1),
        tmp_path / "there is no such file",
        class_archive=archive,
        more_options=("-Xlog:class+load",),
    )
    told = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False).stdout
    assert told.count("source: shared objects file") > ARCHIVED_CLASSES_MIN
    assert told.count(f"source: file:{jars}") < told.count("source: shared objects file") / 10


@pytest.mark.parametrize("executable", ["/there/is/no/java", "/bin/false"])
def test_a_java_that_cannot_run_leaves_nothing_behind(jars: Path, executable: str) -> None:
    before = sorted(jars.iterdir())
    with pytest.raises(SetupFailed, match="no class-data archive could be made"):
        make_archive(jars, Java(Path(executable), "17"), jars / "classes.jsa")
    assert sorted(jars.iterdir()) == before
