"""Proves what counts as an installation that can be started, and one that starts quickly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper import installation
from geminga_cli.embedded_zookeeper.installation import Installation, find_installation
from geminga_cli.embedded_zookeeper.jars import JARS, cache_directory
from geminga_runtime.java import Java

JAVA = Java(Path("/bin/java"), "17.0.1")


def is_usable_and_quick(found: Installation) -> tuple[bool, bool]:
    return found.is_usable, found.is_quick


def test_the_jars_make_it_usable_and_the_archive_makes_it_quick(tmp_path: Path) -> None:
    found = Installation(JAVA, tmp_path, tmp_path / "classes.jsa")
    assert is_usable_and_quick(found) == (False, False)
    for jar in JARS:
        (tmp_path / jar.name).touch()
    assert is_usable_and_quick(found) == (True, False)
    found.class_archive.touch()
    assert is_usable_and_quick(found) == (True, True)


def test_each_java_has_its_own_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"XDG_CACHE_HOME": "/c"}
    archives: set[Path] = set()
    for java in (JAVA, Java(JAVA.executable, "21")):

        def find(_environment: Mapping[str, str], *_words: str, java: Java = java) -> Java:
            return java

        monkeypatch.setattr(installation, "find_java", find)
        found = find_installation(environment)
        assert found.jars == cache_directory(environment)
        archives.add(found.class_archive)
    assert len(archives) == 2
