"""Proves that the jars arrive whole or not at all, checked by digest, from a fake archive."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper import fetch
from geminga_cli.embedded_zookeeper.fetch import (
    copy_jars,
    damaged_jars,
    download_archive,
    fetch_jars,
    jars_of_installed_pyspark,
)
from geminga_cli.embedded_zookeeper.jars import ARCHIVE_JARS_FOLDER, Jar
from geminga_cli.errors import SetupFailed

CONTENT = {"a.jar": b"first jar", "b.jar": b"second jar"}


@pytest.fixture(autouse=True)
def two_small_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tuple(Jar(name, hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items())
    monkeypatch.setattr(fetch, "JARS", jars)


def archive_of(content: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in {"other.jar": b"no", **content}.items():
            member = tarfile.TarInfo(f"{ARCHIVE_JARS_FOLDER}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


class Download:
    """Brings these bytes; counts how often."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive
        self.sha256 = hashlib.sha256(archive).hexdigest()
        self.count = 0

    def __call__(self, directory: Path) -> Path:
        self.count += 1
        path = directory / "archive.tar.gz"
        path.write_bytes(self.archive)
        return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_every_jar_and_nothing_else_arrives(tmp_path: Path) -> None:
    download = Download(archive_of(CONTENT))
    fetch_jars(tmp_path / "cache" / "zookeeper", download, download.sha256)
    directory = tmp_path / "cache" / "zookeeper"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == CONTENT
    assert names(tmp_path / "cache") == ["zookeeper"]
    assert damaged_jars(directory) == []


def test_a_damaged_directory_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "zookeeper"
    directory.mkdir()
    (directory / "a.jar").write_bytes(b"torn")
    assert damaged_jars(directory) == ["a.jar", "b.jar"]
    download = Download(archive_of(CONTENT))
    fetch_jars(directory, download, download.sha256)
    assert damaged_jars(directory) == []
    assert names(tmp_path) == ["zookeeper"]


def test_an_archive_we_do_not_know_is_not_opened(tmp_path: Path) -> None:
    download = Download(archive_of(CONTENT))
    with pytest.raises(SetupFailed, match="is not the file we know"):
        fetch_jars(tmp_path / "zookeeper", download, "0" * 64)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a.jar": b"first jar"}, "lacks .*b.jar"),
        ({**CONTENT, "b.jar": b"changed"}, "b.jar has SHA-256"),
    ],
)
def test_a_missing_or_changed_jar_leaves_nothing_behind(
    tmp_path: Path, content: Mapping[str, bytes], words: str
) -> None:
    download = Download(archive_of(content))
    with pytest.raises(SetupFailed, match=words):
        fetch_jars(tmp_path / "zookeeper", download, download.sha256)
    assert names(tmp_path) == []


def test_a_torn_archive_is_refused(tmp_path: Path) -> None:
    torn = Download(archive_of(CONTENT)[:-60])
    with pytest.raises(SetupFailed, match=r"archive.tar.gz (cannot be read|lacks)"):
        fetch_jars(tmp_path / "zookeeper", torn, torn.sha256)


def test_a_download_that_brings_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="brought no nothing"):
        fetch_jars(tmp_path / "zookeeper", lambda directory: directory / "nothing", "")


def test_jars_of_an_installed_pyspark_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "pyspark" / "jars"
    source.mkdir(parents=True)
    for name, content in {**CONTENT, "other.jar": b"no"}.items():
        (source / name).write_bytes(content)
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # others' tests import the real one
    assert jars_of_installed_pyspark() == source
    directory = tmp_path / "cache" / "zookeeper"
    copy_jars(directory, source)
    assert damaged_jars(directory) == []
    assert names(directory) == ["a.jar", "b.jar"]
    assert names(tmp_path / "cache") == ["zookeeper"]


def test_a_pyspark_with_another_zookeeper_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "pyspark" / "jars"
    source.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (source / "a.jar").write_bytes(CONTENT["a.jar"])
    (source / "b.jar").write_bytes(b"another version")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # others' tests import the real one
    assert jars_of_installed_pyspark() is None
    with pytest.raises(SetupFailed, match=r"b.jar has SHA-256"):
        copy_jars(tmp_path / "zookeeper", source)
    assert names(tmp_path) == ["pyspark"]


def test_without_pyspark_there_is_nothing_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "find_spec", {"pyspark": None}.get)
    assert jars_of_installed_pyspark() is None


class FakePip:
    """Stands in for ``subprocess.run``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.command: list[str] = []
        self.environment: Mapping[str, str] = {}

    def __call__(self, command: list[str], *, env: Mapping[str, str], **_rest: object) -> None:
        self.command, self.environment = command, env
        if self.error is not None:
            raise self.error


def test_pip_downloads_with_the_users_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = FakePip()
    monkeypatch.setattr(subprocess, "run", pip)
    download_archive({"PIP_INDEX_URL": "kept"}, tmp_path)
    assert pip.command[:4] == [sys.executable, "-m", "pip", "download"]
    assert not any(word.startswith(("--index", "--trusted", "--proxy")) for word in pip.command)
    assert pip.environment == {"PIP_INDEX_URL": "kept", "TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (subprocess.TimeoutExpired("pip", 1), "did not finish"),
        (subprocess.CalledProcessError(1, "pip"), "ensurepip"),
    ],
)
def test_when_pip_fails_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    monkeypatch.setattr(subprocess, "run", FakePip(error))
    with pytest.raises(SetupFailed, match=words):
        download_archive(os.environ, tmp_path)


def test_a_disk_without_room_is_noticed_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "DISK_BYTES_NEEDED", 1 << 60)
    with pytest.raises(SetupFailed, match="set XDG_CACHE_HOME"):
        download_archive(os.environ, tmp_path)
