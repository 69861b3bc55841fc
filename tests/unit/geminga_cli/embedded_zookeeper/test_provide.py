"""Proves that ZooKeeper is fetched where it is missing; if it cannot be, the way out is named."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper import provide
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.embedded_zookeeper.jars import JARS
from geminga_cli.embedded_zookeeper.provide import provide_zookeeper
from geminga_cli.errors import SetupFailed
from geminga_runtime.java import Java


class Setup:
    """Stands in for the process that fetches what is missing."""

    def __init__(self, directory: Path, brings: Sequence[str]) -> None:
        self._directory = directory
        self._brings = brings
        self.count = 0

    def __call__(self, _command: Sequence[str], **_rest: object) -> None:
        self.count += 1
        for name in self._brings:
            (self._directory / name).touch()


def prepare(directory: Path, brings: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Setup:
    found = Installation(Java(Path("/bin/java"), "17"), directory, directory / "classes.jsa")
    setup = Setup(directory, brings)

    def find(_environment: Mapping[str, str]) -> Installation:
        return found

    monkeypatch.setattr(provide, "find_installation", find)
    monkeypatch.setattr(subprocess, "run", setup)
    return setup


JAR_NAMES = [jar.name for jar in JARS]


def test_a_complete_installation_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = prepare(tmp_path, [], monkeypatch)
    for name in (*JAR_NAMES, "classes.jsa"):
        (tmp_path / name).touch()
    assert provide_zookeeper().is_quick
    assert setup.count == 0


def test_what_is_missing_is_fetched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = prepare(tmp_path, [*JAR_NAMES, "classes.jsa"], monkeypatch)
    assert provide_zookeeper().is_quick
    assert setup.count == 1


def test_without_the_archive_it_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, JAR_NAMES, monkeypatch)
    assert provide_zookeeper().is_usable


def test_when_nothing_could_be_fetched_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, [], monkeypatch)
    with pytest.raises(SetupFailed, match=r"geminga setup.*--zookeeper"):
        provide_zookeeper()
