"""Proves where the jars are looked for, and what the class path is."""

from __future__ import annotations

import re
from pathlib import Path

from geminga_cli.embedded_zookeeper.jars import (
    ARCHIVE_SHA256,
    JARS,
    ZOOKEEPER_VERSION,
    cache_directory,
    class_path,
    is_complete,
)


def test_the_cache_is_where_the_xdg_specification_says() -> None:
    name = f"zookeeper-{ZOOKEEPER_VERSION}"
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/geminga") / name
    usual = Path.home() / ".cache" / "geminga" / name
    assert cache_directory({}) == usual
    assert cache_directory({"XDG_CACHE_HOME": ""}) == usual
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == usual


def test_a_directory_is_complete_with_every_jar(tmp_path: Path) -> None:
    for jar in JARS:
        assert not is_complete(tmp_path)
        (tmp_path / jar.name).touch()
    assert is_complete(tmp_path)


def test_the_class_path_names_every_jar_in_order(tmp_path: Path) -> None:
    assert class_path(tmp_path).split(":") == [str(tmp_path / jar.name) for jar in JARS]


def test_every_digest_is_a_sha256() -> None:
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in JARS)
    assert re.fullmatch("[0-9a-f]{64}", ARCHIVE_SHA256)
