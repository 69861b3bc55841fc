"""Proves what ZooKeeper is told: its file, and its command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from geminga_cli.embedded_zookeeper.configuration import (
    MAIN_CLASS,
    ZooKeeperSettings,
    command_line,
    configuration_text,
    java_options,
)
from geminga_cli.embedded_zookeeper.jars import class_path

SETTINGS = ZooKeeperSettings(Path("/data/zookeeper"), "127.0.0.1", 2181)


def facts(settings: ZooKeeperSettings) -> dict[str, str]:
    return dict(line.split("=", 1) for line in configuration_text(settings).splitlines())


def test_it_listens_where_it_is_told_and_keeps_its_data_there() -> None:
    told = facts(SETTINGS)
    assert told["clientPortAddress"] == "127.0.0.1"
    assert told["clientPort"] == "2181"
    assert told["dataDir"] == "/data/zookeeper"
    assert SETTINGS.address == "127.0.0.1:2181"


def test_sessions_of_six_seconds_are_possible_and_end_in_time() -> None:
    told = facts(SETTINGS)
    assert int(told["minSessionTimeout"]) <= 6_000 <= int(told["maxSessionTimeout"])
    assert int(told["tickTime"]) <= 1_000


def test_only_harmless_words_are_answered_and_no_web_server_is_started() -> None:
    told = facts(SETTINGS)
    assert told["4lw.commands.whitelist"] == "srvr,mntr,ruok"
    assert told["admin.enableServer"] == "false"


def test_old_snapshots_are_purged() -> None:
    told = facts(SETTINGS)
    assert int(told["autopurge.snapRetainCount"]) >= 3
    assert int(told["autopurge.purgeInterval"]) > 0


def test_syncing_is_on_unless_it_is_told_off() -> None:
    assert "-Dzookeeper.forceSync=yes" in java_options(SETTINGS)
    assert "-Dzookeeper.forceSync=no" in java_options(replace(SETTINGS, is_synced=False))


def test_the_command_line_is_java_options_class_path_and_the_file() -> None:
    line = command_line(
        Path("/bin/java"),
        Path("/jars"),
        SETTINGS,
        Path("/data/zoo.cfg"),
        class_archive=Path("/jars/c.jsa"),
        more_options=("-Xshare:auto",),
    )
    assert line[0] == "/bin/java"
    assert line[-4:] == ["-cp", class_path(Path("/jars")), MAIN_CLASS, "/data/zoo.cfg"]
    options = line[1:-4]
    assert options == [
        *java_options(SETTINGS),
        "-XX:SharedArchiveFile=/jars/c.jsa",
        "-Xshare:auto",
    ]


def test_without_an_archive_none_is_named() -> None:
    line = command_line(Path("java"), Path("/jars"), SETTINGS, Path("zoo.cfg"))
    assert not any("SharedArchiveFile" in word for word in line)
