"""Proves that setting up does what is missing and nothing else, and one at a time."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper import setup
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.embedded_zookeeper.jars import JARS
from geminga_cli.embedded_zookeeper.setup import set_up
from geminga_cli.errors import SetupFailed
from geminga_runtime.java import Java


class Workshop:
    """Fakes of everything that takes long; notes what was done and said."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.done: list[str] = []
        self.said: list[str] = []
        self.archive_error: SetupFailed | None = None
        self.damaged: list[str] = []
        self.installed: Path | None = None
        java = Java(Path("/bin/java"), "17")
        self._found = Installation(java, directory, directory / "classes.jsa")
        monkeypatch.setattr(setup, "find_installation", self.find)
        monkeypatch.setattr(setup, "fetch_zookeeper", self.fetch)
        monkeypatch.setattr(setup, "jars_of_installed_pyspark", lambda: self.installed)
        monkeypatch.setattr(setup, "copy_jars", self.copy)
        monkeypatch.setattr(setup, "make_archive", self.make_archive)
        monkeypatch.setattr(setup, "damaged_jars", self.find_damaged)

    def find(self, _environment: Mapping[str, str]) -> Installation:
        return self._found

    def find_damaged(self, _directory: Path) -> list[str]:
        return self.damaged

    def fetch(self, directory: Path) -> None:
        self.done.append("fetch")
        directory.mkdir(exist_ok=True)
        for jar in JARS:
            (directory / jar.name).touch()

    def copy(self, directory: Path, source: Path) -> None:
        assert source == self.installed
        self.fetch(directory)
        self.done[-1] = "copy"

    def make_archive(self, _jars: Path, _java: Java, target: Path) -> None:
        self.done.append("archive")
        if self.archive_error is not None:
            raise self.archive_error
        target.touch()

    def set_up(self, *, is_checked: bool = False) -> list[str]:
        """What was done."""
        self.done.clear()
        set_up({}, self.said.append, is_checked=is_checked)
        return list(self.done)


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path / "cache" / "zookeeper", monkeypatch)


def test_the_second_time_there_is_nothing_to_do(workshop: Workshop) -> None:
    assert workshop.set_up() == ["fetch", "archive"]
    assert [words.split()[0] for words in workshop.said] == ["fetching", "preparing"]
    workshop.said.clear()
    assert workshop.set_up() == []
    assert workshop.set_up(is_checked=True) == []
    assert workshop.said == []


def test_nothing_is_downloaded_where_pyspark_is_installed(workshop: Workshop) -> None:
    workshop.installed = Path("/site/pyspark/jars")
    assert workshop.set_up() == ["copy", "archive"]
    assert [words.split()[0] for words in workshop.said] == ["copying", "preparing"]


def test_only_the_archive_is_made_for_another_java(workshop: Workshop) -> None:
    workshop.set_up()
    (workshop.directory / "classes.jsa").unlink()
    assert workshop.set_up() == ["archive"]


def test_damaged_jars_are_fetched_anew_when_asked_to_check(workshop: Workshop) -> None:
    workshop.set_up()
    workshop.damaged.append("a.jar")
    assert workshop.set_up() == []
    assert workshop.set_up(is_checked=True) == ["fetch"]


def test_without_an_archive_it_goes_on_and_says_so(workshop: Workshop) -> None:
    workshop.archive_error = SetupFailed("no class-data archive could be made: why")
    assert workshop.set_up() == ["fetch", "archive"]
    assert "start more slowly" in workshop.said[-1]


def test_a_second_setup_waits_for_the_first(workshop: Workshop) -> None:
    lock = workshop.directory.parent / "setup.lock"
    lock.parent.mkdir()
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    other = threading.Thread(target=workshop.set_up)
    other.start()
    assert workshop.done == []
    os.close(descriptor)
    other.join(timeout=60)
    assert workshop.done == ["fetch", "archive"]


def test_a_cache_that_cannot_be_written_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    workshop = Workshop(tmp_path / "file" / "zookeeper", monkeypatch)
    with pytest.raises(SetupFailed, match="set XDG_CACHE_HOME"):
        workshop.set_up()
